"""What a convergence bound is a function of: a problem's constants, a run's settings, and who takes part."""

import functools
import math
from typing import Any, NamedTuple

import jax
import jax.core
import jax.numpy as jnp
import numpy as np

__all__ = [
    "Constants",
    "Participation",
    "Setting",
    "cohort",
    "in_one_precision",
    "minimum",
    "numerics",
    "threshold_cohort",
]


class Constants(NamedTuple):
    """A problem's constants; numbers, arrays or tracers.

    The assumptions are those of FedZO as FedMeZO (arXiv 2402.05926, appendix B) restates them. Each F_i(., xi) is
    L-smooth, f >= f_*, and for all x

        E ||grad F_i(x, xi)||^2 <= c_g ||grad f_i(x)||^2 + sigma_g^2,
        ||grad f_i(x) - grad f(x)||^2 <= c_h ||grad f(x)||^2 + sigma_h^2.

    The derived bounds need the latter two in the mean over the clients only, the papers state them for every client.

    Attributes:
        smoothness: L.
        gap: f(x^0) - f_*.
        gradient_noise: sigma_g^2, of one sample.
        gradient_growth: c_g, at least 1.
        dissimilarity: sigma_h^2; DeComFL's sigma_G^2.
        dissimilarity_growth: c_h, at least 0.
        effective_rank: kappa = tr(H) / ||H||; the bounds of low effective rank need it.
    """

    smoothness: Any
    gap: Any
    gradient_noise: Any = 0.0
    gradient_growth: Any = 1.0
    dissimilarity: Any = 0.0
    dissimilarity_growth: Any = 0.0
    effective_rank: Any = math.nan


class Setting(NamedTuple):
    """A run's settings; numbers, arrays or tracers.

    Attributes:
        dim: d.
        num_clients: N of FedZO, M of DeComFL.
        cohort_size: M of FedZO, m of DeComFL.
        num_rounds: T or R.
        local_steps: H or K.
        batch_size: b1.
        num_directions: b2 or P.
        learning_rate: eta.
        smoothing: mu; 0 for `zofed.estimators.jvp`.
    """

    dim: Any
    num_clients: Any
    cohort_size: Any
    num_rounds: Any
    local_steps: Any
    batch_size: Any
    num_directions: Any
    learning_rate: Any
    smoothing: Any


class Participation(NamedTuple):
    """What a bound sees of the law of the cohort, given that it is not empty.

    Attributes:
        inverse_size: E[1 / |M_t|].
        sampling: E[rho], rho = (N - M) / (M (N - 1)): the variance of a mean over M of N, drawn without replacement,
            over that of one of them.
        smallest: the smallest |M_t|.
        active: probability that the cohort is not empty; in other rounds the model stays.
    """

    inverse_size: Any
    sampling: Any
    smallest: Any
    active: Any = 1.0


_ALLOWED = {
    "smoothness": ("a finite number > 0", lambda value: value > 0),
    "gap": ("a finite number >= 0", lambda value: value >= 0),
    "gradient_noise": ("a finite number >= 0", lambda value: value >= 0),
    "gradient_growth": ("a finite number >= 1", lambda value: value >= 1),
    "dissimilarity": ("a finite number >= 0", lambda value: value >= 0),
    "dissimilarity_growth": ("a finite number >= 0", lambda value: value >= 0),
    "learning_rate": ("a finite number > 0", lambda value: value > 0),
    "smoothing": ("a finite number >= 0", lambda value: value >= 0),
}
_COUNTS = ("dim", "num_clients", "cohort_size", "num_rounds", "local_steps", "batch_size", "num_directions")


