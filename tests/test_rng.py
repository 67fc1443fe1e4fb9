"""Keys are a protocol, and draws are those of jax.random bit for bit."""

from collections import defaultdict
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests import tiny
from zofed import cohorts, fedzo, rng, simulate

SHAPES = [(), (1,), (3,), (16,), (7, 5), (4099,), (100_003,), (64, 512)]
DRAWS = {
    "bits": (rng.bits, jax.random.bits),
    "uniform": (rng.uniform, jax.random.uniform),
    "normal": (rng.normal, jax.random.normal),
    "stored_normal": (rng.stored_normal, jax.random.normal),
}
WORDS = st.integers(0, 2**32 - 1)


def assert_same_bits(ours: Any, theirs: Any) -> None:
    ours, theirs = np.asarray(ours), np.asarray(theirs)
    assert ours.dtype == theirs.dtype
    assert ours.shape == theirs.shape
    np.testing.assert_array_equal(ours.view(np.uint32), theirs.view(np.uint32))


@pytest.mark.parametrize("shape", SHAPES, ids=str)
@pytest.mark.parametrize("name", DRAWS)
def test_draws_are_those_of_jax_random(name: str, shape: tuple[int, ...]) -> None:
    draw, reference = DRAWS[name]
    key = rng.seed_key(7)
    expected = reference(key, shape)
    assert_same_bits(jax.jit(draw, static_argnums=1)(key, shape), expected)
    if shape in [(), (7, 5)]:
        assert_same_bits(draw(key, shape), expected)


