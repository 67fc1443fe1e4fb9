"""Bounds on the mean squared gradient norm of FedZO, over the air too: derived ones, term by term.

The displays of the FedZO paper's theorems were not at hand when this was written: what stands here is derived from its
assumptions for the algorithm as (5)-(6) and (13)-(17) describe it, and is NOT the paper's theorems. The rates in the
paper's text follow where each sample has directions of its own; with shared ones b2 stands where the text has b1 b2.

All bounds are of (1/T) sum_{t<T} E ||grad f(x^t)||^2.
"""

from typing import Any, NamedTuple

import jax
import jax.core
import numpy as np

from zofed.theory.problem import Constants, Participation, Setting, cohort, in_one_precision, minimum, numerics

__all__ = ["Bound", "Moments", "Terms", "fedzo", "fedzo_aircomp", "fedzo_full", "moments", "ratio"]


class Terms(NamedTuple):
    """What a bound adds up; 0 where a bound has no such term.

    Attributes:
        initial_gap: f(x^0) - f_*, divided by the length of the run.
        heterogeneity: random directions along gradients of clients that differ.
        sampling: who takes part is random.
        drift: local steps of clients that differ.
        noise: samples are random.
        smoothing: finite differences; all that mu multiplies.
        channel: noise of the link.
    """

    initial_gap: Any
    heterogeneity: Any
    sampling: Any
    drift: Any
    noise: Any
    smoothing: Any
    channel: Any


class Bound(NamedTuple):
    """A bound and what it asks of the learning rate.

    Attributes:
        terms: the parts of the bound.
        conditions: by name, the largest learning rate that each condition allows; infinity where it asks nothing.
        learning_rate: the one in use.
    """

    terms: Terms
    conditions: dict[str, Any]
    learning_rate: Any

    @property
    def total(self) -> Any:
        """The bound, where the conditions hold."""
        return sum(self.terms)

    @property
    def margins(self) -> dict[str, Any]:
        """By condition, the allowed learning rate over that in use: below 1 it is violated."""
        return {name: allowed / self.learning_rate for name, allowed in self.conditions.items()}

    @property
    def largest_learning_rate(self) -> Any:
        """The largest one that meets all conditions."""
        return minimum(*self.conditions.values())

    @property
    def holds(self) -> Any:
        """Whether the learning rate meets all conditions."""
        return self.learning_rate <= self.largest_learning_rate

    def binding(self) -> str:
        """The condition with the smallest margin; of concrete scalars only."""
        return min(self.conditions, key=lambda name: float(self.conditions[name]))


class Moments(NamedTuple):
    """E ||e - grad f_i^mu(x)||^2 <= slope ||grad f_i(x)||^2 + noise + smoothing, of the estimator e of one step.

    `slope` is A, and `noise` + `smoothing` is B.
    """

    slope: Any
    noise: Any
    smoothing: Any


def ratio(numerator: Any, denominator: Any) -> Any:
    """numerator / denominator, infinity where the denominator is 0."""
    xp = numerics(denominator)
    positive = denominator > 0
    return xp.where(positive, numerator / xp.where(positive, denominator, 1.0), xp.inf)


def moments(constants: Constants, setting: Setting, per_sample: bool = False) -> Moments:
    """The second moment of the mini-batch estimator with directions on the unit sphere (status: derived).

    With c = c_g, s = sigma_g^2, and q = b2 independent directions if they are shared by the batch, b1 b2 if not,

        shared:      A = (2 d / b2)(1 + (c - 1) / b1) + 2 c / b1,  B = (2 d / b2) s / b1 + 2 s / b1 + B_mu
        per sample:  A = 2 c d / (b1 b2) + 2 c / b1,               B = 2 d s / (b1 b2) + 2 s / b1 + B_mu
        B_mu = mu^2 L^2 (d^2 / (2 q) + 2 / b1).

    So with shared directions, which are those of the algorithm, b1 does not divide the variance of the directions.
    Forward and central differences have the same bound; for directions of norm sqrt(d) put mu sqrt(d) for mu.

    Args:
        constants: of the problem.
        setting: of the run.
        per_sample: whether each sample of a batch has directions of its own.

    Example:
        >>> setting = Setting(3072, 10, 10, 100, 5, batch_size=25, num_directions=20, learning_rate=1e-3, smoothing=0)
        >>> [float(moments(Constants(1.0, 1.0), setting, own).slope.round(2)) for own in (False, True)]
        [307.28, 12.37]
    """
    constants, setting = in_one_precision(constants, setting)
    return _moments(constants, setting, per_sample)


