"""Bounds against measured runs: none is violated under its conditions, and none would survive without any of its terms.

A measured mean is that over rounds and seeds; the bounds are of expectations, and three to a hundred times as large.
"""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.theory_runs import Problem, Run, Shape, allowed, bound, measured, problem, setting
from zofed import rng, theory
from zofed.directions import Directions, gaussian, sphere
from zofed.estimators import estimator
from zofed.theory import Constants

SHAPES = {
    "all clients, one step": Shape(6, 4, 4, 1, 1, 1, 400),
    "one client of four, many steps": Shape(2, 4, 1, 16, 8, 16, 300),
    "per sample": Shape(5, 4, 2, 3, 3, 2, 200, "per_sample"),
    "over the air": Shape(2, 3, 0, 8, 4, 16, 500),
    "decomfl": Shape(5, 5, 3, 3, 2, 2, 200, "decomfl"),
    "decomfl, many directions": Shape(2, 3, 2, 2, 1, 128, 300, "decomfl"),
    "decomfl, low effective rank": Shape(8, 4, 2, 1, 2, 2, 300, "decomfl_sphere"),
    "decomfl, low effective rank, Gaussian": Shape(8, 4, 2, 1, 2, 2, 300, "decomfl_gaussian"),
}
IN_CI = ("per sample", "over the air", "decomfl, low effective rank")

SLOW = [HealthCheck.too_slow, HealthCheck.data_too_large]

amounts = st.sampled_from([0.0, 0.1, 1.0])


@st.composite
def cases(draw: Any, shape: Shape) -> tuple[Problem, Run, float]:
    """A problem, a run but for its learning rate, and the share of the largest one to take."""
    seed = draw(st.integers(0, 2**16))
    kind = draw(st.sampled_from(["quadratic", "ripples", "unequal curvatures"]))
    if shape.kind.startswith("decomfl") and kind == "unequal curvatures":
        kind = "quadratic"  # DeComFL assumes c_g = 1 and c_h = 0
    made = problem(
        shape,
        seed,
        heterogeneity=draw(amounts),
        noise=draw(amounts),
        away=draw(amounts),
        ripple=draw(st.floats(0.1, 1.0)) if kind == "ripples" else 0.0,
        spread=0.5 if kind == "unequal curvatures" else 0.0,
        condition=draw(st.sampled_from([1.0, 10.0])),
    )
    smoothing, snr = draw(st.sampled_from([1e-2, 0.1, 1.0])), draw(st.sampled_from([0.1, 1.0, 100.0]))
    return made, Run(1.0, smoothing, snr), draw(st.sampled_from([1.0, 0.3]))


def is_not_violated(shape: Shape, made: Problem, run: Run, share: float) -> None:
    run = allowed(shape, made.constants(), run, share)
    found, limit = measured(shape, made, run).mean(), float(bound(shape, made.constants(), run).total)
    assert np.isfinite(found)
    assert found <= limit


@pytest.mark.parametrize("name", IN_CI)
def test_no_bound_is_violated(name: str) -> None:
    shape = SHAPES[name]

    @settings(max_examples=12, suppress_health_check=SLOW)
    @given(cases(shape))
    def check(case: tuple[Problem, Run, float]) -> None:
        is_not_violated(shape, *case)

    check()


@pytest.mark.slow
@pytest.mark.parametrize("name", SHAPES)
def test_no_bound_is_violated_in_hundreds_of_cases(name: str) -> None:
    shape = SHAPES[name]

    @settings(max_examples=60, suppress_health_check=SLOW)
    @given(cases(shape))
    def check(case: tuple[Problem, Run, float]) -> None:
        is_not_violated(shape, *case)

    check()


DOMINANT: dict[str, tuple[Shape, dict[str, float], Run, float]] = {
    "initial_gap": (SHAPES["per sample"], {"away": 1.0}, Run(1.0, 1e-3), 1.0),
    "noise": (SHAPES["per sample"], {"noise": 1.0}, Run(1.0, 1e-3), 1.0),
    "smoothing": (SHAPES["per sample"], {}, Run(1.0, 1.0), 1.0),
    "heterogeneity": (SHAPES["all clients, one step"], {"heterogeneity": 1.0}, Run(1.0, 1e-3), 1.0),
    "channel": (SHAPES["over the air"], {"heterogeneity": 1.0}, Run(1.0, 1e-3, 1e3, 1e-3), 1.0),
    "sampling": (Shape(1, 4, 1, 32, 8, 16, 3000), {"heterogeneity": 1.0}, Run(1.0, 1e-3), 0.05),
}
"""For each term a shape, a problem, a run and the share of the largest learning rate, such that all the other terms
together are less than what is measured: they start at the minimum, or have nothing else that moves them."""


@pytest.mark.parametrize(
    "term",
    [pytest.param(term, marks=pytest.mark.slow if term in ("heterogeneity", "sampling") else ()) for term in DOMINANT],
)
def test_without_its_dominant_term_a_bound_is_violated(term: str) -> None:
    shape, amounts, run, share = DOMINANT[term]
    made = problem(shape, 1, condition=1.0, **amounts)
    run = allowed(shape, made.constants(), run, share)
    whole = bound(shape, made.constants(), run)
    found = measured(shape, made, run, repeats=8 if term in ("channel", "sampling") else 1)
    lower = found.mean() - 3 * found.std(ddof=1) / np.sqrt(len(found))
    rest = float(whole.total - getattr(whole.terms, term))
    assert rest < lower < found.mean() < whole.total


