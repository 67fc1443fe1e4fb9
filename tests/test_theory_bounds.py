"""The bounds against other ways to write them: by powers of the learning rate, and from the lemmas of their proofs."""

import math
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from zofed import theory
from zofed.theory import Constants, Setting

numbers = st.floats(0.05, 20.0)
constants = st.tuples(numbers, numbers, numbers, st.floats(1.0, 5.0), numbers, st.floats(0.0, 2.0)).map(
    lambda values: Constants(*values)
)
plain = st.tuples(numbers, numbers, numbers, numbers, st.floats(1.0, 50.0)).map(
    lambda values: Constants(*values[:3], dissimilarity=values[3], effective_rank=values[4])
)


@st.composite
def settings(draw: Any, steps: Any = None) -> Setting:
    num_clients = draw(st.integers(1, 30))
    counts = [draw(st.integers(1, 50)) for _ in range(4)]
    return Setting(
        dim=counts[0],
        num_clients=num_clients,
        cohort_size=draw(st.integers(1, num_clients)),
        num_rounds=draw(st.integers(1, 500)),
        local_steps=draw(st.integers(1, 20)) if steps is None else steps,
        batch_size=counts[1],
        num_directions=counts[2],
        learning_rate=draw(st.floats(1e-5, 1.0)),
        smoothing=draw(st.floats(0.0, 1.0)),
    )


def second_moment(c: Constants, s: Setting, per_sample: bool) -> tuple[float, float]:
    """A and B of Lemma D0, from its proof: one direction's moment over their number, plus the data's variance."""
    growth, noise, mu_l = c.gradient_growth, c.gradient_noise, s.smoothing * c.smoothness
    # E ||grad F^||^2 of what one direction sees: one sample, or the mean of the batch.
    seen = 1 if per_sample else s.batch_size
    slope, level = 1 + (growth - 1) / seen, noise / seen
    number = s.num_directions * (s.batch_size if per_sample else 1)
    a = 2 * s.dim * slope / number + 2 * growth / s.batch_size
    b = (2 * s.dim * level + (s.dim * mu_l) ** 2 / 2) / number + (2 * noise + 2 * mu_l**2) / s.batch_size
    return a, b


def drift(c: Constants, s: Setting, a: float, b: float, gradient: float) -> float:
    """Lemma D2: the summed squared distance of the local models from the global one."""
    eta, h, away = s.learning_rate, s.local_steps, (1 + c.dissimilarity_growth) * gradient + c.dissimilarity
    mu_l = s.smoothing * c.smoothness
    return eta**2 * h * (h - 1) * (8 * (a + h) * away + 2 * b + 8 / 3 * h * mu_l**2)


def increase(c: Constants, s: Setting, a: float, b: float, rho: float, per_client: float, gradient: float) -> float:
    """Lemma D1 with the sampling of clients: what a round adds to f, but for -(eta H / 2) ||grad f||^2."""
    L, eta, h, mu_l = c.smoothness, s.learning_rate, s.local_steps, s.smoothing * c.smoothness
    delta = drift(c, s, a, b, gradient)
    mean_square = 2 * L**2 * delta + 2 * h * ((1 + c.dissimilarity_growth) * gradient + c.dissimilarity)
    apart = c.dissimilarity_growth * gradient + c.dissimilarity
    sampled = rho * (2 * h**2 * apart + 4 * L**2 * h * delta + 4 * h**2 * mu_l**2)
    return (
        eta * L**2 * delta
        + eta * h * mu_l**2
        + L * eta**2 * per_client * (a * mean_square + h * b)
        + L * eta**2 * sampled
    )


def from_lemmas(c: Constants, s: Setting, per_sample: bool, rho: float, per_client: float) -> tuple[float, float]:
    """4 / (eta H) times what a round adds; and times the part of it that multiplies ||grad f||^2, at most 1."""
    a, b = second_moment(c, s, per_sample)
    level = increase(c, s, a, b, rho, per_client, 0.0)
    slope = increase(c, s, a, b, rho, per_client, 1.0) - level
    scale = 4 / (s.learning_rate * s.local_steps)
    return scale * level + scale * c.gap / s.num_rounds, scale * slope