def _moments(constants: Constants, setting: Setting, per_sample: bool) -> Moments:
    d, batch = setting.dim, setting.batch_size
    independent = setting.num_directions * batch if per_sample else setting.num_directions
    growth, noise = constants.gradient_growth, constants.gradient_noise
    if per_sample:
        slope, spread = 2 * growth * d / independent, 2 * d * noise / independent
    else:
        slope = 2 * d / independent * (1 + (growth - 1) / batch)
        spread = 2 * d / independent * noise / batch
    bias = (setting.smoothing * constants.smoothness) ** 2
    return Moments(
        slope + 2 * growth / batch,
        spread + 2 * noise / batch,
        bias * (d**2 / (2 * independent) + 2 / batch),
    )


def fedzo_full(constants: Constants, setting: Setting, per_sample: bool = False) -> Bound:
    """FedZO with all clients in every round (status: derived, not the paper's Theorem 1).

    With A and B of `moments`, if eta is at most each of N / (16 A L (1 + c_h)), 1 / (2 L H) and
    1 / (L sqrt(128 (H - 1)(A + H)(1 + c_h))),

        mean <= 4 (f(x^0) - f_*) / (eta H T) + (4 L eta / N)(2 A sigma_h^2 + B)
                + 64 eta^2 L^2 (H - 1)(A + H) sigma_h^2 + 16 eta^2 L^2 (H - 1) B + (25/6) mu^2 L^2.

    Args:
        constants: of the problem.
        setting: of the run; `cohort_size` is not looked at.
        per_sample: whether each sample of a batch has directions of its own.

    Raises:
        ValueError: a concrete number is out of range.

    Example:
        >>> setting = Setting(100, 10, 10, 1000, 5, 5, 20, learning_rate=1e-3, smoothing=1e-3)
        >>> bound = fedzo_full(Constants(smoothness=1.0, gap=5.0, dissimilarity=2.0), setting)
        >>> round(float(bound.terms.initial_gap), 3), bool(bound.holds), bound.binding()
        (4.0, True, 'drift')
    """
    constants, setting = in_one_precision(constants, setting)
    L, H, eta = constants.smoothness, setting.local_steps, setting.learning_rate
    moment = _moments(constants, setting, per_sample)
    growth = 1 + constants.dissimilarity_growth
    everyone = cohort(setting.num_clients, setting.num_clients)
    bias = 25 / 6 * (setting.smoothing * L) ** 2
    conditions = {
        "estimator": setting.num_clients / (16 * moment.slope * L * growth),
        "drift": _drift_condition(128, moment, constants, setting),
        "local steps": 1 / (2 * L * H),
    }
    return Bound(_terms(constants, setting, moment, everyone, bias), conditions, eta)


def fedzo(
    constants: Constants, setting: Setting, per_sample: bool = False, participation: Participation | None = None
) -> Bound:
    """FedZO with M of N clients in a round (status: derived, not the paper's Theorem 2).

    With A and B of `moments` and rho = (N - M) / (M (N - 1)), if eta is at most each of M / (24 A L (1 + c_h)),
    1 / (24 L H rho c_h), 1 / (L sqrt(192 (H - 1)(A + H)(1 + c_h))) and 1 / (8 L H),

        mean <= 4 (f(x^0) - f_*) / (eta H T) + (4 L eta / M)(2 A sigma_h^2 + B) + 8 L eta H rho sigma_h^2
                + 64 eta^2 L^2 (H - 1)(A + H) sigma_h^2 + 16 eta^2 L^2 (H - 1) B
                + 4 mu^2 L^2 (1 + 1/36 + 4 L eta H rho).

    Args:
        constants: of the problem.
        setting: of the run.
        per_sample: whether each sample of a batch has directions of its own.
        participation: the law of the cohort's size where it is random; default `cohort_size` clients.

    Raises:
        ValueError: a concrete number is out of range.
    """
    return fedzo_aircomp(constants, setting, np.inf, per_sample, participation)


