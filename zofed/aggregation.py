"""Aggregations: what a client does to its payload, and what the link makes of the cohort's messages.

The link is a reduction. Each message is lifted to a total, totals are merged in the order of the cohort, and the server
receives what the merged total says. So a round holds one total, however large the cohort is. A new aggregation is a new
`Aggregation`; `mean` is the whole pattern.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from zofed import checks, rng
from zofed.base import Client, Cohort, dimension, squared_norm
from zofed.rng import RoundKeys

__all__ = ["Aggregation", "AirCompInfo", "aircomp", "check_gain", "majority", "mean"]


class Aggregation(NamedTuple):
    """A payload is a pytree of arrays: model updates, or scalars.

    Attributes:
        init: `payload -> memory` of one client at the start, `()` if it keeps nothing.
        encode: `(keys, client, payload, memory) -> (message, memory)`, at the client.
        lift: `(message, gain) -> total` of one client; `gain` is its channel coefficient or None.
        merge: `(total, total) -> total`, associative, with zeros as the neutral element.
        receive: `(keys, total, count, cohort) -> (aggregate, link)`, at the server. `count` is the float32 number of
            messages in the total, at least 1; `link` is a NamedTuple of scalars for RoundInfo, or `()`.
        needs_gain: whether the cohort must come with channel gains.
        reads_zeros: whether an entry of 0 says something, so that one that is not sent cannot be told from it.
    """

    init: Callable[[Any], Any]
    encode: Callable[[RoundKeys, Client, Any, Any], tuple[Any, Any]]
    lift: Callable[[Any, jax.Array | None], Any]
    merge: Callable[[Any, Any], Any]
    receive: Callable[[RoundKeys, Any, jax.Array, Cohort], tuple[Any, Any]]
    needs_gain: bool = False
    reads_zeros: bool = False


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


def majority() -> Aggregation:
    """The sign of the cohort's sum, 1 or -1 (1 in a tie): what one bit per entry can say of payloads of signs."""

    def receive(keys: RoundKeys, total: Any, count: jax.Array, cohort: Cohort) -> tuple[Any, Any]:
        del keys, count, cohort
        return jax.tree.map(lambda leaf: jnp.where(leaf < 0, -jnp.ones_like(leaf), jnp.ones_like(leaf)), total), ()

    return Aggregation(no_memory, send_as_is, lambda message, gain: message, add, receive, reads_zeros=True)


def check_gain(aggregation: Aggregation, sample_cohort: Callable[[RoundKeys, int], Cohort]) -> None:
    """Raises ValueError if the aggregation works over a channel and the cohorts have none."""
    if not aggregation.needs_gain:
        return
    many = 2**24  # cohorts are only shaped here, so any number of clients that no cohort size exceeds will do
    cohort = jax.eval_shape(lambda: sample_cohort(rng.round_keys(rng.seed_key(0), 0), many)._replace(count=0))
    if cohort.gain is None:
        raise ValueError(
            "aggregation=aircomp with a sample_cohort whose cohorts have no channel gains; "
            "allowed: sample_cohort=zofed.cohorts.gain_threshold(...)"
        )


class AirCompInfo(NamedTuple):
    """The link of a round over the air.

    Attributes:
        transmit_energy: mean over the participants of ||alpha_i Delta_i||^2, as a fraction of its limit dP.
        peak_transmit_energy: the largest of them; at most 1.
        received_snr: energy of the mean update over that of the noise it comes with, linear.
    """

    transmit_energy: jax.Array
    peak_transmit_energy: jax.Array
    received_snr: jax.Array


class _AirTotal(NamedTuple):
    """Sums and largest values over the participants' messages Delta_i."""

    superposed: Any
    energy: jax.Array
    """Sum of ||Delta_i||^2 / |h_i|^2."""
    largest_square: jax.Array
    """Largest ||Delta_i||^2, Delta_max."""
    largest_energy: jax.Array
    """Largest ||Delta_i||^2 / |h_i|^2."""
    largest_inverse_gain: jax.Array
    """Largest 1 / |h_i|."""


