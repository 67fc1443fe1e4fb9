"""MeZO: zeroth-order descent of one agent (Malladi et al., NeurIPS 2023), as DeComFL with one client."""

from typing import Any

import jax

from zofed import checks
from zofed.algorithms.decomfl import decomfl
from zofed.base import Algorithm, LossFn, Params, State
from zofed.estimators import Difference, central

__all__ = ["mezo"]


def mezo(
    loss_fn: LossFn,
    learning_rate: checks.Rate,
    smoothing: float | jax.Array = 1e-3,
    num_directions: int = 1,
    batch_size: int = 16,
    *,
    difference: Difference | None = None,
    **options: Any,
) -> Algorithm:
    """One central-difference step per round; nothing travels. `algorithm.init` wants exactly one client.

    Args:
        loss_fn: per-example losses.
        learning_rate: eta, a number or a schedule.
        smoothing: the paper's epsilon.
        num_directions: 1 in the paper.
        batch_size: examples per step.
        difference: default `zofed.estimators.central()`, as in the paper.
        **options: `directions`, `optimizer`, `batching`, `direction_chunk` of `decomfl`.

    Raises:
        ValueError: a setting is out of range.
    """
    difference = central() if difference is None else difference
    algorithm = decomfl(
        loss_fn, learning_rate, smoothing, 1, num_directions, batch_size, difference=difference, **options
    )

    def init(params: Params, num_clients: int) -> State:
        checks.count("num_clients", num_clients, at_most=1, limit="MeZO has one agent")
        return algorithm.init(params, num_clients)

    return algorithm._replace(init=init)
