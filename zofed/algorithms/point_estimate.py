"""A gradient estimate at one point, averaged over batches and directions: what DZOPA and ZONE-S share."""

from collections.abc import Callable

import jax
import jax.numpy as jnp

from zofed import checks, rng
from zofed.base import Client, LocalInfo, Params
from zofed.batches import Batching
from zofed.estimators import Estimator
from zofed.rng import RoundKeys

__all__ = ["point_estimate"]


def point_estimate(
    estimate: Estimator, batching: Batching, num_estimates: int
) -> Callable[[RoundKeys, Client, Params], tuple[Params, LocalInfo]]:
    """`(keys, client, params) -> (gradient, info)`: the mean of estimates, each of a batch and directions of its own.

    Args:
        estimate: for instance `zofed.estimators.estimator(...)`.
        batching: for instance `zofed.batches.replacement(25)`.
        num_estimates: how many are averaged, one after the other.
    """
    num_estimates = checks.count("num_estimates", num_estimates)

    def averaged(keys: RoundKeys, client: Client, params: Params) -> tuple[Params, LocalInfo]:
        def one(number: jax.Array) -> tuple[Params, LocalInfo]:
            batch = batching(keys, number, num_estimates, client)
            result = estimate(rng.direction_keys(keys.direction, number, client.id), params, batch)
            return result.gradient, LocalInfo(result.loss, jnp.mean((result.scalars == 0).astype(jnp.float32)))

        if num_estimates == 1:
            return one(jnp.int32(0))

        def add(total: Params, number: jax.Array) -> tuple[Params, LocalInfo]:
            gradient, info = one(number)
            return rng.materialise(lambda: jax.tree.map(jnp.add, total, gradient)), info

        zeros = jax.tree.map(lambda leaf: jnp.zeros(leaf.shape, leaf.dtype), jax.eval_shape(one, jnp.int32(0))[0])
        total, infos = jax.lax.scan(add, zeros, jnp.arange(num_estimates, dtype=jnp.int32))
        share = 1 / num_estimates
        return rng.materialise(lambda: jax.tree.map(lambda leaf: leaf * share, total)), jax.tree.map(jnp.mean, infos)

    return averaged