NOISE_SHARE = {"full": 1.0, "real_part": 0.5}
"""Share of the complex noise's variance that reaches the real update."""


def aircomp(snr_db: float | jax.Array, noise: str = "full", variant: str = "paper") -> Aggregation:
    """Over-the-air mean: payloads superpose in a fading channel and come with noise, FedZO (14)-(17).

    With alpha_i = (h_min / h_i) sqrt(dP / Delta_max) and the receive scalar of (17) the server gets the mean plus a
    noise n of E||n||^2 = Delta_max / (count^2 gamma), where gamma = snr * h_min^2 and Delta_max = max_i ||Delta_i||^2.
    That equivalent form is what is computed; the signals themselves are in the tests. Needs cohorts from
    `zofed.cohorts.gain_threshold`.

    Args:
        snr_db: P / sigma_w^2 in dB, may be traced; infinity is a link without noise.
        noise: `full` adds real noise of the whole variance of (17), as the paper's bound counts it; `real_part` the
            real half of it.
        variant: `paper`, or `authors_code`: E||n||^2 = Delta_max / (count^2 snr min_i |h_i|), which has the smallest
            gain among the participants, not squared, in the place of h_min^2.

    Raises:
        ValueError: snr_db is nan or -infinity, or a name is unknown.
    """
    checks.finite_or_infinity("channel.snr_db", snr_db)
    share = NOISE_SHARE[checks.choice("channel.noise", noise, NOISE_SHARE)]
    checks.choice("channel.variant", variant, ("paper", "authors_code"))

    def lift(message: Any, gain: jax.Array | None) -> _AirTotal:
        assert gain is not None
        square = squared_norm(message)
        inverse_gain = 1 / jnp.abs(gain)
        energy = square * inverse_gain**2
        return _AirTotal(message, energy, square, energy, inverse_gain)

    def merge(total: _AirTotal, other: _AirTotal) -> _AirTotal:
        largest = (jnp.maximum(own, theirs) for own, theirs in zip(total[2:], other[2:], strict=True))
        return _AirTotal(add(total.superposed, other.superposed), total.energy + other.energy, *largest)

    def receive(keys: RoundKeys, total: _AirTotal, count: jax.Array, cohort: Cohort) -> tuple[Any, AirCompInfo]:
        h_min = jnp.asarray(cohort.gain_threshold, jnp.float32)
        snr = 10 ** (jnp.asarray(snr_db, jnp.float32) / 10)
        square_gain = 1 / total.largest_inverse_gain if variant == "authors_code" else h_min**2
        delta_max, dim = total.largest_square, dimension(total.superposed)
        deviation = jnp.sqrt(share * delta_max / (dim * snr * square_gain)) / count
        # A cohort that is empty, or has nothing to say, has no Delta_max to divide by.
        deviation = jnp.where(delta_max > 0, deviation, 0.0)
        noise_energy = dim * jnp.square(deviation)
        per_limit = jnp.where(delta_max > 0, h_min**2 / delta_max, 0.0)

        def noisy(leaf: jax.Array, leaf_noise: jax.Array) -> jax.Array:
            return leaf * (1 / count).astype(leaf.dtype) + (deviation * leaf_noise).astype(leaf.dtype)

        aggregate = jax.tree.map(noisy, total.superposed, _unit_noise(keys, total.superposed))
        mean_energy = squared_norm(total.superposed) / jnp.square(count)
        received_snr = jnp.where(mean_energy > 0, mean_energy / noise_energy, 0.0)
        return aggregate, AirCompInfo(total.energy / count * per_limit, total.largest_energy * per_limit, received_snr)

    return Aggregation(no_memory, send_as_is, lift, merge, receive, needs_gain=True)


def _unit_noise(keys: RoundKeys, like: Any) -> Any:
    leaf_keys = rng.leaf_keys(rng.fold(keys.channel, 0), like)
    return rng.materialise(lambda: jax.tree.map(lambda key, leaf: rng.normal(key, leaf.shape), leaf_keys, like))