@given(constants, settings(), st.booleans(), st.floats(0.01, 1.0))
def test_the_lemmas_give_the_bounds_under_their_conditions(c: Constants, s: Setting, own: bool, share: float) -> None:
    full = theory.fedzo_full(c, s, own)
    s = s._replace(learning_rate=share * float(full.largest_learning_rate))
    composed, slope = from_lemmas(c, s, own, 0.0, 1 / s.num_clients)
    assert slope <= 1 + 1e-9
    bound = float(theory.fedzo_full(c, s, own).total)
    assert bound / 2.5 <= composed <= bound * (1 + 1e-9)

    s = s._replace(learning_rate=share * float(theory.fedzo(c, s, own).largest_learning_rate))
    composed, slope = from_lemmas(c, s, own, theory.cohort(s.num_clients, s.cohort_size).sampling, 1 / s.cohort_size)
    assert slope <= 1 + 1e-9
    bound = float(theory.fedzo(c, s, own).total)
    assert bound / 2.5 <= composed <= bound * (1 + 1e-9)


@given(constants, settings(), st.booleans(), st.floats(0.01, 100.0))
def test_fedzo_by_powers_of_the_learning_rate(c: Constants, s: Setting, own: bool, gamma: float) -> None:
    a, b = second_moment(c, s, own)
    h, L, m, n, eta = s.local_steps, c.smoothness, s.cohort_size, s.num_clients, s.learning_rate
    rho = 0.0 if n == 1 else (n - m) / (m * (n - 1))
    a_air, b_air = a + (a + 2 * h) / gamma, b + (b + 2 * h * (s.smoothing * L) ** 2) / gamma
    inverse = 4 * c.gap / h / s.num_rounds
    linear = 4 * L / m * (2 * a_air * c.dissimilarity + b_air) + 8 * L * h * rho * (
        c.dissimilarity + 2 * (s.smoothing * L) ** 2
    )
    square = 16 * L**2 * (h - 1) * (4 * (a + h) * c.dissimilarity + b)
    constant = 37 / 9 * (s.smoothing * L) ** 2
    expected = inverse / eta + linear * eta + square * eta**2 + constant
    bound = theory.fedzo_aircomp(c, s, gamma, own)
    assert float(bound.total) == pytest.approx(expected, rel=1e-9)
    growth = 1 + c.dissimilarity_growth
    rates = [m / (24 * a_air * L * growth), 1 / (8 * L * h)]
    if h > 1:
        rates.append(1 / math.sqrt(192 * (h - 1) * (a + h) * growth) / L)
    if rho * c.dissimilarity_growth > 0:
        rates.append(1 / (24 * L * h * rho * c.dissimilarity_growth))
    assert float(bound.largest_learning_rate) == pytest.approx(min(rates), rel=1e-9)
    assert float(min(bound.margins.values())) == pytest.approx(min(rates) / eta, rel=1e-9)
    assert bool(bound.holds) == (eta <= min(rates))


@given(constants, settings(), st.booleans())
def test_limits_of_fedzo(c: Constants, s: Setting, own: bool) -> None:
    bound = theory.fedzo(c, s, own)
    near = theory.fedzo_aircomp(c, s, 1e12, own)
    np.testing.assert_allclose(near.terms, bound.terms, rtol=1e-6, atol=1e-6 * float(bound.total))
    np.testing.assert_allclose(near.largest_learning_rate, bound.largest_learning_rate, rtol=1e-6)
    assert bound.terms.channel == 0
    everyone = theory.fedzo(c, s._replace(cohort_size=s.num_clients), own)
    full = theory.fedzo_full(c, s, own)
    assert everyone.terms.sampling == 0
    assert everyone.terms[:5] == pytest.approx(full.terms[:5])
    one_step = theory.fedzo(c, s._replace(local_steps=1), own)
    assert one_step.terms.drift == 0
    assert np.isinf(one_step.conditions["drift"])
    assert theory.fedzo(c, s._replace(smoothing=0.0), own).terms.smoothing == 0
    one_sample = s._replace(batch_size=1)
    np.testing.assert_allclose(theory.moments(c, one_sample), theory.moments(c, one_sample, True), rtol=1e-12)


def test_a_random_cohort_is_a_mixture_of_fixed_ones() -> None:
    n, q = 6, math.exp(-0.64)
    sizes = np.arange(1, n + 1)
    law = np.array([math.comb(n, size) * q**size * (1 - q) ** (n - size) for size in sizes])
    who = theory.threshold_cohort(n, q)
    assert who.active == pytest.approx(1 - (1 - q) ** n)
    assert who.inverse_size == pytest.approx((law / sizes).sum() / law.sum())
    c, s = Constants(2.0, 3.0, 1.0, 1.5, 0.5, 0.25), Setting(7, n, 1, 50, 4, 3, 5, 1e-3, 0.1)
    each = [theory.fedzo_aircomp(c, s._replace(cohort_size=size), 2.0).terms for size in sizes]
    mixed = theory.fedzo_aircomp(c, s, 2.0, participation=who)
    for name in ("heterogeneity", "sampling", "drift", "noise", "smoothing", "channel"):
        expected = (law * [getattr(terms, name) for terms in each]).sum() / law.sum()
        assert getattr(mixed.terms, name) == pytest.approx(expected)
    assert mixed.terms.initial_gap == pytest.approx(each[0].initial_gap / who.active)
    smallest = theory.fedzo_aircomp(c, s._replace(cohort_size=1), 2.0).conditions["estimator"]
    assert mixed.conditions["estimator"] == pytest.approx(smallest)
    everyone = theory.threshold_cohort(n, 1.0)
    assert (everyone.inverse_size, everyone.sampling, everyone.active) == pytest.approx((1 / n, 0.0, 1.0))


