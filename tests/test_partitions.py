"""Partitions: exact, never empty, seeded, and as uneven as they say."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from zofed.data import partitions

LABELS = np.repeat(np.arange(10), 6000)

# name -> partition of these labels over so many clients
ALL = {
    "iid": lambda labels, clients, seed: partitions.iid(len(labels), clients, seed),
    "given_sizes": lambda labels, clients, seed: partitions.given_sizes(
        len(labels), [1] * (clients - 1) + [len(labels) - clients + 1], seed
    ),
    "random_sizes": lambda labels, clients, seed: partitions.random_sizes(len(labels), clients, seed),
    "label_shards": lambda labels, clients, seed: partitions.label_shards(labels, clients, 2, seed=seed),
    "dirichlet": lambda labels, clients, seed: partitions.dirichlet(labels, clients, 10.0, seed),
    "dirichlet_prior": lambda labels, clients, seed: partitions.dirichlet_prior(labels, clients, 1.0, seed),
}


def shuffled_labels(num_samples: int) -> np.ndarray:
    return np.random.default_rng(3).integers(0, 5, num_samples)


def histograms(labels: np.ndarray, clients: list[np.ndarray]) -> np.ndarray:
    return np.array([np.bincount(labels[own], minlength=10) for own in clients])


def mean_top_share(clients: list[np.ndarray]) -> float:
    counts = histograms(LABELS, clients)
    return float(np.mean(counts.max(axis=1) / counts.sum(axis=1)))


@pytest.mark.parametrize("name", ALL)
@given(num_samples=st.integers(60, 200), num_clients=st.integers(1, 5), seed=st.integers(0, 2**40))
def test_every_sample_once_and_no_client_empty(name: str, num_samples: int, num_clients: int, seed: int):
    clients = ALL[name](shuffled_labels(num_samples), num_clients, seed)
    assert len(clients) == num_clients
    assert min(len(own) for own in clients) >= 1
    np.testing.assert_array_equal(np.sort(np.concatenate(clients)), np.arange(num_samples))


@pytest.mark.parametrize("name", ALL)
def test_seed_fixes_the_partition_and_another_changes_it(name: str):
    labels = shuffled_labels(200)
    first, again, other = (ALL[name](labels, 4, seed) for seed in (0, 0, 1))
    for a, b in zip(first, again, strict=True):
        np.testing.assert_array_equal(a, b)
    assert any(set(a.tolist()) != set(b.tolist()) for a, b in zip(first, other, strict=True))


@pytest.mark.parametrize("name", ALL)
def test_global_generator_is_untouched(name: str):
    np.random.seed(5)  # noqa: NPY002
    expected = np.random.random(4)  # noqa: NPY002
    np.random.seed(5)  # noqa: NPY002
    ALL[name](shuffled_labels(100), 4, 0)
    np.testing.assert_array_equal(np.random.random(4), expected)  # noqa: NPY002


@given(num_samples=st.integers(10, 300), num_clients=st.integers(1, 10), alpha=st.floats(1e-9, 1e9))
def test_dirichlet_prior_sizes_differ_by_at_most_one(num_samples: int, num_clients: int, alpha: float):
    clients = partitions.dirichlet_prior(shuffled_labels(num_samples), num_clients, alpha, 0)
    sizes = [len(own) for own in clients]
    assert max(sizes) - min(sizes) <= 1
    assert len(np.unique(np.concatenate(clients))) == num_samples


def test_iid_sizes_differ_by_at_most_one():
    assert sorted(len(own) for own in partitions.iid(11, 4, 0)) == [2, 3, 3, 3]


def test_clients_order_is_random_within_a_client():
    for name, partition in ALL.items():
        largest = max(partition(LABELS, 10, 0), key=len)
        assert np.any(np.diff(largest) < 0), name


def test_label_shards_of_fedzo():
    """50 clients, 100 shards of 600: each client has 1200 samples of at most two classes."""
    clients = partitions.label_shards(LABELS, 50, 2, seed=0)
    counts = histograms(LABELS, clients)
    assert set(counts.sum(axis=1).tolist()) == {1200}
    assert set(counts[counts > 0].tolist()) == {600, 1200}
    assert 1.8 < np.mean((counts > 0).sum(axis=1)) <= 2


def test_label_shards_are_cut_from_the_stable_order():
    labels = np.array([1, 0, 1, 0, 1])
    clients = partitions.label_shards(labels, 3, 1, seed=0)
    assert sorted(sorted(own.tolist()) for own in clients) == [[0, 2], [1, 3], [4]]


@pytest.mark.parametrize("make", [partitions.dirichlet, partitions.dirichlet_prior])
def test_large_alpha_gives_the_class_shares_of_the_whole(make):
    counts = histograms(LABELS, make(LABELS, 100, 1e9, 0))
    np.testing.assert_allclose(counts, 60, atol=2)


def test_symmetric_dirichlet_one_is_as_uneven_as_known():
    # Exact value for equal sizes: E[max of Dir(1, ..., 1)] = H_10 / 10 = 0.2929.
    share = mean_top_share(partitions.dirichlet(LABELS, 100, 1.0, 0))
    assert share == pytest.approx(0.293, abs=0.03)


def test_dirichlet_prior_one_is_as_uneven_as_the_reference():
    """0.63 measured with the code of DeComFL; 0.29 at alpha = 10."""
    clients = partitions.dirichlet_prior(LABELS, 100, 1.0, 0)
    assert {len(own) for own in clients} == {600}
    assert mean_top_share(clients) == pytest.approx(0.63, abs=0.04)
    assert mean_top_share(partitions.dirichlet_prior(LABELS, 100, 10.0, 0)) == pytest.approx(0.29, abs=0.03)


def test_dirichlet_respects_min_size():
    clients = partitions.dirichlet(LABELS, 20, 0.3, 0, min_size=500)
    assert min(len(own) for own in clients) >= 500


def test_random_sizes_are_uniform_over_compositions():
    """3 samples for 2 clients: sizes (1, 2) and (2, 1) are equally likely."""
    first = [len(partitions.random_sizes(3, 2, seed)[0]) for seed in range(400)]
    assert set(first) == {1, 2}
    assert np.mean(first) == pytest.approx(1.5, abs=0.1)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: partitions.iid(3, 4, 0), "num_clients=4 with at least 1 samples each need 4 samples; there"),
        (lambda: partitions.iid(3, 0, 0), "num_clients=0 is not allowed; must be an integer of at least 1"),
        (lambda: partitions.iid(3, 2, -1), "seed=-1 is not allowed"),
        (lambda: partitions.iid(3, 2, True), "seed=True is not allowed"),
        (lambda: partitions.given_sizes(5, [2, 2], 0), r"sizes=\[2, 2\] sum to 4; must sum to num_samples=5"),
        (lambda: partitions.given_sizes(5, [5, 0], 0), "every client needs at least 1 sample"),
        (lambda: partitions.random_sizes(10, 4, 0, min_size=3), "num_clients=4 with at least 3 samples"),
        (lambda: partitions.label_shards(np.arange(5), 3, 2, seed=0), "num_clients=3 with at least 2"),
        (lambda: partitions.label_shards(np.ones(5), 2, 2, seed=0), "dtype float64; must be int"),
        (lambda: partitions.dirichlet(np.arange(9), 2, 0.0, 0), "alpha=0.0 is not allowed"),
        (lambda: partitions.dirichlet_prior(np.arange(9), 2, np.inf, 0), "alpha=inf is not allowed"),
        (
            lambda: partitions.dirichlet(np.zeros(60, int), 50, 0.01, 0),
            "alpha=0.01 with num_clients=50 left a client with fewer than min_size=1 samples in each of 100",
        ),
    ],
)
def test_bad_settings_are_named(make, message: str):
    with pytest.raises(ValueError, match=message):
        make()
