"""Exponents of power laws, fitted to measured runs."""

from typing import Any, NamedTuple

import numpy as np
from scipy import stats

from zofed import checks

__all__ = ["Exponent", "fit_exponent"]


class Exponent(NamedTuple):
    """Of y = scale * x^value, with a confidence interval of the value."""

    value: float
    low: float
    high: float
    scale: float


def fit_exponent(x: Any, y: Any, confidence: float = 0.95) -> Exponent:
    """The slope of log mean(y) against log x by least squares; its interval is the jackknife's, over the runs.

    Runs of equal number at different x may share their random numbers; those of other numbers are independent.

    Args:
        x: [points], positive.
        y: [runs, points], of positive means; at least 2 runs.
        confidence: of the interval, by Student's law.

    Raises:
        ValueError: there are fewer than 2 points or runs, or a mean is not positive.

    Example:
        >>> fit = fit_exponent([1.0, 2.0, 4.0], [[1.0, 0.5, 0.3], [1.0, 0.5, 0.2]])
        >>> round(fit.value, 3), bool(fit.low < -1 < fit.high)
        (-1.0, True)
    """
    x, y = np.asarray(x, np.float64), np.asarray(y, np.float64)
    if y.ndim != 2 or y.shape[1:] != x.shape or len(x) < 2:
        raise ValueError(
            f"y has the shape {y.shape} and x {x.shape}; allowed: (runs, points) and (points,), 2 at least"
        )
    runs = checks.count("runs", len(y), at_least=2)
    if not (x > 0).all() or not (y.mean(axis=0) > 0).all():
        raise ValueError("x, and the mean of y at each x, must be positive")
    slope, level = _line(x, y.mean(axis=0))
    without = np.array([_line(x, np.delete(y, run, axis=0).mean(axis=0))[0] for run in range(runs)])
    error = np.sqrt((runs - 1) / runs * np.sum((without - without.mean()) ** 2))
    width = float(stats.t.ppf(0.5 + confidence / 2, runs - 1) * error)
    return Exponent(slope, slope - width, slope + width, float(np.exp(level)))


def _line(x: np.ndarray, y: np.ndarray) -> tuple[float, float]:
    slope, level = np.polyfit(np.log(x), np.log(y), 1)
    return float(slope), float(level)
