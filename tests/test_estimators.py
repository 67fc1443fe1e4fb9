"""Estimators against numpy in float64, and against what theory says of their mean and spread."""

import functools
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.flatten_util import ravel_pytree

from tests import tiny
from zofed import fedzo, rng, simulate
from zofed.directions import LAWS, Direction, Directions, coordinate, rademacher, sphere
from zofed.estimators import DIFFERENCES, Estimate, central, estimator, forward

NUM_DIRECTIONS, BATCH = 4, 2
RANDOM = sorted(set(LAWS) - {"coordinate"})


def unflat(vector: jax.Array) -> Any:
    """The inverse of `tiny.flat`."""
    return ravel_pytree(tiny.PARAMS)[1](vector)


def given_directions(table: np.ndarray, factor: float) -> Directions:
    """Direction number i is factor * table[i]: known to the test, whatever the generator."""

    def sample(key: jax.Array, index: jax.Array, like: Any) -> Direction:
        del key, like
        return Direction(unflat(jnp.float32(table)[index]), jnp.float32(factor))

    return Directions(sample, lambda dim: 3.0)


def no_key(number: jax.Array) -> jax.Array:
    return rng.seed_key(0)


def wavy(params: Any, batch: jax.Array) -> jax.Array:
    """A smooth function with all derivatives."""
    x = tiny.flat(params)[None, :]
    return jnp.sum(jnp.sin(x * batch) + 0.1 * x**2, axis=-1)


def wavy64(x: np.ndarray, batch: np.ndarray) -> float:
    return float(np.mean(np.sum(np.sin(x * batch) + 0.1 * x**2, axis=-1)))


def wavy_gradient64(x: np.ndarray, batch: np.ndarray) -> np.ndarray:
    return np.mean(np.cos(x * batch) * batch + 0.2 * x, axis=0)


def reference(
    difference: str, per_sample: bool, table: np.ndarray, scale: float, x: np.ndarray, batch: np.ndarray, mu: float
) -> tuple[np.ndarray, np.ndarray, float]:
    """Scalars, gradient and loss of the definition, one direction after the other."""
    scalars, losses, gradient = [], [], np.zeros_like(x)
    for number, z in enumerate(table):
        example = number // NUM_DIRECTIONS
        own = batch[example : example + 1] if per_sample else batch
        base, above, below = (wavy64(x + step * z, own) for step in (0, mu, -mu))
        value, loss = {
            "forward": ((above - base) / mu, base),
            "central": ((above - below) / (2 * mu), (above + below) / 2),
            "jvp": (wavy_gradient64(x, own) @ z, base),
        }[difference]
        scalars.append(value)
        losses.append(loss)
        gradient = gradient + scale / len(table) * value * z
    return np.array(scalars), gradient, float(np.mean(losses))


@pytest.mark.parametrize("per_sample", [False, True], ids=["shared", "per_sample"])
@pytest.mark.parametrize("difference", DIFFERENCES)
def test_equals_the_definition_in_float64(difference: str, per_sample: bool) -> None:
    """For every chunk, divisors of the number of directions or not. Round-off: eps |F| / smoothing = 1e-5."""
    generator = np.random.default_rng(1)
    total = NUM_DIRECTIONS * (BATCH if per_sample else 1)
    table, factor, mu = generator.standard_normal((total, tiny.DIM)).astype(np.float32), 0.5, 0.1
    batch = generator.standard_normal((BATCH, tiny.DIM)).astype(np.float32)
    directions, kind = given_directions(table, factor), DIFFERENCES[difference]()

    def all_chunks(params: Any, batch: jax.Array, mu: jax.Array) -> list[Estimate]:
        estimates = [
            estimator(wavy, directions, NUM_DIRECTIONS, mu, kind, per_sample, chunk) for chunk in (None, 1, 3, 100)
        ]
        return [estimate(no_key, params, batch) for estimate in estimates]

    scalars, gradient, loss = reference(
        difference, per_sample, factor * table.astype(np.float64), tiny.DIM / 3, tiny.flat64(tiny.PARAMS), batch, mu
    )
    for result in jax.jit(all_chunks)(tiny.PARAMS, batch, mu):
        np.testing.assert_allclose(result.scalars, scalars, rtol=0, atol=2e-5)
        np.testing.assert_allclose(tiny.flat64(result.gradient), gradient, rtol=0, atol=4e-5)
        assert float(result.loss) == pytest.approx(loss, abs=1e-5)


