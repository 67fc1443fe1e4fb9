"""FedZO: federated averaging with zeroth-order local steps (Fang et al., IEEE TSP 2022, Algorithm 1)."""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp

from zofed import checks, estimators
from zofed.algorithms.model_averaging import model_averaging
from zofed.base import Algorithm, LocalInfo, LossFn, Params
from zofed.batches import Batching, replacement
from zofed.directions import Directions, sphere
from zofed.estimators import Difference

__all__ = ["fedzo"]


def fedzo(
    loss_fn: LossFn,
    learning_rate: checks.Rate,
    smoothing: float | jax.Array,
    local_steps: int,
    num_directions: int = 20,
    batch_size: int = 25,
    *,
    directions: Directions | None = None,
    difference: Difference | None = None,
    per_sample: bool = False,
    batching: Callable[[int], Batching] = replacement,
    direction_chunk: int | None = None,
    **averaging: Any,
) -> Algorithm:
    """FedZO with the estimator (II-B); each of learning_rate and smoothing may be traced.

    Args:
        loss_fn: per-example losses; only its values are used.
        learning_rate: eta, or a schedule round -> eta.
        smoothing: mu.
        local_steps: H.
        num_directions: b2.
        batch_size: b1.
        directions: default the unit sphere, as in the paper.
        difference: `zofed.estimators.forward()` (default, the paper), `central()` or `jvp()`.
        per_sample: independent directions for each example; shared by the batch (False) in the paper's algorithm.
        batching: `zofed.batches.replacement` (the paper) or `epoch`.
        direction_chunk: directions held at once; None holds all, 1 keeps memory at O(dim).
        **averaging: `sample_cohort`, `aggregation`, `local_optimizer`, `server_optimizer`, `server_learning_rate` of
            `model_averaging`.

    Raises:
        ValueError: a setting is out of range.

    Example:
        >>> from zofed import simulate, tasks
        >>> task = tasks.quadratic(dim=10, num_clients=4, heterogeneity=0.0)
        >>> algorithm = fedzo(task.loss, 0.1, 1e-3, local_steps=2, num_directions=10, batch_size=1)
        >>> params = task.init(jax.random.key(0))
        >>> state = algorithm.init(params, task.data.clients.num_clients)
        >>> state, _ = simulate(jax.random.key(0), algorithm, state, task.data.clients, num_rounds=50)
        >>> before, after = task.loss_value(params), task.loss_value(algorithm.params(state))
        >>> bool(after < 0.1 * before)
        True
    """
    estimate = estimators.estimator(
        loss_fn,
        sphere() if directions is None else directions,
        num_directions,
        smoothing,
        difference,
        per_sample,
        direction_chunk,
    )

    def gradient(direction_key: Any, params: Params, batch: Any) -> tuple[Params, LocalInfo]:
        result = estimate(direction_key, params, batch)
        return result.gradient, LocalInfo(result.loss, jnp.mean((result.scalars == 0).astype(jnp.float32)))

    return model_averaging(gradient, batching(batch_size), learning_rate, local_steps, **averaging)
