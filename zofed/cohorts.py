"""Who takes part in a round."""

from collections.abc import Callable

import jax
import jax.numpy as jnp

from zofed import checks
from zofed.base import Cohort
from zofed.rng import RoundKeys

__all__ = ["SampleCohort", "full", "uniform"]

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