def in_one_precision(*tuples: Any) -> Any:
    """The NamedTuples with all numbers as float64 numpy arrays; or as float32 of JAX, if any of them is of JAX.

    Raises:
        ValueError: a concrete number is out of its range.

    Example:
        >>> in_one_precision(Constants(smoothness=0.0, gap=1.0))
        Traceback (most recent call last):
        ValueError: smoothness=0.0; allowed: a finite number > 0
    """
    leaves = [value for group in tuples for value in group]
    traced = any(isinstance(value, jax.Array) for value in leaves)
    for group in tuples:
        for name, value in group._asdict().items():
            _check(name, value)
    if traced:
        return tuple(type(group)(*(jnp.asarray(value).astype(jnp.float32) for value in group)) for group in tuples)
    return tuple(type(group)(*(np.float64(np.asarray(value)) for value in group)) for group in tuples)


def _check(name: str, value: Any) -> None:
    if isinstance(value, jax.core.Tracer):
        return
    if name in _COUNTS:
        allowed, holds = "a number >= 1", lambda number: number >= 1
    elif name in _ALLOWED:
        allowed, holds = _ALLOWED[name]
    else:
        return
    number = np.asarray(value, np.float64)
    if not (np.isfinite(number).all() and np.asarray(holds(number)).all()):
        raise ValueError(f"{name}={value}; allowed: {allowed}")


def minimum(*values: Any) -> Any:
    """The smallest of the values, entry by entry."""
    return functools.reduce(numerics(*values).minimum, values)


def numerics(*values: Any) -> Any:
    """`jax.numpy` if any of the values is of JAX, else `numpy`."""
    return jnp if any(isinstance(value, jax.Array) for value in values) else np


def cohort(num_clients: Any, cohort_size: Any) -> Participation:
    """M of N clients, uniformly without replacement.

    Raises:
        ValueError: concrete numbers with M > N.

    Example:
        >>> float(cohort(num_clients=11, cohort_size=5).sampling)  # (11 - 5) / (5 * 10)
        0.12
    """
    xp = numerics(num_clients, cohort_size)
    if xp is np and np.any(np.asarray(cohort_size) > np.asarray(num_clients)):
        raise ValueError(f"cohort_size={cohort_size}; allowed: at most num_clients={num_clients}")
    others = xp.maximum(num_clients - 1.0, 1.0)
    # Of one client all take part: the numerator is 0 whatever the denominator.
    return Participation(1 / cohort_size, (num_clients - cohort_size) / (cohort_size * others), cohort_size)


def threshold_cohort(num_clients: int, probability: float, smallest: int = 1) -> Participation:
    """Each client takes part with a probability of its own draw: `zofed.cohorts.gain_threshold`.

    With h ~ CN(0, E|h|^2) it is exp(-h_min^2 / E|h|^2). Given its size a cohort is uniform, so the bounds for a fixed
    size hold with expectations over the binomial law of the size, given that it is not 0. What enters a bound through
    the variance of the cohort's mean is averaged, E[1/|M_t|] and E[rho]; a condition that must hold in every round, as
    that on the estimator's second moment, is asked for at the smallest |M_t|.

    Args:
        num_clients: N.
        probability: of taking part, in (0, 1].
        smallest: the smallest cohort that the condition on the learning rate must hold for: 1 in general.

    Raises:
        ValueError: a number is out of range.

    Example:
        >>> threshold_cohort(50, math.exp(-0.64)).inverse_size  # a little more than 1 / (50 * 0.527)
        0.0386...
    """
    if not 0 < probability <= 1:
        raise ValueError(f"probability={probability}; allowed: above 0, at most 1")
    sizes = np.arange(1, num_clients + 1)
    if probability == 1:
        weights = (sizes == num_clients).astype(float)
    else:
        choices = [
            math.lgamma(num_clients + 1) - math.lgamma(size + 1) - math.lgamma(num_clients - size + 1)
            for size in sizes.tolist()
        ]
        logs = choices + sizes * math.log(probability) + (num_clients - sizes) * math.log1p(-probability)
        weights = np.exp(logs)
    active = float(weights.sum())
    weights = weights / active
    each = cohort(num_clients, sizes)
    return Participation(float(weights @ each.inverse_size), float(weights @ each.sampling), smallest, min(active, 1.0))