@given(plain, settings())
def test_decomfl_by_powers_of_the_learning_rate(c: Constants, s: Setting) -> None:
    d, p, k, m, n = s.dim, s.num_directions, s.local_steps, s.cohort_size, s.num_clients
    L, eta, mu_l = c.smoothness, s.learning_rate, s.smoothing * c.smoothness
    variance, apart = c.gradient_noise / s.batch_size, c.dissimilarity
    inverse = 4 * c.gap / (k * s.num_rounds * eta)
    printed = (
        inverse
        + L * eta / (m * p) * (72 * k * p * apart + 24 * (d + 4) * apart + 16 * (d + 4) * variance)
        + 2 * mu_l**2 * (d + 3) ** 3
    )
    assert float(theory.decomfl_printed(c, s).total) == pytest.approx(printed, rel=1e-9)
    rates = [
        m * p / (24 * L * (d + 4)),
        2 * p / (m * k * L * (d + p + 4)),
        1 / (m * k**2 * L),
        m * p * (d + 3) ** 3 / (2 * L * (3 * m * p * k * (d + 3) ** 3 + (d + 6) ** 3)),
    ]
    assert float(theory.decomfl_printed(c, s).largest_learning_rate) == pytest.approx(min(rates), rel=1e-9)

    a, rho = 2 * (d + 4) / p, 0.0 if n == 1 else (n - m) / (m * (n - 1))
    b = (1 + a) * variance + mu_l**2 * (d + 6) ** 3 / (2 * p)
    corrected = (
        inverse
        + 4 * L * eta * ((1 + a) * variance / m + 2 * rho * apart * (a + k))
        + 16 * (eta * L) ** 2 * (k - 1) * (4 * (a + k) * apart + b)
        + mu_l**2 * (25 / 6 * d + 16 * d * L * eta * k * rho + 2 * L * eta * (d + 6) ** 3 / p)
    )
    assert float(theory.decomfl(c, s).total) == pytest.approx(corrected, rel=1e-9)
    rates = [p / (32 * L * (d + 4)), 1 / (8 * L * k)]
    rates += [1 / (L * math.sqrt(128 * (k - 1) * (a + k)))] if k > 1 else []
    assert float(theory.decomfl(c, s).largest_learning_rate) == pytest.approx(min(rates), rel=1e-9)


@given(plain, settings(steps=1))
def test_low_effective_rank_by_powers_of_the_learning_rate(c: Constants, s: Setting) -> None:
    d, p, m, n, L, eta = s.dim, s.num_directions, s.cohort_size, s.num_clients, c.smoothness, s.learning_rate
    variance, apart, mu = c.gradient_noise / s.batch_size, c.dissimilarity, s.smoothing
    rho, inverse = 0.0 if n == 1 else (n - m) / (m * (n - 1)), 4 * c.gap / (s.num_rounds * eta)
    sphere = 1 + (c.effective_rank * d + d - 2) / (p * (d + 2))
    for directions, q, moment in (
        ("sphere_sqrt_dim", sphere, d**3),
        ("gaussian", 1 + (c.effective_rank + 1) / p, d * (d + 2) * (d + 4)),
    ):
        expected = inverse + 4 * eta * L * (q * (rho * apart + variance / m) + (mu * L) ** 2 * moment)
        bound = theory.decomfl_low_rank(c, s, directions)
        assert float(bound.total) == pytest.approx(expected + 2 * d * (mu * L) ** 2, rel=1e-9)
        assert float(bound.largest_learning_rate) == pytest.approx(1 / (4 * L * q), rel=1e-9)
    printed = theory.decomfl_low_rank_printed(c, s)
    expected = (
        inverse
        + 2 * L * eta / m * sphere * (apart + variance)
        + (mu * L) ** 2 * ((d + 3) ** 3 / 2 + 4 * L**2 * d**3 * eta)
    )
    assert float(printed.total) == pytest.approx(expected, rel=1e-9)
    assert float(printed.largest_learning_rate) == pytest.approx(1 / (4 * L * sphere), rel=1e-9)


