"""How a client draws the batch of a local step from its data."""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp

from zofed import checks, rng
from zofed.base import Client
from zofed.rng import RoundKeys, Stream

__all__ = ["BATCHINGS", "epoch", "replacement"]

Batching = Callable[[RoundKeys, jax.Array, int, Client], Any]
"""`(keys, step, local_steps, client) -> batch`, a pytree like the samples with a leading axis batch_size."""


def replacement(batch_size: int) -> Batching:
    """batch_size samples drawn i.i.d. with replacement in each step: FedZO, (II-B)."""
    batch_size = checks.count("batch_size", batch_size)

    def batch(keys: RoundKeys, step: jax.Array, local_steps: int, client: Client) -> Any:
        del local_steps
        key = rng.fold(keys.data, step, client.id)
        return client.take(jax.random.randint(key, (batch_size,), 0, client.size, jnp.int32))

    return batch


def epoch(batch_size: int) -> Batching:
    """Batches without replacement: a client shuffles its data anew in each epoch and cuts it into whole batches.

    Local step number `round * local_steps + step` decides the epoch, whether the client took part in earlier rounds or
    not; an epoch's incomplete last batch is left out (other samples are in the next epoch's). A client with fewer than
    batch_size samples repeats its shuffled data within the batch.
    """
    batch_size = checks.count("batch_size", batch_size)

    def batch(keys: RoundKeys, step: jax.Array, local_steps: int, client: Client) -> Any:
        number = keys.round * local_steps + step
        per_epoch = jnp.maximum(client.size // batch_size, 1)
        # The key of an epoch stands where a round's would: it must be the same in every round the epoch spans.
        epoch_key = rng.fold(rng.fold(keys.seed, number // per_epoch, Stream.DATA), 0, client.id)
        own = jnp.arange(client.max_size) < client.size
        order = jnp.argsort(jnp.where(own, rng.uniform(epoch_key, (client.max_size,)), jnp.float32(1)))
        places = (number % per_epoch) * batch_size + jnp.arange(batch_size, dtype=jnp.int32)
        return client.take(order[places % client.size])

    return batch


BATCHINGS: dict[str, Callable[[int], Batching]] = {"replacement": replacement, "epoch": epoch}
"""Batchings by the name that configs use."""
