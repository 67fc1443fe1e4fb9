"""What the bounds prescribe: learning rate, smoothing, local steps, receive SNR, and rounds for an accuracy."""

import math
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from zofed import checks
from zofed.theory.bounds import Bound, moments
from zofed.theory.problem import Constants, Setting, minimum, numerics

__all__ = [
    "Rate",
    "balancing_smoothing",
    "largest_local_steps",
    "largest_local_steps_in_text",
    "learning_rate",
    "rate",
    "rounds_for",
    "smallest_receive_snr",
    "smoothing",
]

BoundOf = Callable[[Constants, Setting], Bound]
"""For instance `zofed.theory.fedzo`; others with `functools.partial`."""


class Rate(NamedTuple):
    """A rate O(value) and the settings that give it, with constants of 1."""

    value: Any
    learning_rate: Any
    smoothing: Any


def rate(setting: Setting, per_sample: bool = False) -> Rate:
    """The rate of FedZO and its settings (status: derived; with b1 b2 for b2, that of the paper's corollaries).

    With q = b2 directions shared by the batch, or q = b1 b2 where each sample has its own, and q <= d,

        eta = sqrt(M q / (d H T)),  mu = min{ d^(-1/2), (d / (M q H T))^(1/4) },  rate sqrt(d / (M q H T)),

    as long as H is at most `largest_local_steps`.

    Raises:
        ValueError: q > d.

    Example:
        >>> rate(Setting(100, 10, 10, 1000, 1, 25, 10, learning_rate=1.0, smoothing=1.0)).learning_rate
        0.0316...
    """
    d, M, q = setting.dim, setting.cohort_size, _independent(setting, per_sample)
    work = M * q * setting.local_steps * setting.num_rounds
    value = (d / work) ** 0.5
    return Rate(value, value * M * q / d, minimum(d**-0.5, value**0.5))


def _independent(setting: Setting, per_sample: bool) -> Any:
    """q. Beyond d a step's error is that of the gradient, not of the directions, and the orders are others."""
    number = setting.num_directions * (setting.batch_size if per_sample else 1)
    if numerics(number, setting.dim) is np and np.any(np.asarray(number) > np.asarray(setting.dim)):
        name = "batch_size * num_directions" if per_sample else "num_directions"
        raise ValueError(f"{name}={number}; allowed: at most dim={setting.dim}, as the rate is that of q <= d")
    return number


def largest_local_steps(setting: Setting, per_sample: bool = False) -> Any:
    """How many local steps keep the rate of `rate`: an order, with constants of 1 (status: derived).

    H <= min{ (d / (M q)) T^(1/3), d T / (q M^3), d T / (M q), d / q }, q as in `rate`; the last one, which comes from
    the sampling of clients, falls away where all take part.

    Raises:
        ValueError: q > d.
    """
    d, M, T, q = setting.dim, setting.cohort_size, setting.num_rounds, _independent(setting, per_sample)
    orders = (d / (M * q) * T ** (1 / 3), d * T / (q * M**3), d * T / (M * q))
    some = setting.num_clients > M
    return minimum(*orders, numerics(some, d, q).where(some, d / q, np.inf))


def largest_local_steps_in_text(setting: Setting) -> Any:
    """The same as the text of the FedZO paper states it, below its Corollary 2, with constants of 1.

    H <= min{ (d T)^(1/3) (b1 b2)^(-1/3) / M, T / M, d / (b1 b2) }.

    Example:
        >>> setting = Setting(7850, 50, 50, 100, 5, 25, 20, learning_rate=1e-3, smoothing=1e-3)
        >>> float(largest_local_steps_in_text(setting))
        0.2324...
    """
    d, M, T = setting.dim, setting.cohort_size, setting.num_rounds
    directions = setting.batch_size * setting.num_directions
    return minimum((d * T / directions) ** (1 / 3) / M, T / M, d / directions)


def learning_rate(bound_of: BoundOf, constants: Constants, setting: Setting) -> Any:
    """The learning rate, of those that meet the conditions, at which the bound is smallest.

    All bounds here are sums of powers of the rate, hence convex in its logarithm: a search by thirds finds the minimum.
    The setting's own rate is not looked at.

    Example:
        >>> from zofed.theory import fedzo
        >>> constants = Constants(smoothness=1.0, gap=5.0, gradient_noise=100.0)
        >>> setting = Setting(10, 5, 5, 10**6, 1, 1, 10, learning_rate=1.0, smoothing=0.0)
        >>> round(float(learning_rate(fedzo, constants, setting)), 6)  # sqrt(4 D / T / (4 L B / N)), B = 400
        0.00025
    """

    def total(log_rate: Any) -> Any:
        rate = numerics(log_rate).exp(log_rate)
        return bound_of(constants, setting._replace(learning_rate=rate)).total

    def narrow(ends: tuple[Any, Any]) -> tuple[Any, Any]:
        low, high = ends
        xp = numerics(high)
        left, right = low + (high - low) / 3, high - (high - low) / 3
        falls = total(left) > total(right)
        return xp.where(falls, left, low), xp.where(falls, high, right)

    largest = bound_of(constants, setting._replace(learning_rate=1.0)).largest_learning_rate
    if isinstance(largest, jax.Array):
        high = jnp.log(largest)
        ends = jax.lax.fori_loop(0, 60, lambda _, ends: narrow(ends), (high - _DECADES, high))
        return jnp.exp(ends[1])
    ends = (np.log(largest) - _DECADES, np.log(largest))
    for _ in range(100):
        ends = narrow(ends)
    return np.exp(ends[1])