def test_arrays_and_tracers() -> None:
    c = Constants(1.5, 2.0, 0.5, 1.0, 0.25, 0.0, 3.0)
    s = Setting(10, 8, 4, 100, 1, 5, 6, learning_rate=np.array([1e-3, 1e-2]), smoothing=0.1)
    bounds = (
        theory.fedzo,
        theory.fedzo_full,
        theory.decomfl,
        theory.decomfl_printed,
        theory.decomfl_low_rank,
        theory.decomfl_low_rank_printed,
    )
    for bound_of in bounds:
        at_once = bound_of(c, s)
        one_by_one = [bound_of(c, s._replace(learning_rate=rate)) for rate in (1e-3, 1e-2)]
        np.testing.assert_allclose(at_once.total, [bound.total for bound in one_by_one], rtol=1e-12)
        traced = jax.vmap(lambda rate, f=bound_of: f(c, s._replace(learning_rate=rate)))(jnp.array([1e-3, 1e-2]))
        np.testing.assert_allclose(traced.total, at_once.total, rtol=1e-5)
        assert traced.total.dtype == jnp.float32
        assert set(traced.margins) == set(at_once.margins)


def test_the_best_learning_rate_is_on_a_grid_too() -> None:
    c, s = Constants(1.5, 2.0, 0.5, 1.0, 0.25, 0.1), Setting(10, 8, 4, 10**5, 5, 5, 6, 1.0, 0.01)
    best = theory.learning_rate(theory.fedzo, c, s)
    largest = theory.fedzo(c, s).largest_learning_rate
    grid = np.geomspace(1e-6, 1, 4001) * largest
    totals = theory.fedzo(c, s._replace(learning_rate=grid)).total
    assert best == pytest.approx(grid[np.argmin(totals)], rel=1e-2)
    assert best < largest
    short = s._replace(num_rounds=10)  # the gap dominates, and the condition binds
    assert theory.learning_rate(theory.fedzo, c, short) == pytest.approx(largest, rel=1e-6)
    traced = jax.jit(lambda gap: theory.learning_rate(theory.fedzo, c._replace(gap=gap), s))(2.0)
    assert float(traced) == pytest.approx(float(best), rel=0.02)


def test_prescriptions() -> None:
    c, s = Constants(1.5, 2.0, 0.5, 1.0, 0.25, 0.1), Setting(40, 8, 4, 10**4, 5, 5, 6, 1e-4, 0.01)
    rounds = theory.rounds_for(theory.fedzo, c, s, 0.05)
    at = [
        theory.fedzo(c, longer._replace(learning_rate=theory.learning_rate(theory.fedzo, c, longer))).total
        for longer in (s._replace(num_rounds=rounds), s._replace(num_rounds=0.99 * rounds))
    ]
    assert at[0] <= 0.05 * (1 + 1e-6) < at[1]
    assert theory.rounds_for(theory.fedzo, c, s._replace(smoothing=10.0), 0.05) == math.inf

    gamma = theory.smallest_receive_snr(c, s, factor=3.0)
    clean, air = theory.fedzo(c, s), theory.fedzo_aircomp(c, s, gamma)
    inflation = (air.terms.channel + 0.0) / (4 * c.smoothness * s.learning_rate / s.cohort_size)
    a, b = second_moment(c, s, False)
    assert inflation == pytest.approx(2 * (2 * a * c.dissimilarity + b), rel=0.2)
    assert clean.conditions["estimator"] / air.conditions["estimator"] == pytest.approx(3.0)

    mu = theory.smoothing(theory.fedzo, c, s, share=0.5)
    terms = theory.fedzo(c, s._replace(smoothing=mu)).terms
    assert terms.smoothing / (sum(terms) - terms.smoothing) == pytest.approx(0.5)

    rate = theory.rate(s, per_sample=True)
    assert rate.value == pytest.approx(math.sqrt(40 / (4 * 30 * 5 * 10**4)))
    assert rate.learning_rate == pytest.approx(math.sqrt(4 * 30 / (40 * 5 * 10**4)))
    assert theory.largest_local_steps(s) == pytest.approx(min(40 / 24 * 10 ** (4 / 3), 40 / 6))
    everyone = s._replace(cohort_size=8, dim=6)
    assert theory.largest_local_steps(everyone) == pytest.approx(min(6 / 48 * 10 ** (4 / 3), 6e4 / 6 / 512, 6e4 / 48))
    counted = lambda count: s._replace(num_directions=count)  # noqa: E731
    found = jax.jit(lambda count: (theory.largest_local_steps(counted(count)), theory.rate(counted(count))))(6.0)
    assert float(found[0]) == pytest.approx(float(theory.largest_local_steps(s)), rel=1e-5)
    assert [float(value) for value in found[1]] == pytest.approx([float(value) for value in theory.rate(s)], rel=1e-5)