SAMPLES = 60_000
PYTREES: dict[str, Any] = {
    "scalar and vector": {"a": jnp.float32(2.0), "b": jnp.array([1.0, -3.0, 0.5])},
    "one": jnp.full(1, -2.0),
    "twelve": jnp.sin(jnp.arange(12.0)),
}


def linear(params: Any, batch: Any) -> jax.Array:
    """<slope, x>, the same for each example; the batch is the slope, with a leading axis."""
    products = jax.tree.map(lambda x, slopes: jnp.sum(slopes * x[None], axis=range(1, slopes.ndim)), params, batch)
    return jnp.float32(1) + sum(jax.tree.leaves(products))


@functools.cache
def drawn(law: str, pytree: str) -> Direction:
    """Independent directions, with a leading axis: drawn once, since generators are what takes long to compile."""
    sample = jax.vmap(lambda key: LAWS[law]().sample(key, jnp.int32(0), PYTREES[pytree]))
    return jax.jit(sample)(jax.random.split(rng.seed_key(5), SAMPLES))


def estimates_of_linear(law: str, pytree: str, num_directions: int, batch_size: int = 1, **settings: Any) -> np.ndarray:
    """Estimates of the gradient of a linear function, one per row, from independent directions."""
    slope = PYTREES[pytree]
    batch = jax.tree.map(lambda leaf: jnp.stack([leaf] * batch_size), slope)
    total = num_directions * (batch_size if settings.get("per_sample") else 1)
    repeats = SAMPLES // total
    cut = lambda leaf: leaf[: repeats * total].reshape(repeats, total, *leaf.shape[1:])  # noqa: E731

    def estimate(own: Direction) -> Any:
        directions = Directions(lambda key, index, like: jax.tree.map(lambda leaf: leaf[index], own), squared_norm)
        zeros = jax.tree.map(jnp.zeros_like, slope)
        return estimator(linear, directions, num_directions, 0.5, **settings)(no_key, zeros, batch).gradient

    squared_norm = LAWS[law]().squared_norm
    gradients = jax.jit(jax.vmap(estimate))(jax.tree.map(cut, drawn(law, pytree)))
    return np.concatenate([np.float64(leaf).reshape(repeats, -1) for leaf in jax.tree.leaves(gradients)], axis=1)


@pytest.mark.parametrize("pytree", ["scalar and vector", "one"])
@pytest.mark.parametrize("num_directions", [1, 3])
@pytest.mark.parametrize("difference", DIFFERENCES)
@pytest.mark.parametrize("law", RANDOM)
def test_unbiased_on_a_linear_function(law: str, difference: str, num_directions: int, pytree: str) -> None:
    """Within 5 standard errors of each entry, at most about 3% of the gradient's norm."""
    rows = estimates_of_linear(law, pytree, num_directions, difference=DIFFERENCES[difference]())
    errors = rows.mean(axis=0) - tiny.flat64(PYTREES[pytree])
    assert np.all(np.abs(errors) <= 5 * rows.std(axis=0) / np.sqrt(len(rows)) + 1e-5)


@pytest.mark.parametrize(("per_sample", "independent"), [(False, 3), (True, 12)])
def test_second_moment_on_a_linear_function(per_sample: bool, independent: int) -> None:
    """((d + n - 1) / n) ||g||^2 with n = b2 shared directions, or b1 b2 if each example has its own."""
    rows = estimates_of_linear("sphere", "twelve", num_directions=3, batch_size=4, per_sample=per_sample)
    squares = np.sum(rows**2, axis=1) / np.sum(tiny.flat64(PYTREES["twelve"]) ** 2)
    five_errors = 5 * squares.std() / np.sqrt(len(squares))
    assert squares.mean() == pytest.approx((12 + independent - 1) / independent, abs=five_errors)
    assert five_errors < 0.3


def exponential(params: Any, batch: Any) -> jax.Array:
    return jnp.sum(jnp.exp(params))[None]


