"""Aggregations: what a client does to its payload, and what the link makes of the cohort's messages.

The link is a reduction. Each message is lifted to a total, totals are merged in the order of the cohort, and the server
receives what the merged total says. So a round holds one total, however large the cohort is. A new aggregation is a new
`Aggregation`; `mean` is the whole pattern.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from zofed.base import Client, Cohort
from zofed.rng import RoundKeys

__all__ = ["Aggregation", "mean"]


class Aggregation(NamedTuple):
    """A payload is a pytree of arrays: model updates, or scalars.

    Attributes:
        init: `payload -> memory` of one client at the start, `()` if it keeps nothing.
        encode: `(keys, client, payload, memory) -> (message, memory)`, at the client.
        lift: `(message, gain) -> total` of one client; `gain` is its channel coefficient or None.
        merge: `(total, total) -> total`, associative, with zeros as the neutral element.
        receive: `(keys, total, count, cohort) -> (aggregate, link)`, at the server. `count` is the float32 number of
            messages in the total, at least 1; `link` is a NamedTuple of scalars for RoundInfo, or `()`.
    """

    init: Callable[[Any], Any]
    encode: Callable[[RoundKeys, Client, Any, Any], tuple[Any, Any]]
    lift: Callable[[Any, jax.Array | None], Any]
    merge: Callable[[Any, Any], Any]
    receive: Callable[[RoundKeys, Any, jax.Array, Cohort], tuple[Any, Any]]


def no_memory(payload: Any) -> Any:
    """The `init` of a client that keeps nothing."""
    del payload
    return ()


def send_as_is(keys: RoundKeys, client: Client, payload: Any, memory: Any) -> tuple[Any, Any]:
    """The `encode` that sends the payload itself."""
    del keys, client
    return payload, memory


def add(total: Any, other: Any) -> Any:
    """Leaf by leaf sum: the `merge` of a superposition."""
    return jax.tree.map(jnp.add, total, other)


def mean() -> Aggregation:
    """Mean of the cohort's payloads, every client weighing the same: FedZO (13), DeComFL Algorithm 1 line 10."""

    def receive(keys: RoundKeys, total: Any, count: jax.Array, cohort: Cohort) -> tuple[Any, Any]:
        del keys, cohort
        # XLA makes a division by one number this product anyway, but not in a vmapped sweep.
        return jax.tree.map(lambda leaf: leaf * (1 / count).astype(leaf.dtype), total), ()

    return Aggregation(no_memory, send_as_is, lambda message, gain: message, add, receive)
