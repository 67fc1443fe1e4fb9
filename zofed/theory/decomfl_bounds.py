"""Bounds on the mean squared gradient norm of DeComFL: as printed in its paper, and corrected.

All bounds are of (1/R) sum_{r<R} E ||grad f(x_r)||^2. DeComFL assumes c_g = 1 and c_h = 0 (`zofed.theory.Constants`);
its sigma^2 is the variance of the gradient of a whole mini-batch, sigma_g^2 / b1 here. Numbers of equations and lemmas
are those of arXiv 2405.15861.
"""

from typing import Any

import numpy as np

from zofed.theory.bounds import Bound, Terms, ratio
from zofed.theory.problem import Constants, Setting, cohort, in_one_precision

__all__ = ["decomfl", "decomfl_low_rank", "decomfl_low_rank_printed", "decomfl_printed"]


def _prepared(constants: Constants, setting: Setting) -> tuple[Constants, Setting]:
    for name, needed in (("gradient_growth", 1.0), ("dissimilarity_growth", 0.0)):
        value = getattr(constants, name)
        if isinstance(value, int | float | np.ndarray | np.generic) and np.any(np.asarray(value) != needed):
            raise ValueError(f"{name}={value}; allowed: {needed}, which DeComFL assumes")
    return in_one_precision(constants, setting)


def decomfl_printed(constants: Constants, setting: Setting) -> Bound:
    """Theorem 1 of DeComFL, Gaussian directions (status: printed; false where P is much larger than d).

    If eta <= min{ m P / (24 L (d + 4)), 2 P / (m K L (d + P + 4)), 1 / (m K^2 L),
                   m P (d + 3)^3 / (2 L (3 m P K (d + 3)^3 + (d + 6)^3)) },

        mean <= 4 D / (K R eta) + (72 K L eta / m + 24 (d + 4) L eta / (m P)) sigma_G^2
                + 16 L (d + 4) eta / (m P) sigma^2 + 2 mu^2 L^2 (d + 3)^3.

    All P directions of a step see one mini-batch, so sigma^2 does not shrink with P as Lemma 3 has it; and the first
    condition should not contain m, because the clients share the directions: see `decomfl`.

    Raises:
        ValueError: a concrete number is out of range.

    Example:
        >>> one = Setting(1, 1, 1, 4000, 1, 1, num_directions=1000, learning_rate=1e-3, smoothing=0)
        >>> noisy = Constants(1.0, 0.0, gradient_noise=1.0)
        >>> float(decomfl(noisy, one).terms.noise / decomfl_printed(noisy, one).terms.noise)
        50.5
    """
    constants, setting = _prepared(constants, setting)
    L, D, d, K, P = constants.smoothness, constants.gap, setting.dim, setting.local_steps, setting.num_directions
    m, eta, mu = setting.cohort_size, setting.learning_rate, setting.smoothing
    noise, third = constants.gradient_noise / setting.batch_size, (d + 3) ** 3
    terms = Terms(
        initial_gap=4 * D / (K * setting.num_rounds * eta),
        heterogeneity=24 * (d + 4) * L * eta / (m * P) * constants.dissimilarity,
        sampling=72 * K * L * eta / m * constants.dissimilarity,
        drift=0.0 * eta,
        noise=16 * L * (d + 4) * eta / (m * P) * noise,
        smoothing=2 * (mu * L) ** 2 * third,
        channel=0.0 * eta,
    )
    conditions = {
        "estimator": m * P / (24 * L * (d + 4)),
        "drift": 2 * P / (m * K * L * (d + P + 4)),
        "local steps": 1 / (m * K**2 * L),
        "smoothing": m * P * third / (2 * L * (3 * m * P * K * third + (d + 6) ** 3)),
    }
    return Bound(terms, conditions, eta)