_DECADES = 12 * math.log(10)
"""How far below the largest allowed rate the best one is looked for."""


def smoothing(bound_of: BoundOf, constants: Constants, setting: Setting, share: float = 0.1) -> Any:
    """The smoothing whose terms are `share` of all others of the bound; those terms are proportional to its square.

    Example:
        >>> from zofed.theory import fedzo_full
        >>> constants = Constants(smoothness=1.0, gap=5.0)
        >>> setting = Setting(100, 10, 10, 1000, 1, 1, 20, learning_rate=1e-3, smoothing=1.0)
        >>> mu = smoothing(fedzo_full, constants, setting)
        >>> terms = fedzo_full(constants, setting._replace(smoothing=mu)).terms
        >>> round(float(terms.smoothing / terms.initial_gap), 6)
        0.1
    """
    checks.positive("share", share)
    without = bound_of(constants, setting._replace(smoothing=0.0)).total
    alone = bound_of(constants, setting._replace(smoothing=1.0)).total - without
    return (share * without / alone) ** 0.5


def balancing_smoothing(loss: Any, smoothness: Any, precision: float = 2.0**-23) -> Any:
    """The smoothing at which round-off of a finite difference along a unit vector is as large as its smoothing error.

    Losses near `loss` are held to a relative `precision`, so a difference of two of them, over mu, is off by about
    precision |f| / mu; and by at most L mu / 2 because of curvature. They are equal at sqrt(2 precision |f| / L). Below
    that, a smaller smoothing makes the estimator worse.

    Args:
        loss: f(x), of the size of the losses that are subtracted.
        smoothness: L.
        precision: of the losses; float32 by default.

    Example:
        >>> float(balancing_smoothing(loss=37.0, smoothness=1.0))
        0.00297...
    """
    xp = numerics(loss, smoothness)
    return xp.sqrt(2 * precision * xp.abs(loss) / smoothness)


def smallest_receive_snr(constants: Constants, setting: Setting, factor: float = 2.0, per_sample: bool = False) -> Any:
    """The smallest gamma = snr h_min^2 that keeps the noise-free rate: the link multiplies A and B by `factor` at most.

    By `zofed.theory.fedzo_aircomp` it multiplies A by 1 + (1 + 2 H / A) / gamma, and B likewise. Its order is
    1 + H b2 / d: a constant receive SNR is enough while H <= d / b2 (status: derived).

    Raises:
        ValueError: factor is not above 1.
    """
    if not factor > 1:
        raise ValueError(f"factor={factor}; allowed: a number > 1")
    moment = moments(constants, setting, per_sample)
    steps, mu_L = setting.local_steps, setting.smoothing * constants.smoothness
    xp = numerics(moment.slope)
    rest = moment.noise + moment.smoothing
    of_rest = xp.where(rest > 0, 2 * steps * mu_L**2 / xp.where(rest > 0, rest, 1.0), 0.0)
    return (1 + xp.maximum(2 * steps / moment.slope, of_rest)) / (factor - 1)


def rounds_for(bound_of: BoundOf, constants: Constants, setting: Setting, accuracy: float) -> float:
    """The smallest number of rounds after which the bound, with its best learning rate, is `accuracy`.

    The number of rounds and the learning rate of `setting` are not looked at. Infinity where the smoothing alone makes
    more than the accuracy. On the host, in float64.

    Example:
        >>> from zofed.theory import fedzo
        >>> setting = Setting(10, 5, 5, 1, 1, 1, 10, learning_rate=1.0, smoothing=0.0)
        >>> rounds_for(fedzo, Constants(smoothness=1.0, gap=5.0), setting, accuracy=0.1)  # 4 D / (0.1 eta), eta = 5/96
        3840.0
    """
    checks.positive("accuracy", accuracy)

    def reached(log_rounds: float) -> bool:
        longer = setting._replace(num_rounds=math.exp(log_rounds))
        best = learning_rate(bound_of, constants, longer)
        return bool(bound_of(constants, longer._replace(learning_rate=best)).total <= accuracy * (1 + 1e-9))

    low, high = 0.0, math.log(1e18)
    if not reached(high):
        return math.inf
    if reached(low):
        return 1.0
    for _ in range(60):
        middle = (low + high) / 2
        low, high = (low, middle) if reached(middle) else (middle, high)
    return float(math.ceil(math.exp(high) * (1 - 1e-9)))
