"""Cohorts: who takes part, how often, and what the draw depends on."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from zofed import cohorts, rng

CLIENTS, MEMBERS, ROUNDS = 7, 3, 5000


@functools.cache
def drawn(seed: int = 0) -> np.ndarray:
    """Ids of uniform cohorts, one row a round."""
    sample = cohorts.uniform(MEMBERS)
    run = jax.vmap(lambda round: sample(rng.round_keys(rng.seed_key(seed), round), CLIENTS).ids)
    return np.asarray(jax.jit(run)(jnp.arange(ROUNDS, dtype=jnp.int32)))


def test_full_is_everybody_in_order() -> None:
    cohort = cohorts.full()(rng.round_keys(rng.seed_key(0), 3), CLIENTS)
    np.testing.assert_array_equal(cohort.ids, np.arange(CLIENTS))
    assert cohort.count == CLIENTS
    assert cohort.gain is None


def test_uniform_draws_without_replacement() -> None:
    ids = drawn()
    assert ids.shape == (ROUNDS, MEMBERS)
    assert ids.dtype == np.int32
    assert ids.min() == 0
    assert ids.max() == CLIENTS - 1
    assert np.all(np.diff(np.sort(ids, axis=1), axis=1) > 0)


def test_uniform_marginals() -> None:
    """One client: M / N. A pair: M (M - 1) / (N (N - 1)). Within 5 standard errors."""
    present = (drawn()[:, :, None] == np.arange(CLIENTS)).any(axis=1).astype(float)
    together = present.T @ present / ROUNDS
    one, pair = MEMBERS / CLIENTS, MEMBERS * (MEMBERS - 1) / (CLIENTS * (CLIENTS - 1))
    expected = np.where(np.eye(CLIENTS, dtype=bool), one, pair)
    np.testing.assert_allclose(together, expected, rtol=0, atol=5 * np.sqrt(0.25 / ROUNDS))


def test_uniform_places_are_uniform_too() -> None:
    counts = np.stack([np.bincount(column, minlength=CLIENTS) for column in drawn().T])
    np.testing.assert_allclose(counts / ROUNDS, 1 / CLIENTS, rtol=0, atol=5 * np.sqrt(0.125 / ROUNDS))


def test_uniform_depends_on_seed_and_round_alone() -> None:
    assert not np.array_equal(drawn(0), drawn(1))
    assert len(np.unique(drawn(), axis=0)) == CLIENTS * (CLIENTS - 1) * (CLIENTS - 2)
    alone = cohorts.uniform(MEMBERS)(rng.round_keys(rng.seed_key(0), 17), CLIENTS)
    np.testing.assert_array_equal(alone.ids, drawn()[17])
    assert alone.count == MEMBERS


@pytest.mark.parametrize("size", [0, -2, 1.5, False, "3"])
def test_bad_sizes_are_named(size: int) -> None:
    with pytest.raises(ValueError, match=f"cohort_size={size!r}; allowed: an integer from 1 up"):
        cohorts.uniform(size)


def test_a_cohort_larger_than_all_is_refused() -> None:
    with pytest.raises(ValueError, match=r"cohort_size=8; allowed: an integer from 1 to 7 \(num_clients\)"):
        cohorts.uniform(8)(rng.round_keys(rng.seed_key(0), 0), CLIENTS)


def test_a_traced_size_is_refused_in_words() -> None:
    with pytest.raises(ValueError, match="cohort_size is traced; it sets shapes"):
        jax.jit(lambda size: cohorts.uniform(size)(rng.round_keys(rng.seed_key(0), 0), CLIENTS).ids)(3)
