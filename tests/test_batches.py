"""Batches: whose samples they hold, how often, and what the draw depends on."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from zofed import ClientData, batches, rng
from zofed.batches import BATCHINGS

SIZES = (7, 1, 12, 4, 12)
FIRST = np.concatenate([[0], np.cumsum(SIZES)])
BATCH, STEPS = 4, 2


def numbered() -> ClientData:
    """A sample is its own number: client 0 owns 0 .. 6, client 1 owns 7 ..."""
    owned = [np.arange(FIRST[i], FIRST[i + 1]) for i in range(len(SIZES))]
    return ClientData.from_partition(np.arange(FIRST[-1], dtype=np.int32), owned)


@functools.cache
def drawn(name: str, rounds: int = 600, seed: int = 0) -> np.ndarray:
    """[client, local step of all rounds, place in the batch], counted from the client's first sample."""
    batching, data = BATCHINGS[name](BATCH), numbered()

    def one(client: jax.Array, number: jax.Array) -> jax.Array:
        keys = rng.round_keys(rng.seed_key(seed), number // STEPS)
        return batching(keys, number % STEPS, STEPS, data.client(client))

    numbers = jnp.arange(rounds * STEPS, dtype=jnp.int32)
    over_steps = jax.vmap(one, in_axes=(None, 0))
    samples = jax.jit(jax.vmap(over_steps, in_axes=(0, None)))(jnp.arange(len(SIZES), dtype=jnp.int32), numbers)
    return np.asarray(samples) - FIRST[:-1, None, None]


@pytest.mark.parametrize("name", BATCHINGS)
def test_a_batch_holds_the_clients_own_samples(name: str) -> None:
    samples = drawn(name)
    assert samples.shape == (len(SIZES), 600 * STEPS, BATCH)
    assert np.all(samples >= 0)
    assert np.all(samples < np.array(SIZES)[:, None, None])


@pytest.mark.parametrize("name", BATCHINGS)
def test_each_sample_is_drawn_equally_often(name: str) -> None:
    """4,800 draws; a frequency 1 / size deviates by less than 5 sqrt(size / draws) of itself, or not at all."""
    for size, samples in zip(SIZES, drawn(name), strict=True):
        shares = np.bincount(samples.ravel(), minlength=size) / samples.size
        np.testing.assert_allclose(shares * size, 1, rtol=0, atol=5 * np.sqrt(size / samples.size))


@pytest.mark.parametrize("name", BATCHINGS)
def test_draws_differ_between_clients_steps_rounds_and_seeds(name: str) -> None:
    large, other = drawn(name)[2], drawn(name)[4]
    assert len(np.unique(np.concatenate([large[:20], other[:20]]), axis=0)) > 35
    assert not np.array_equal(drawn(name, 20), drawn(name, 20, seed=1))
    np.testing.assert_array_equal(drawn(name, 20), drawn(name)[:, : 20 * STEPS])


def test_replacement_draws_independently() -> None:
    """P(no repeat among 4 of 12) = 0.573; places of a batch, and batches of neighbouring steps, are uncorrelated."""
    large = drawn("replacement")[2]
    distinct = np.mean([len(set(batch)) == BATCH for batch in large.tolist()])
    assert distinct == pytest.approx(11 * 10 * 9 / 12**3, abs=5 * 0.5 / np.sqrt(len(large)))
    columns = np.concatenate([large[:-1], large[1:]], axis=1)
    correlations = np.corrcoef(columns.T) - np.eye(2 * BATCH)
    assert np.abs(correlations).max() < 5 / np.sqrt(len(large))


@pytest.mark.parametrize(("client", "per_epoch"), [(2, 3), (3, 1)])
def test_an_epoch_holds_each_sample_once_across_rounds(client: int, per_epoch: int) -> None:
    """Three batches make an epoch of client 2, two steps a round: epochs begin and end within rounds."""
    epochs = drawn("epoch")[client].reshape(-1, per_epoch * BATCH)
    np.testing.assert_array_equal(np.sort(epochs, axis=1), np.tile(np.arange(SIZES[client]), (len(epochs), 1)))
    assert len(np.unique(epochs, axis=0)) > 20  # 24 orders of 4 samples


def test_an_epoch_that_does_not_divide_leaves_out_its_rest() -> None:
    """7 samples in batches of 4: one batch an epoch, without repeats."""
    assert all(len(set(batch)) == BATCH for batch in drawn("epoch")[0].tolist())


def test_a_client_smaller_than_a_batch_repeats_its_data_evenly() -> None:
    assert np.all(drawn("epoch")[1] == 0)
    data = ClientData.from_partition(np.arange(3), [[0, 1, 2]])
    keys = rng.round_keys(rng.seed_key(0), 0)
    batch = batches.epoch(8)(keys, jnp.int32(0), 1, data.client(jnp.int32(0)))
    assert sorted(np.bincount(np.asarray(batch))) == [2, 3, 3]


@pytest.mark.parametrize("name", BATCHINGS)
@pytest.mark.parametrize("size", [0, -1, 2.0, True])
def test_bad_batch_sizes_are_named(name: str, size: int) -> None:
    with pytest.raises(ValueError, match=f"batch_size={size}; allowed: an integer from 1 up"):
        BATCHINGS[name](size)
