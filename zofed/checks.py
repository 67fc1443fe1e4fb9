"""Checks of settings before anything compiles: each error names the setting, its value and what is allowed."""

import operator
from collections.abc import Callable
from typing import Any

import jax
import jax.core
import numpy as np

__all__ = [
    "Rate",
    "choice",
    "count",
    "finite_or_infinity",
    "losses",
    "nonnegative",
    "parameters",
    "positive",
    "rate",
    "rate_at",
]

Rate = float | jax.Array | Callable[[Any], Any]
"""A number (it may be traced) or a schedule: round -> number, such as those of optax."""


def positive(name: str, value: Any) -> None:
    """Raises ValueError unless `value` is a finite number above 0; a tracer of a number passes.

    Example:
        >>> positive("smoothing", -1e-3)
        Traceback (most recent call last):
        ValueError: smoothing=-0.001; allowed: a finite number > 0
    """
    _check_number(name, value, lambda number: number > 0, "a finite number > 0")


def nonnegative(name: str, value: Any) -> None:
    """Raises ValueError unless `value` is a finite number, 0 or above; a tracer passes."""
    _check_number(name, value, lambda number: number >= 0, "a finite number >= 0")


def _check_number(name: str, value: Any, holds: Callable[[np.ndarray], Any], allowed: str) -> None:
    if np.ndim(value) != 0:
        raise ValueError(f"{name} has the shape {np.shape(value)}; allowed: {allowed}")
    if isinstance(value, jax.core.Tracer):
        return
    if isinstance(value, str | bytes | bool | np.bool_):
        raise ValueError(f"{name}={value!r}; allowed: {allowed}")
    try:
        number = np.asarray(value, np.float64)
    except (TypeError, ValueError):
        raise ValueError(f"{name}={value!r}; allowed: {allowed}") from None
    if not (np.isfinite(number) and holds(number)):
        raise ValueError(f"{name}={value}; allowed: {allowed}")


def finite_or_infinity(name: str, value: Any) -> None:
    """Raises ValueError unless `value` is a finite number or plus infinity; a tracer passes."""
    if np.ndim(value) == 0 and not isinstance(value, jax.core.Tracer | str) and value == np.inf:
        return
    _check_number(name, value, lambda number: True, "a finite number or inf")


def rate(name: str, value: Rate) -> None:
    """Like `positive`, but a schedule passes."""
    if not callable(value):
        positive(name, value)


def rate_at(value: Rate, round: Any) -> Any:
    """The rate of a round: the schedule's value, or the number itself."""
    if not callable(value):
        return value
    # A schedule may mix the integer round with floats, as those of optax do, which strict promotion forbids.
    with jax.numpy_dtype_promotion("standard"):
        return value(round)


def count(name: str, value: Any, at_least: int = 1, at_most: int | None = None, limit: str = "") -> int:
    """`value` as an int in [at_least, at_most]; a count sets shapes, so it cannot be traced.

    Args:
        limit: name of the setting that gives `at_most`, for the message.

    Example:
        >>> count("cohort_size", 12, at_most=10, limit="num_clients")
        Traceback (most recent call last):
        ValueError: cohort_size=12; allowed: an integer from 1 to 10 (num_clients)
    """
    allowed = f"an integer from {at_least}" + (" up" if at_most is None else f" to {at_most}")
    allowed += f" ({limit})" if limit else ""
    if isinstance(value, jax.core.Tracer):
        raise ValueError(f"{name} is traced; it sets shapes: give {allowed} as a Python int, and sweep it by groups")
    try:
        number = operator.index(value)
    except TypeError:
        raise ValueError(f"{name}={value!r}; allowed: {allowed}") from None
    if isinstance(value, bool) or number < at_least or (at_most is not None and number > at_most):
        raise ValueError(f"{name}={value!r}; allowed: {allowed}")
    return number


def losses(values: jax.Array, batch: Any) -> jax.Array:
    """`values` if they are one loss per example of the batch.

    Example:
        >>> losses(np.zeros(()), np.zeros((25, 3)))
        Traceback (most recent call last):
        ValueError: loss_fn returned the shape () for a batch of 25; allowed: (25,), one loss per example
    """
    leaves = jax.tree.leaves(batch)
    if leaves and values.shape != leaves[0].shape[:1]:
        size = leaves[0].shape[0]
        raise ValueError(
            f"loss_fn returned the shape {values.shape} for a batch of {size}; allowed: ({size},), one loss per example"
        )
    return values


def parameters(params: Any) -> None:
    """Raises ValueError unless `params` is a pytree of at least one array, all of real floating-point dtypes."""
    leaves = jax.tree_util.tree_flatten_with_path(params)[0]
    if not leaves:
        raise ValueError(f"params={params!r}; allowed: a pytree with at least one array")
    for path, leaf in leaves:
        dtype = getattr(leaf, "dtype", None)
        if dtype is None or not jax.numpy.issubdtype(dtype, jax.numpy.floating):
            name = jax.tree_util.keystr(path)
            raise ValueError(f"params{name} has the dtype {dtype or type(leaf).__name__}; allowed: real floating point")


def choice(name: str, value: Any, allowed: Any) -> Any:
    """`value` if it is one of the names in `allowed`.

    Example:
        >>> choice("difference", "backward", ["forward", "central"])
        Traceback (most recent call last):
        ValueError: difference='backward'; allowed: 'central', 'forward'
    """
    if value not in allowed:
        raise ValueError(f"{name}={value!r}; allowed: {', '.join(repr(name) for name in sorted(allowed))}")
    return value