def test_table_of_decomfl() -> None:
    rows = theory.complexity_table(
        1000, 20, 5, local_steps=4, num_directions=10, accuracy=0.01, effective_rank=30, compression=0.25
    )
    assert {name: row.rounds for name, row in rows.items()} == {
        "fedavg": 500,
        "fedcom": 500,
        "fedzo": 50_000,
        "decomfl": 50_000,
        "decomfl_low_rank": 6_000,
    }
    assert rows["fedavg"].uplink_bytes == rows["fedavg"].downlink_bytes == 500 * 5 * 4000
    assert rows["fedcom"].uplink_bytes == 500 * 5 * 1000
    assert rows["decomfl"].uplink_bytes == 50_000 * 5 * 40 * 4  # m K P scalars a round
    assert rows["decomfl"].downlink_bytes == 50_000 * 2 * 20 * 40 * 4  # 2 M K P
    assert rows["decomfl_low_rank"].downlink_bytes == 6_000 * 2 * 20 * 10 * 4


def test_the_effective_rank_that_pays() -> None:
    limit = theory.cheaper_effective_rank(10**6, 20, 5, local_steps=2)
    for factor, cheaper in ((0.99, True), (1.01, False)):
        rows = theory.complexity_table(10**6, 20, 5, 2, 10, accuracy=1e-4, effective_rank=factor * limit)
        assert (rows["decomfl_low_rank"].total_bytes < rows["fedavg"].total_bytes) is cheaper


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"smoothness": -1.0}, "smoothness=-1.0; allowed: a finite number > 0"),
        ({"gradient_growth": 0.5}, "gradient_growth=0.5; allowed: a finite number >= 1"),
        ({"gap": math.nan}, "gap=nan"),
        ({"learning_rate": 0.0}, "learning_rate=0.0"),
        ({"num_rounds": 0}, "num_rounds=0; allowed: a number >= 1"),
        ({"cohort_size": 9}, "cohort_size=9.0; allowed: at most num_clients=8.0"),
    ],
)
def test_wrong_numbers_say_so(changes: dict[str, float], message: str) -> None:
    c, s = Constants(1.0, 1.0), Setting(10, 8, 4, 10, 1, 1, 1, 1e-3, 1e-3)
    c = c._replace(**{name: value for name, value in changes.items() if name in c._fields})
    s = s._replace(**{name: value for name, value in changes.items() if name in s._fields})
    with pytest.raises(ValueError, match=message):
        theory.fedzo(c, s)


def test_what_a_bound_does_not_cover() -> None:
    c, s = Constants(1.0, 1.0), Setting(10, 8, 4, 10, 1, 1, 1, 1e-3, 1e-3)
    with pytest.raises(ValueError, match=r"gradient_growth=2\.0; allowed: 1\.0"):
        theory.decomfl(c._replace(gradient_growth=2.0), s)
    with pytest.raises(ValueError, match="effective_rank=nan"):
        theory.decomfl_low_rank(c, s)
    with pytest.raises(ValueError, match="local_steps=2; allowed: 1"):
        theory.decomfl_low_rank_printed(c._replace(effective_rank=1.0), s._replace(local_steps=2))
    with pytest.raises(ValueError, match="directions='rademacher'"):
        theory.decomfl_low_rank(c._replace(effective_rank=1.0), s, "rademacher")
    with pytest.raises(ValueError, match="receive_snr=0"):
        theory.fedzo_aircomp(c, s, 0)
    with pytest.raises(ValueError, match="probability=0"):
        theory.threshold_cohort(5, 0.0)
    with pytest.raises(ValueError, match=r"factor=1\.0"):
        theory.smallest_receive_snr(c, s, factor=1.0)
    many = s._replace(num_directions=4, batch_size=3)
    assert theory.rate(many).learning_rate > 0
    with pytest.raises(ValueError, match=r"batch_size \* num_directions=12; allowed: at most dim=10"):
        theory.rate(many, per_sample=True)
    with pytest.raises(ValueError, match="num_directions=11; allowed: at most dim=10"):
        theory.largest_local_steps(s._replace(num_directions=11))
