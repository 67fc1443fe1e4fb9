"""FedAvg (McMahan et al., AISTATS 2017): the first-order baseline of both papers."""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp

from zofed import checks
from zofed.algorithms.model_averaging import model_averaging
from zofed.base import Algorithm, LocalInfo, LossFn, Params
from zofed.batches import Batching, replacement

__all__ = ["fedavg"]


def fedavg(
    loss_fn: LossFn,
    learning_rate: checks.Rate,
    local_steps: int,
    batch_size: int = 25,
    *,
    batching: Callable[[int], Batching] = replacement,
    **averaging: Any,
) -> Algorithm:
    """Local stochastic gradient steps and the mean of the updates, every client weighing the same.

    Args:
        loss_fn: per-example losses, differentiable by JAX.
        learning_rate: a number (may be traced) or a schedule round -> number.
        local_steps: H.
        batch_size: examples per local step.
        batching: `zofed.batches.replacement` or `epoch`.
        **averaging: as for `zofed.algorithms.fedzo.fedzo`.

    Raises:
        ValueError: a setting is out of range.
    """

    def gradient(direction_key: Any, params: Params, batch: Any) -> tuple[Params, LocalInfo]:
        del direction_key
        loss, slope = jax.value_and_grad(lambda x: jnp.mean(checks.losses(loss_fn(x, batch), batch)))(params)
        return slope, LocalInfo(loss.astype(jnp.float32), jnp.float32(0))

    return model_averaging(gradient, batching(batch_size), learning_rate, local_steps, **averaging)
