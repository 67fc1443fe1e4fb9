"""Constants of the synthetic tasks, from their data in float64."""

from typing import Any

import numpy as np

from zofed import checks
from zofed.base import ClientData
from zofed.theory.problem import Constants

__all__ = ["logistic_regression", "quadratic"]

_OVER = {"mean": np.mean, "max": np.max}


def quadratic(
    clients: ClientData, eigenvalues: Any, start: Any = 0.0, ripple: float = 0.0, over_clients: str = "mean"
) -> Constants:
    """Exact constants of `zofed.tasks.quadratic`; c_g = 1 and c_h = 0.

    grad F_i(x, c) = a (x - c) + ripple sin(x - 1), so samples and clients differ by constants, and
    L = max(max a + ripple, ripple - min a).

    Args:
        clients: the task's, of equal weight.
        eigenvalues: `zofed.tasks.eigenvalues(...)`.
        start: x^0.
        ripple: the task's.
        over_clients: noise and dissimilarity are the clients' "mean", which is all that the derived bounds need, or
            "max", as the papers assume.

    Example:
        >>> data = ClientData.from_partition(np.array([[1.0], [3.0], [5.0]], np.float32), [[0, 1], [2]])
        >>> quadratic(data, [2.0]).gap, quadratic(data, [2.0]).gradient_noise  # f minimal at (2 + 5) / 2
        (12.25, 2.0)
    """
    reduce = _OVER[checks.choice("over_clients", over_clients, _OVER)]
    a = np.asarray(eigenvalues, np.float64)
    samples = np.split(np.asarray(clients.samples, np.float64), np.cumsum(np.asarray(clients.sizes))[:-1])
    means = np.stack([own.mean(axis=0) for own in samples])
    centre = means.mean(axis=0)
    noise = [np.mean(np.sum((a * (own - mean)) ** 2, axis=-1)) for own, mean in zip(samples, means, strict=True)]
    apart = np.sum((a * (means - centre)) ** 2, axis=-1)
    away = np.asarray(start, np.float64) - centre
    gap = 0.5 * np.sum(a * away**2) + ripple * np.sum(1 - np.cos(np.asarray(start) - np.ones_like(centre)))
    L = max(a.max() + ripple, ripple - a.min())
    return Constants(
        smoothness=float(L),
        gap=float(gap),
        gradient_noise=float(reduce(noise)),
        gradient_growth=1.0,
        dissimilarity=float(reduce(apart)),
        dissimilarity_growth=0.0,
        effective_rank=float(np.sum(a + ripple) / (a.max() + ripple)),
    )


def logistic_regression(clients: ClientData, regularization: float, over_clients: str = "mean") -> Constants:
    """Constants that `zofed.tasks.logistic_regression` meets everywhere, from x^0 = 0; c_g = 1 and c_h = 0.

    A sample's Hessian is at most ||a||^2 / 4 + regularization. The data's part of its gradient is at most ||a|| long,
    and the rest is the same for all samples. f is at least 0, and log 2 at 0.

    Args:
        clients: the task's.
        regularization: the task's.
        over_clients: noise and dissimilarity are the clients' "mean" or "max".
    """
    reduce = _OVER[checks.choice("over_clients", over_clients, _OVER)]
    squares = np.sum(np.asarray(clients.samples["feature"], np.float64) ** 2, axis=-1)
    own = np.split(squares, np.cumsum(np.asarray(clients.sizes))[:-1])
    lengths = np.array([np.mean(np.sqrt(part)) for part in own])  # of the mean of gradients, at most
    pairs = (lengths[:, None] + lengths[None, :]) ** 2 * (1 - np.eye(len(lengths)))
    # The mean squared distance from the mean is half the mean squared distance of two.
    apart = np.mean(pairs) / 2 if over_clients == "mean" else np.max((lengths + lengths.mean()) ** 2)
    return Constants(
        smoothness=float(squares.max() / 4 + regularization),
        gap=float(np.log(2)),
        gradient_noise=float(reduce([part.mean() for part in own])),
        gradient_growth=1.0,
        dissimilarity=float(apart),
        dissimilarity_growth=0.0,
    )