@pytest.mark.parametrize(("difference", "order"), [("forward", 1), ("central", 2)])
def test_order_of_the_bias_in_smoothing(difference: str, order: int) -> None:
    """Each coordinate once, so that the bias is all the error there is."""
    x, smoothings = jnp.array([0.3, -0.5, 1.0]), np.array([0.1, 0.2, 0.4])
    kind = DIFFERENCES[difference]()

    def gradient(mu: jax.Array) -> jax.Array:
        return estimator(exponential, coordinate(), 3, mu, kind)(no_key, x, None).gradient

    biases = np.linalg.norm(np.asarray(jax.vmap(gradient)(jnp.float32(smoothings))) - np.exp(x), axis=1)
    slope, _ = np.polyfit(np.log(smoothings), np.log(biases), 1)
    assert slope == pytest.approx(order, abs=0.1)


def test_jvp_has_no_bias_at_any_smoothing() -> None:
    x = jnp.array([0.3, -0.5, 1.0])
    result = estimator(exponential, coordinate(), 3, 1e3, DIFFERENCES["jvp"]())(no_key, x, None)
    np.testing.assert_allclose(result.gradient, np.exp(x), rtol=1e-6)


@pytest.mark.parametrize("kind", [forward, central])
def test_low_precision_losses_are_subtracted_in_float32(kind: Callable[[], Any]) -> None:
    """256 - 1.0078125 is no bfloat16, nor is the mean of 300 of them in it."""

    def step(params: jax.Array, batch: Any) -> jax.Array:
        return jnp.where(params > 0, jnp.bfloat16(256), jnp.bfloat16(1.0078125)) * jnp.ones(300, jnp.bfloat16)

    result = estimator(step, coordinate(), 1, 1.0, kind())(no_key, jnp.full(1, -0.5), None)
    assert result.scalars.dtype == jnp.float32
    assert float(result.scalars[0]) == 254.9921875 / (1 if kind is forward else 2)


@pytest.mark.parametrize(("dtype", "fraction"), [(jnp.float32, 0.0), (jnp.bfloat16, 1.0)])
def test_differences_lost_to_round_off_are_counted(dtype: Any, fraction: float) -> None:
    def loss(params: Any, batch: jax.Array) -> jax.Array:
        return tiny.loss(params.astype(dtype), batch).astype(dtype)

    algorithm = fedzo(loss, 0.01, 1e-3, local_steps=1, num_directions=10, batch_size=1)
    data = tiny.client_data((2, 3))
    _, trace = simulate(rng.seed_key(0), algorithm, algorithm.init(jnp.zeros(tiny.DIM), 2), data, num_rounds=2)
    np.testing.assert_allclose(trace.rounds.local.zero_differences, fraction, atol=0.1)


@functools.cache
def temporary_bytes(num_directions: int, chunk: int | None, per_sample: bool = False) -> int:
    dim, batch = 20_000, jnp.zeros((2, 1))
    estimate = estimator(
        lambda params, batch: jnp.sum(params**2) + batch[:, 0],
        rademacher(),
        num_directions,
        1e-3,
        per_sample=per_sample,
        chunk=chunk,
    )
    run = jax.jit(lambda key, params: estimate(lambda number: rng.fold(key, number), params, batch))
    analysis = run.lower(rng.seed_key(0), jnp.zeros(dim)).compile().memory_analysis()
    assert analysis is not None
    return analysis.temp_size_in_bytes


@pytest.mark.parametrize("per_sample", [False, True])
def test_memory_one_by_one_does_not_grow_with_the_directions(per_sample: bool) -> None:
    few, many = (temporary_bytes(number, 1, per_sample) for number in (4, 64))
    assert many < few + 100 * 64  # scalars
    assert temporary_bytes(64, None) > 64 * 20_000 * 4


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"num_directions": 0}, "num_directions=0"),
        ({"num_directions": 2.5}, "num_directions=2.5"),
        ({"num_directions": True}, "num_directions=True"),
        ({"smoothing": 0.0}, "smoothing=0.0"),
        ({"smoothing": float("nan")}, "smoothing=nan"),
        ({"smoothing": "small"}, "smoothing='small'"),
        ({"chunk": 0}, "direction chunk=0"),
    ],
)
def test_bad_settings_are_named(settings: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        estimator(tiny.loss, sphere(), **{"num_directions": 1, "smoothing": 1e-3, **settings})


def test_a_traced_count_is_refused_in_words() -> None:
    with pytest.raises(ValueError, match="num_directions is traced"):
        jax.jit(lambda number: estimator(tiny.loss, sphere(), number, 1e-3))(3)