def decomfl(constants: Constants, setting: Setting) -> Bound:
    """Theorem 1 corrected, Gaussian directions (status: derived).

    With a = 2 (d + 4) / P, rho = (M - m) / (m (M - 1)) and B = (1 + a) sigma^2 + mu^2 L^2 (d + 6)^3 / (2 P), if
    eta <= min{ P / (32 L (d + 4)), 1 / (L sqrt(128 (K - 1)(a + K))), 1 / (8 L K) },

        mean <= 4 D / (eta K R) + 4 L eta ((1 + a) sigma^2 / m + 2 a rho sigma_G^2 + 2 K rho sigma_G^2)
                + 64 eta^2 L^2 (K - 1)(a + K) sigma_G^2 + 16 eta^2 L^2 (K - 1) B
                + mu^2 L^2 (4 d (1 + 1/24 + 4 L eta K rho) + 2 L eta (d + 6)^3 / P).

    sigma^2 keeps a part that no number of directions removes, for they share the mini-batch; the directions' own
    variance is not divided by m, for the clients share them.

    Raises:
        ValueError: a concrete number is out of range.
    """
    constants, setting = _prepared(constants, setting)
    L, D, d, K, P = constants.smoothness, constants.gap, setting.dim, setting.local_steps, setting.num_directions
    m, eta, mu = setting.cohort_size, setting.learning_rate, setting.smoothing
    rho, spread = cohort(setting.num_clients, m).sampling, 2 * (d + 4) / P
    noise, per_run = (1 + spread) * constants.gradient_noise / setting.batch_size, (eta * L) ** 2 * (K - 1)
    curvature = (mu * L) ** 2 * (d + 6) ** 3 / (2 * P)
    bias = (mu * L) ** 2 * 4 * d * (1 + 1 / 24 + 4 * L * eta * K * rho)
    terms = Terms(
        initial_gap=4 * D / (eta * K * setting.num_rounds),
        heterogeneity=4 * L * eta * 2 * spread * rho * constants.dissimilarity,
        sampling=4 * L * eta * 2 * K * rho * constants.dissimilarity,
        drift=64 * per_run * (spread + K) * constants.dissimilarity,
        noise=4 * L * eta * noise / m + 16 * per_run * noise,
        smoothing=bias + 4 * L * eta * curvature + 16 * per_run * curvature,
        channel=0.0 * eta,
    )
    conditions = {
        "estimator": 1 / (16 * spread * L),
        "drift": ratio(1.0, L * (128 * (K - 1) * (spread + K)) ** 0.5),
        "local steps": 1 / (8 * L * K),
    }
    return Bound(terms, conditions, eta)


def decomfl_low_rank_printed(constants: Constants, setting: Setting) -> Bound:
    """Theorem 2 of DeComFL: K = 1, directions on a sphere of radius sqrt(d), low effective rank (status: printed).

    With q = 1 + (kappa d + d - 2) / (P (d + 2)), if eta <= 1 / (4 L q),

        mean <= 4 D / (R eta) + (2 L eta q / m)(sigma_G^2 + sigma^2) + mu^2 L^2 (d + 3)^3 / 2 + 4 mu^2 L^4 d^3 eta.

    The proof gives 4 for the 2, and L^3 for the L^4, whose dimension is wrong: see `decomfl_low_rank`.

    Raises:
        ValueError: local_steps is not 1, or a concrete number is out of range.
    """
    constants, setting = _low_rank(constants, setting)
    L, D, d, eta, mu = (
        constants.smoothness,
        constants.gap,
        setting.dim,
        setting.learning_rate,
        setting.smoothing,
    )
    q = _low_rank_factor(constants, setting)
    per_client = 2 * L * eta * q / setting.cohort_size
    terms = Terms(
        initial_gap=4 * D / (setting.num_rounds * eta),
        heterogeneity=0.0 * eta,
        sampling=per_client * constants.dissimilarity,
        drift=0.0 * eta,
        noise=per_client * constants.gradient_noise / setting.batch_size,
        smoothing=(mu * L) ** 2 * (d + 3) ** 3 / 2 + 4 * mu**2 * L**4 * d**3 * eta,
        channel=0.0 * eta,
    )
    return Bound(terms, {"estimator": 1 / (4 * L * q)}, eta)


