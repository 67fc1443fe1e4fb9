"""Who takes part in a round."""

from collections.abc import Callable

import jax
import jax.numpy as jnp

from zofed import checks
from zofed.base import Cohort
from zofed.channels import Channel, rayleigh
from zofed.rng import RoundKeys

__all__ = ["SampleCohort", "full", "gain_threshold", "uniform"]

SampleCohort = Callable[[RoundKeys, int], Cohort]
"""`(keys, num_clients) -> Cohort`."""


def full() -> SampleCohort:
    """Every client, in every round."""

    def sample(keys: RoundKeys, num_clients: int) -> Cohort:
        del keys
        return Cohort(jnp.arange(num_clients, dtype=jnp.int32), num_clients)

    return sample


def uniform(cohort_size: int) -> SampleCohort:
    """cohort_size clients uniformly without replacement, anew in each round: FedZO, DeComFL.

    Raises:
        ValueError: cohort_size is not in [1, num_clients].
    """
    cohort_size = checks.count("cohort_size", cohort_size)

    def sample(keys: RoundKeys, num_clients: int) -> Cohort:
        checks.count("cohort_size", cohort_size, at_most=num_clients, limit="num_clients")
        order = jax.random.permutation(keys.cohort, num_clients)
        return Cohort(order[:cohort_size].astype(jnp.int32), cohort_size)

    return sample


def gain_threshold(threshold: float | jax.Array, channel: Channel | None = None) -> SampleCohort:
    """The clients whose channel is good enough, {i : |h_i| >= h_min}: FedZO, IV-A. Their number varies, down to 0.

    With h ~ CN(0, 1) a client takes part with probability exp(-threshold^2).

    Args:
        threshold: h_min; may be traced.
        channel: default `zofed.channels.rayleigh()`.
    """
    checks.positive("gain_threshold", threshold)
    channel = rayleigh() if channel is None else channel

    def sample(keys: RoundKeys, num_clients: int) -> Cohort:
        gain = jax.vmap(lambda client_id: channel(keys, client_id))(jnp.arange(num_clients, dtype=jnp.int32))
        h_min = jnp.asarray(threshold, jnp.float32)
        absent = jnp.abs(gain) < h_min
        ids = jnp.argsort(absent, stable=True).astype(jnp.int32)
        count = num_clients - jnp.sum(absent.astype(jnp.int32))
        return Cohort(ids, count, gain[ids], h_min)

    return sample