@pytest.mark.slow
def test_shared_directions_are_not_divided_by_the_batch() -> None:
    shape = Shape(10, 2, 2, 1, 256, 1, 600)
    made = problem(shape, 1, condition=1.0, heterogeneity=1.0)
    run = allowed(shape, made.constants(), Run(1.0, 1e-3))
    found = measured(shape, made, run)
    assert found.mean() < bound(shape, made.constants(), run).total
    divided = theory.fedzo(made.constants(), setting(shape, run), per_sample=True)
    assert bool(divided.holds)
    assert divided.total < found.mean() - 3 * found.std(ddof=1) / np.sqrt(len(found))


def test_drift_grows_with_the_square_of_the_local_steps() -> None:
    """Gradient descent on two kinds of clients in one dimension, f_i(x) = (x - 1)^2 / 2 and x; f is least at 0.

    There d v v^T = 1, so central differences on the unit sphere are exact and a round is known in closed form.
    """
    steps, clients, rounds = 4000, 60, 300
    # ||grad f_i - grad f|| = |x / 2 - 1| and grad f = x / 2: at most (1 + 1/t) (grad f)^2 + (1 + t) squared, t = 1/2.
    constants = Constants(1.0, 0.0, dissimilarity=1.5, dissimilarity_growth=3.0)
    unit = theory.Setting(1, clients, clients, rounds, steps, 8, 8, 1.0, 0.0)
    rate = float(theory.fedzo(constants, unit).largest_learning_rate)
    x, squares = 0.0, []
    for _ in range(rounds):
        squares.append((x / 2) ** 2)
        x = (1 - (1 - rate) ** steps * (1 - x) + x - rate * steps) / 2
    whole = theory.fedzo(constants, unit._replace(learning_rate=rate))
    assert np.mean(squares) < whole.total
    linear = whole.total - whole.terms.drift * (1 - 1 / steps)
    assert linear < np.mean(squares)


@pytest.mark.slow
def test_noise_of_decomfl_does_not_vanish_with_many_directions() -> None:
    """Printed, it is divided by the number of directions; all of them see one mini-batch."""
    shape = Shape(1, 1, 1, 1, 1, 512, 3000, "decomfl")
    made = problem(shape, 0, condition=1.0, noise=1.0)
    printed = theory.decomfl_printed(made.constants(), setting(shape, Run(1.0, 1e-3)))
    run = Run(float(printed.largest_learning_rate), 1e-3)
    printed = theory.decomfl_printed(made.constants(), setting(shape, run))
    found = measured(shape, made, run)
    assert printed.total < found.mean() - 3 * found.std(ddof=1) / np.sqrt(len(found))
    run = allowed(shape, made.constants(), run)
    assert measured(shape, made, run).mean() < bound(shape, made.constants(), run).total


def second_moments(directions: Directions, num_directions: int, batch_size: int, per_sample: bool) -> np.ndarray:
    """[draws] ||e||^2 / ||g||^2 of the estimator e of a linear function of slope g in 12 dimensions."""
    slope = jnp.arange(1.0, 13)
    loss = lambda x, batch: jnp.sum(slope[None, :] * (x[None, :] + 0 * batch), axis=-1)  # noqa: E731
    estimate = estimator(loss, directions, num_directions, 1.0, per_sample=per_sample)

    @jax.jit
    @jax.vmap
    def squares(seed: jax.Array) -> jax.Array:
        result = estimate(lambda p: rng.fold(rng.seed_key(seed), p), jnp.zeros(12), jnp.zeros((batch_size, 12)))
        return jnp.sum(jnp.square(result.gradient)) / jnp.sum(jnp.square(slope))

    return np.asarray(squares(jnp.arange(4000, dtype=jnp.uint32)), np.float64)


@pytest.mark.parametrize(
    ("directions", "per_sample", "exact", "wrong"),
    [
        (sphere(), False, (12 + 3 - 1) / 3, (12 + 12 - 1) / 12),  # q = b2 = 3, not b1 b2 = 12
        (sphere(), True, (12 + 12 - 1) / 12, (12 + 3 - 1) / 3),
        (gaussian(), False, (12 + 3 + 1) / 3, (12 + 12 + 1) / 12),
    ],
)
def test_second_moment_of_the_estimator_is_exact_for_linear_functions(
    directions: Directions, per_sample: bool, exact: float, wrong: float
) -> None:
    """((d + q - 1) / q) ||g||^2 with q independent directions on the sphere, (d + q + 1) / q with Gaussian ones."""
    found = second_moments(directions, 3, 4, per_sample)
    width = 4 * found.std(ddof=1) / np.sqrt(len(found))  # chance leaves it once in 16,000 times
    assert abs(found.mean() - exact) < width
    assert abs(found.mean() - wrong) > 3 * width
    # What the bounds use is larger: A with c_g = 1, and 1 for the squared mean.
    at = theory.Setting(12, 1, 1, 1, 1, 4, 3, 1.0, 0.0)
    assert found.mean() < 1 + theory.moments(Constants(1.0, 0.0), at, per_sample).slope
