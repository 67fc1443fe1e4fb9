"""Laws of directions: their norm, their second moment, and what a draw depends on."""

import functools
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from tests import tiny
from zofed import rng
from zofed.directions import LAWS, Directions

RANDOM = sorted(set(LAWS) - {"coordinate"})
SAMPLES = 20_000
SQUARED_NORMS = {"gaussian": tiny.DIM, "rademacher": tiny.DIM, "sphere": 1, "sphere_sqrt_dim": tiny.DIM}
SCALES = {"gaussian": 1, "rademacher": 1, "sphere": tiny.DIM, "sphere_sqrt_dim": 1, "coordinate": tiny.DIM}


def draw(law: Directions, key: jax.Array, index: Any, like: Any) -> Any:
    """The direction itself, factor and all."""
    direction = law.sample(key, jnp.int32(index), like)
    return jax.tree.map(lambda raw: direction.factor * raw, direction.raw)


@functools.cache
def many(name: str) -> np.ndarray:
    """Directions of a law, one per row."""
    keys = jax.random.split(rng.seed_key(11), SAMPLES)
    rows = jax.jit(jax.vmap(lambda key: tiny.flat(draw(LAWS[name](), key, 0, tiny.PARAMS))))(keys)
    return np.asarray(rows, np.float64)


@pytest.mark.parametrize("name", RANDOM)
def test_norm(name: str) -> None:
    squares = np.sum(many(name) ** 2, axis=1)
    if name == "gaussian":  # chi square: mean d, variance 2 d
        assert squares.mean() == pytest.approx(tiny.DIM, abs=5 * np.sqrt(2 * tiny.DIM / SAMPLES))
        assert squares.var() == pytest.approx(2 * tiny.DIM, rel=0.1)
    else:
        np.testing.assert_allclose(squares, SQUARED_NORMS[name], rtol=2e-6)


@pytest.mark.parametrize("name", RANDOM)
def test_second_moment_is_a_multiple_of_the_identity(name: str) -> None:
    """Entries of the mean of z z^T deviate by at most sqrt(2 / samples) of their size; 5 deviations are allowed."""
    rows, per_entry = many(name), SQUARED_NORMS[name] / tiny.DIM
    assert LAWS[name]().squared_norm(tiny.DIM) == pytest.approx(SQUARED_NORMS[name])
    tolerance = 5 * per_entry * np.sqrt(2 / SAMPLES)
    np.testing.assert_allclose(rows.T @ rows / SAMPLES, per_entry * np.eye(tiny.DIM), rtol=0, atol=tolerance)
    np.testing.assert_allclose(rows.mean(axis=0), 0, atol=5 * np.sqrt(per_entry / SAMPLES))


@pytest.mark.parametrize("name", LAWS)
def test_scale(name: str) -> None:
    assert LAWS[name]().scale(tiny.DIM) == pytest.approx(SCALES[name])


@pytest.mark.parametrize("name", ["rademacher", "gaussian"])
def test_equal_leaves_differ(name: str) -> None:
    drawn = draw(LAWS[name](), rng.seed_key(0), 0, {"a": jnp.zeros(64), "b": jnp.zeros(64)})
    correlation = jnp.mean(drawn["a"] * drawn["b"])
    assert abs(float(correlation)) < 5 / 8  # 5 deviations; equal leaves have 1


@pytest.mark.parametrize("name", RANDOM)
def test_a_new_leaf_leaves_the_others_alone(name: str) -> None:
    law, key = LAWS[name](), rng.seed_key(0)
    small = law.sample(key, jnp.int32(0), {"b": jnp.zeros(5), "c": jnp.zeros(())})
    large = law.sample(key, jnp.int32(0), {"a": jnp.zeros(4), "b": jnp.zeros(5), "c": jnp.zeros(())})
    for leaf in "bc":
        np.testing.assert_array_equal(small.raw[leaf], large.raw[leaf])


@pytest.mark.parametrize("name", RANDOM)
def test_a_draw_under_a_map_is_the_draw_alone(name: str) -> None:
    """Bit for bit in every chunk of directions or clients."""
    keys, like = jax.random.split(rng.seed_key(11), 3), {"a": jnp.zeros(()), "b": jnp.zeros(11)}
    alone = jax.jit(lambda key: LAWS[name]().sample(key, jnp.int32(0), like))
    mapped = jax.jit(jax.vmap(lambda key: LAWS[name]().sample(key, jnp.int32(0), like)))(keys)
    for place, key in enumerate(keys):
        expected = alone(key)
        jax.tree.map(lambda a, b, p=place: np.testing.assert_array_equal(a[p], b), mapped.raw, expected.raw)
        np.testing.assert_allclose(mapped.factor[place], expected.factor, rtol=3e-7)


@pytest.mark.parametrize("name", LAWS)
def test_directions_of_low_precision_models_are_float32(name: str) -> None:
    like = {"a": jnp.zeros(3, jnp.bfloat16), "b": jnp.zeros((), jnp.float16)}
    drawn = jax.eval_shape(lambda key: LAWS[name]().sample(key, jnp.int32(0), like), rng.seed_key(0))
    assert {leaf.dtype for leaf in jax.tree.leaves(drawn)} == {jnp.dtype(jnp.float32)}
    assert jax.tree.map(jnp.shape, drawn.raw) == jax.tree.map(jnp.shape, like)


def test_coordinates_are_the_unit_vectors_in_turn() -> None:
    indices = np.arange(2 * tiny.DIM)
    rows = jax.vmap(lambda index: tiny.flat(draw(LAWS["coordinate"](), rng.seed_key(0), index, tiny.PARAMS)))(indices)
    np.testing.assert_array_equal(rows, np.tile(np.eye(tiny.DIM), (2, 1)))