def decomfl_low_rank(constants: Constants, setting: Setting, directions: str = "sphere_sqrt_dim") -> Bound:
    """Theorem 2 corrected: K = 1, the Hessian of f bounded by a matrix of effective rank kappa (status: derived).

    With rho = (M - m) / (m (M - 1)), if eta <= 1 / (4 L q),

        mean <= 4 D / (eta R) + 4 eta L q (rho sigma_G^2 + sigma^2 / m) + 2 mu^2 L^2 d + 4 eta mu^2 L^3 E|z|^6

    where q = 1 + (kappa d + d - 2) / (P (d + 2)) and E|z|^6 = d^3 on the sphere of radius sqrt(d), and
    q = 1 + (kappa + 1) / P and E|z|^6 = d (d + 2)(d + 4) for Gaussian directions, in which case the matrix must bound
    the Hessian everywhere.

    Args:
        constants: of the problem, `effective_rank` among them.
        setting: of the run.
        directions: "sphere_sqrt_dim" or "gaussian".

    Raises:
        ValueError: local_steps is not 1, a concrete number is out of range, or directions are others.

    Example:
        >>> run = Setting(10**6, 10, 10, 1000, 1, 1, num_directions=10, learning_rate=1e-2, smoothing=1e-6)
        >>> bound = decomfl_low_rank(Constants(1.0, 5.0, effective_rank=10.0), run)
        >>> round(float(bound.largest_learning_rate), 3)  # 1 / (4 L (1 + (kappa + 1) / P)), whatever the dimension
        0.119
    """
    constants, setting = _low_rank(constants, setting)
    L, d, eta, mu = constants.smoothness, setting.dim, setting.learning_rate, setting.smoothing
    if directions == "gaussian":
        q, sixth_moment = 1 + (constants.effective_rank + 1) / setting.num_directions, d * (d + 2) * (d + 4)
    elif directions == "sphere_sqrt_dim":
        q, sixth_moment = _low_rank_factor(constants, setting), d**3
    else:
        raise ValueError(f"directions={directions!r}; allowed: 'gaussian', 'sphere_sqrt_dim'")
    rho = cohort(setting.num_clients, setting.cohort_size).sampling
    terms = Terms(
        initial_gap=4 * constants.gap / (eta * setting.num_rounds),
        heterogeneity=0.0 * eta,
        sampling=4 * eta * L * q * rho * constants.dissimilarity,
        drift=0.0 * eta,
        noise=4 * eta * L * q * constants.gradient_noise / setting.batch_size / setting.cohort_size,
        smoothing=2 * (mu * L) ** 2 * d + 4 * eta * mu**2 * L**3 * sixth_moment,
        channel=0.0 * eta,
    )
    return Bound(terms, {"estimator": 1 / (4 * L * q)}, eta)


def _low_rank(constants: Constants, setting: Setting) -> tuple[Constants, Setting]:
    rank, steps = constants.effective_rank, setting.local_steps
    if isinstance(steps, int | float | np.ndarray | np.generic) and np.any(np.asarray(steps) != 1):
        raise ValueError(f"local_steps={steps}; allowed: 1, which the bounds of low effective rank assume")
    if isinstance(rank, int | float | np.ndarray | np.generic) and not np.all(np.asarray(rank) >= 0):
        raise ValueError(f"effective_rank={rank}; allowed: a number >= 0")
    return _prepared(constants, setting)


def _low_rank_factor(constants: Constants, setting: Setting) -> Any:
    d = setting.dim
    return 1 + (constants.effective_rank * d + d - 2) / (setting.num_directions * (d + 2))
