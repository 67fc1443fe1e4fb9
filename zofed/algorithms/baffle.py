"""BAFFLE: scalars up, model down (Feng et al., arXiv 2301.12195), as DeComFL whose clients pull the model."""

from typing import Any

import jax
import optax

from zofed import checks
from zofed.algorithms.decomfl import decomfl
from zofed.base import Algorithm, LossFn

__all__ = ["baffle"]


def baffle(
    loss_fn: LossFn,
    learning_rate: checks.Rate,
    smoothing: float | jax.Array = 1e-4,
    num_directions: int = 500,
    batch_size: int = 32,
    *,
    optimizer: optax.GradientTransformation | None = None,
    **options: Any,
) -> Algorithm:
    """The FedSGD form: a participant receives the model, sends one scalar per direction, and the server steps.

    Its directions delta ~ N(0, sigma^2 I) with scalars (L(W + delta) - L(W)) / sigma^2 are delta = sigma z with ours,
    sigma being `smoothing`.

    Args:
        loss_fn: per-example losses.
        learning_rate: eta, a number or a schedule; 1e-2 in the paper, with its optimiser.
        smoothing: sigma.
        num_directions: the paper's K, 100 to 500.
        batch_size: examples per client and round.
        optimizer: default as in the paper's code, entries clipped to 0.3 and then Adam.
        **options: of `decomfl`.

    Raises:
        ValueError: a setting is out of range.
    """
    if optimizer is None:
        optimizer = optax.chain(optax.clip(0.3), optax.scale_by_adam())
    return decomfl(loss_fn, learning_rate, smoothing, 1, num_directions, batch_size, optimizer=optimizer, **options)