@pytest.mark.parametrize("shape", [(7, 3), (3, 2 * rng.BLOCK // 3)], ids=str)
@pytest.mark.parametrize("name", DRAWS)
def test_draws_under_a_map_over_keys_are_those_of_each_key(name: str, shape: tuple[int, ...]) -> None:
    draw, reference = DRAWS[name]
    keys = jax.random.split(rng.seed_key(3), 5)
    mapped = jax.jit(jax.vmap(lambda key: draw(key, shape)))(keys)
    assert_same_bits(mapped, jnp.stack([reference(key, shape) for key in keys]))


def test_uniform_takes_bounds() -> None:
    """Up to one rounding: XLA contracts the product and the sum in some programs, not in others."""
    key = rng.seed_key(1)
    ours, theirs = rng.uniform(key, (999,), -2.5, 7.0), jax.random.uniform(key, (999,), minval=-2.5, maxval=7.0)
    np.testing.assert_allclose(ours, theirs, rtol=0, atol=1e-6)
    assert bool(jnp.all((ours >= -2.5) & (ours < 7)))


@pytest.mark.parametrize("dtype", [jnp.bfloat16, jnp.float16])
def test_other_dtypes_are_left_to_jax_random(dtype: Any) -> None:
    key = rng.seed_key(1)
    drawn = rng.normal(key, (5,), dtype)
    assert drawn.dtype == dtype
    assert bool(jnp.all(drawn == jax.random.normal(key, (5,), dtype)))


@pytest.mark.parametrize("name", DRAWS)
def test_falls_back_where_partitionable_threefry_is_off(name: str) -> None:
    draw, reference = DRAWS[name]
    key = rng.seed_key(5)
    partitionable = draw(key, (6,))
    with jax.threefry_partitionable(False):
        assert_same_bits(draw(key, (6,)), reference(key, (6,)))
        assert not np.array_equal(draw(key, (6,)), partitionable)


def test_empty_draws() -> None:
    assert rng.normal(rng.seed_key(0), (0, 3)).shape == (0, 3)
    assert rng.rademacher(rng.seed_key(0), (0,)).shape == (0,)


@given(seed=WORDS, low=WORDS)
def test_fold_with_no_high_word_is_fold_in(seed: int, low: int) -> None:
    key = rng.seed_key(jnp.uint32(seed))
    assert bool(FOLD(key, np.uint32(low), np.uint32(0)) == jax.random.fold_in(key, np.uint32(low)))


FOLD = jax.jit(rng.fold)


@given(seed=WORDS, pairs=st.sets(st.tuples(WORDS, WORDS), min_size=2, max_size=50))
def test_fold_is_injective(seed: int, pairs: set[tuple[int, int]]) -> None:
    lows, highs = np.array([*pairs], np.uint32).T
    padded = np.resize(lows, 50), np.resize(highs, 50)
    words = np.asarray(jax.random.key_data(FOLD(rng.seed_key(jnp.uint32(seed)), *padded)))
    assert len(np.unique(words, axis=0)) == len(pairs)


def test_fold_gives_a_million_distinct_children() -> None:
    """All (low, high) of a square that a run could use, the swapped pairs too."""
    low, high = (axis.ravel() for axis in np.meshgrid(np.arange(1000), np.arange(1000)))
    words = np.asarray(jax.random.key_data(FOLD(rng.seed_key(0), np.uint32(low), np.uint32(high))))
    assert len(np.unique(np.ascontiguousarray(words).view(np.uint64))) == 1_000_000


def test_streams_are_numbered_from_one() -> None:
    assert sorted(rng.Stream) == list(range(1, len(rng.Stream) + 1))


def test_leaf_keys_follow_the_path_alone() -> None:
    key = rng.seed_key(2)
    small, large = rng.leaf_keys(key, {"b": 0, "c": 0}), rng.leaf_keys(key, {"a": 0, "b": 0, "c": 0})
    assert bool(small["b"] == large["b"])
    assert bool(small["c"] == large["c"])
    assert not bool(large["a"] == large["b"])


def test_leaf_keys_refuse_two_paths_of_one_hash(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rng.zlib, "crc32", lambda path: 5)
    with pytest.raises(ValueError, match="share a hash"):
        rng.leaf_keys(rng.seed_key(0), {"a": 0, "b": 0})


def record_keys(monkeypatch: pytest.MonkeyPatch, owner: Any, name: str, seen: dict[str, set[bytes]]) -> None:
    """Notes the raw data of each key that `owner.name` is called with, for each lane of a map and turn of a loop."""
    original: Callable[..., Any] = getattr(owner, name)

    def recorded(key: jax.Array, *arguments: Any, **settings: Any) -> Any:
        jax.debug.callback(lambda words: seen[name].add(np.asarray(words).tobytes()), jax.random.key_data(key))
        return original(key, *arguments, **settings)

    monkeypatch.setattr(owner, name, recorded)


def test_all_keys_of_a_run_are_distinct(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each draw has a key of its own, in raw data, and no key is both drawn from and folded further."""
    seen: dict[str, set[bytes]] = defaultdict(set)
    for owner, name in [(rng, "normal"), (rng, "fold"), (jax.random, "randint"), (jax.random, "permutation")]:
        record_keys(monkeypatch, owner, name, seen)
    params, data = {"a": jnp.zeros(5), "b": jnp.zeros(10)}, tiny.client_data()
    rounds, members, steps, num_directions, leaves = 3, 2, 2, 3, len(params)
    algorithm = fedzo(tiny.loss, 0.1, 0.1, steps, num_directions, 2, sample_cohort=cohorts.uniform(members))
    state = algorithm.init(params, data.num_clients)
    jax.block_until_ready(simulate(rng.seed_key(0), algorithm, state, data, rounds))
    jax.effects_barrier()
    assert len(seen["permutation"]) == rounds
    assert len(seen["randint"]) == rounds * members * steps
    assert len(seen["normal"]) == rounds * members * steps * num_directions * leaves
    everything = [seen[name] for name in ("normal", "randint", "permutation", "fold")]
    assert len(set.union(*everything)) == sum(len(keys) for keys in everything)


def test_rademacher_signs_are_balanced_and_independent() -> None:
    """64,000 signs: the mean, that of each bit of a word, and neighbours' products, within 5 standard deviations."""
    signs = np.asarray(rng.rademacher(rng.seed_key(4), (2000, 32)))
    assert signs.dtype == np.float32
    assert set(np.unique(signs)) == {-1.0, 1.0}
    assert abs(signs.mean()) < 5 / np.sqrt(signs.size)
    assert np.all(np.abs(signs.mean(axis=0)) < 5 / np.sqrt(2000))
    correlations = signs.T @ signs / 2000 - np.eye(32)
    assert np.all(np.abs(correlations) < 5 / np.sqrt(2000))


@pytest.mark.parametrize("shape", [(), (1,), (31,), (33,), (4, 9)], ids=str)
def test_rademacher_has_any_shape_and_dtype(shape: tuple[int, ...]) -> None:
    signs = rng.rademacher(rng.seed_key(4), shape, jnp.bfloat16)
    assert signs.shape == shape
    assert signs.dtype == jnp.bfloat16
    assert bool(jnp.all(jnp.abs(signs) == 1))


def count_generators(num_consumers: int, keep: Callable[[Callable[[], Any]], Any]) -> int:
    """How often the compiled program holds the constant that only the threefry key schedule has."""

    def consume(key: jax.Array, points: list[jax.Array]) -> list[jax.Array]:
        drawn = keep(lambda: rng.normal(key, (1000,)))
        return [jnp.cumsum(point + drawn) * jnp.sum(point * drawn) for point in points]

    points = [jnp.full(1000, float(number)) for number in range(num_consumers)]
    program = jax.jit(consume).lower(rng.seed_key(0), points).compile().as_text()
    assert program is not None
    return program.count(str(int(rng._PARITY)))


def test_a_materialised_draw_is_generated_once_whatever_uses_it() -> None:
    alone, used_by_four = (count_generators(number, rng.materialise) for number in (1, 4))
    assert used_by_four == alone
    assert alone >= 1


def test_materialise_returns_what_it_is_given() -> None:
    drawn = jax.jit(lambda key: rng.materialise(lambda: {"a": rng.normal(key, (3,)), "b": jnp.int32(4)}))
    result = drawn(rng.seed_key(9))
    assert_same_bits(result["a"], jax.random.normal(rng.seed_key(9), (3,)))
    assert int(result["b"]) == 4


def test_a_large_stored_draw_in_a_loop_needs_nothing_else_as_large() -> None:
    """A draw as a whole would have its counters beside it, and the zeros that it replaces."""
    shape = (64 * rng.BLOCK,)

    def sums(key: jax.Array) -> jax.Array:
        return jax.lax.map(lambda number: jnp.sum(rng.stored_normal(rng.fold(key, number), shape)), jnp.arange(3))

    analysis = jax.jit(sums).lower(rng.seed_key(0)).compile().memory_analysis()
    assert analysis is not None
    assert 4 * shape[0] <= analysis.temp_size_in_bytes <= 4 * (shape[0] + 4 * rng.BLOCK)


def test_in_place_takes_the_storage_of_what_ends_there() -> None:
    values = jnp.arange(rng.BLOCK, dtype=jnp.float32)
    program = jax.jit(lambda values: rng.in_place(lambda own: 2 * own + 1, values), donate_argnums=0)
    analysis = program.lower(values).compile().memory_analysis()
    assert analysis is not None
    assert analysis.alias_size_in_bytes == values.nbytes
    assert analysis.temp_size_in_bytes < values.nbytes / 100
    np.testing.assert_array_equal(program(values), 2 * np.arange(rng.BLOCK, dtype=np.float32) + 1)