def fedzo_aircomp(
    constants: Constants,
    setting: Setting,
    receive_snr: Any,
    per_sample: bool = False,
    participation: Participation | None = None,
) -> Bound:
    """FedZO over the air (status: derived, not the paper's Theorem 3).

    The bound of `fedzo` with, in the condition that A is in and in the term (4 L eta / M)(...),

        A + A / gamma + 2 H / gamma  in the place of A,   B + B / gamma + 2 H mu^2 L^2 / gamma  in that of B.

    gamma to infinity gives `fedzo`. The noise is counted whole, as `zofed.aggregation.aircomp(noise="full")` adds it.

    Args:
        constants: of the problem.
        setting: of the run; without `participation`, `cohort_size` is the number of participants of every round.
        receive_snr: gamma = snr h_min^2, linear; may be infinite.
        per_sample: whether each sample of a batch has directions of its own.
        participation: the law of the cohort's size, `zofed.theory.threshold_cohort(...)`.

    Raises:
        ValueError: a concrete number is out of range.
    """
    if not isinstance(receive_snr, jax.core.Tracer) and not np.all(np.asarray(receive_snr) > 0):
        raise ValueError(f"receive_snr={receive_snr}; allowed: a number > 0, or inf")
    link = _Link(1 / receive_snr if isinstance(receive_snr, jax.Array) else 1 / np.float64(receive_snr))
    constants, setting, link = in_one_precision(constants, setting, link)
    inverse_snr = link.inverse_snr
    L, H, eta = constants.smoothness, setting.local_steps, setting.learning_rate
    who = cohort(setting.num_clients, setting.cohort_size) if participation is None else participation
    moment = _moments(constants, setting, per_sample)
    growth, mu_L = 1 + constants.dissimilarity_growth, setting.smoothing * L
    more = Moments(
        (moment.slope + 2 * H) * inverse_snr,
        moment.noise * inverse_snr,
        (moment.smoothing + 2 * H * mu_L**2) * inverse_snr,
    )
    bias = 4 * mu_L**2 * (1 + 1 / 36 + 4 * L * eta * H * who.sampling)
    terms = _terms(constants, setting, moment, who, bias)
    per_client = 4 * L * eta * who.inverse_size
    channel = per_client * (2 * more.slope * constants.dissimilarity + more.noise + more.smoothing)
    conditions = {
        "estimator": who.smallest / (24 * (moment.slope + more.slope) * L * growth),
        "sampling": ratio(1.0, 24 * L * H * who.sampling * constants.dissimilarity_growth),
        "drift": _drift_condition(192, moment, constants, setting),
        "local steps": 1 / (8 * L * H),
    }
    return Bound(terms._replace(channel=channel), conditions, eta)


class _Link(NamedTuple):
    inverse_snr: Any


def _drift_condition(factor: float, moment: Moments, constants: Constants, setting: Setting) -> Any:
    steps, growth = setting.local_steps, 1 + constants.dissimilarity_growth
    return ratio(1.0, constants.smoothness * (factor * (steps - 1) * (moment.slope + steps) * growth) ** 0.5)


def _terms(constants: Constants, setting: Setting, moment: Moments, who: Participation, bias: Any) -> Terms:
    """What all bounds of FedZO share; `bias` is the rest of the smoothing term."""
    L, H, eta = constants.smoothness, setting.local_steps, setting.learning_rate
    dissimilarity = constants.dissimilarity
    per_client, per_run = 4 * L * eta * who.inverse_size, (eta * L) ** 2 * (H - 1)
    from_estimates = per_client + 16 * per_run
    return Terms(
        initial_gap=4 * constants.gap / (eta * H * setting.num_rounds * who.active),
        heterogeneity=per_client * 2 * moment.slope * dissimilarity,
        sampling=8 * L * eta * H * who.sampling * dissimilarity,
        drift=64 * per_run * (moment.slope + H) * dissimilarity,
        noise=from_estimates * moment.noise,
        smoothing=from_estimates * moment.smoothing + bias,
        channel=0.0 * eta,
    )
