"""How samples are dealt to clients.

Every function returns a list of int64 index arrays, one per client, in which every sample occurs
exactly once and no client is empty. Within a client the order is random, so that batches taken in
order mix the classes. `seed` belongs to the partition alone: runs with other seeds share the split.
"""

from collections.abc import Sequence

import numpy as np

__all__ = ["dirichlet", "dirichlet_prior", "given_sizes", "iid", "label_shards", "random_sizes"]

Partition = list[np.ndarray]


def iid(num_samples: int, num_clients: int, seed: int) -> Partition:
    """Samples dealt uniformly at random; sizes differ by at most 1.

    Raises:
        ValueError: fewer samples than clients.

    Example:
        >>> [own.tolist() for own in iid(5, 2, seed=0)]
        [[2, 4, 3], [0, 1]]
    """
    generator = _generator(seed)
    _check_clients(num_samples, num_clients)
    return np.array_split(generator.permutation(num_samples), num_clients)


def given_sizes(num_samples: int, sizes: Sequence[int], seed: int) -> Partition:
    """Samples dealt uniformly at random, `sizes[i]` of them to client i.

    Raises:
        ValueError: a size below 1, or sizes that do not sum to `num_samples`.

    Example:
        >>> [len(own) for own in given_sizes(6, [1, 3, 2], seed=0)]
        [1, 3, 2]
    """
    generator = _generator(seed)
    sizes = [int(size) for size in sizes]
    _check_clients(num_samples, len(sizes))
    if min(sizes) < 1:
        raise ValueError(f"sizes={sizes}: every client needs at least 1 sample")
    if sum(sizes) != num_samples:
        raise ValueError(f"sizes={sizes} sum to {sum(sizes)}; must sum to num_samples={num_samples}")
    return np.split(generator.permutation(num_samples), np.cumsum(sizes)[:-1])


def random_sizes(num_samples: int, num_clients: int, seed: int, min_size: int = 1) -> Partition:
    """Samples dealt uniformly at random in sizes drawn at random: all allowed sizes equally likely.

    Raises:
        ValueError: `num_clients * min_size` exceeds `num_samples`.

    Example:
        >>> parts = random_sizes(1000, 4, seed=0, min_size=100)
        >>> [len(own) for own in parts]
        [408, 174, 227, 191]
    """
    generator = _generator(seed)
    _check_clients(num_samples, num_clients, min_size)
    # Sizes above the minimum are a composition of the rest: bars among stars, uniformly.
    spare = num_samples - num_clients * min_size
    bars = np.sort(generator.choice(spare + num_clients - 1, num_clients - 1, replace=False))
    extra = np.diff(bars, prepend=-1, append=spare + num_clients - 1) - 1
    return np.split(generator.permutation(num_samples), np.cumsum(min_size + extra)[:-1])


def label_shards(labels: np.ndarray, num_clients: int, shards_per_client: int = 2, *, seed: int) -> Partition:
    """Sorted by label, cut into equal shards, each client dealt `shards_per_client` of them at random.

    Where the samples do not divide evenly, the first shards hold one sample more. FedZO's
    Fashion-MNIST setting is 50 clients with 2 of 100 shards of 600.

    Args:
        labels: int[samples].

    Raises:
        ValueError: fewer samples than shards.

    Source:
        McMahan et al. 2017, arXiv:1602.05629, section 3.

    Example:
        >>> labels = np.repeat(np.arange(4), 10)
        >>> [np.unique(labels[own]).tolist() for own in label_shards(labels, 2, seed=0)]
        [[0, 2], [1, 3]]
    """
    generator = _generator(seed)
    labels = _check_labels(labels)
    _check_positive("shards_per_client", shards_per_client)
    _check_clients(len(labels), num_clients, shards_per_client)
    num_shards = num_clients * shards_per_client
    shards = np.array_split(np.argsort(labels, kind="stable"), num_shards)
    dealt = generator.permutation(num_shards).reshape(num_clients, shards_per_client)
    return [generator.permutation(np.concatenate([shards[shard] for shard in own])) for own in dealt]


def dirichlet(
    labels: np.ndarray,
    num_clients: int,
    alpha: float,
    seed: int,
    *,
    min_size: int = 1,
    max_tries: int = 100,
) -> Partition:
    """Each class shared among the clients by a draw of the symmetric Dirichlet(alpha); sizes vary.

    alpha to 0 puts each class on one client; alpha to infinity gives every client the class shares of
    the whole. A draw that leaves a client with fewer than `min_size` samples is drawn again. This is
    what most papers mean by "Dirichlet(alpha)"; the code of DeComFL is `dirichlet_prior`.

    Args:
        labels: int[samples].
        alpha: positive and finite.
        max_tries: draws before giving up.

    Raises:
        ValueError: bad settings, or no draw gave every client `min_size` samples.

    Source:
        Hsu, Qi and Brown 2019, arXiv:1909.06335, as implemented by Li et al. 2021, arXiv:2102.02079.

    Example:
        >>> labels = np.repeat(np.arange(2), 50)
        >>> [np.bincount(labels[own], minlength=2).tolist() for own in dirichlet(labels, 3, 1.0, seed=0)]
        [[19, 0], [30, 12], [1, 38]]
    """
    generator = _generator(seed)
    labels = _check_labels(labels)
    _check_alpha(alpha)
    _check_positive("max_tries", max_tries)
    _check_clients(len(labels), num_clients, min_size)
    members = [np.flatnonzero(labels == label) for label in np.unique(labels)]
    for _ in range(max_tries):
        shares = generator.dirichlet(np.full(num_clients, float(alpha)), len(members))
        clients = _deal(members, shares, generator)
        if min(len(own) for own in clients) >= min_size:
            return [generator.permutation(own) for own in clients]
    raise ValueError(
        f"alpha={alpha} with num_clients={num_clients} left a client with fewer than min_size={min_size} "
        f"samples in each of {max_tries} draws; use a larger alpha, fewer clients or a smaller min_size"
    )


def dirichlet_prior(labels: np.ndarray, num_clients: int, alpha: float, seed: int) -> Partition:
    """Client class shares drawn from Dirichlet(alpha * class frequencies), then balanced to equal sizes.

    The convention of DeComFL's code. Its total concentration is alpha, not alpha times the number of
    classes: alpha = 1 for 10 classes is about as uneven as the symmetric Dirichlet(0.1). Client i
    draws q_i; class c is cut in proportion to q_1[c] ... q_N[c]; then clients above the common size
    hand samples of their own, chosen at random, to those below.

    Departures from that code: the remainder of samples over clients is kept, one more sample for the
    clients that were largest (so sizes differ by at most 1), where the code drops it; a class is shuffled
    before it is cut; order within a client is random, not sorted.

    Args:
        labels: int[samples].
        alpha: positive and finite.

    Raises:
        ValueError: bad settings, or fewer samples than clients.

    Example:
        >>> labels = np.repeat(np.arange(2), 50)
        >>> parts = dirichlet_prior(labels, 4, 1.0, seed=0)
        >>> [np.bincount(labels[own], minlength=2).tolist() for own in parts]
        [[19, 6], [14, 11], [5, 20], [12, 13]]
    """
    generator = _generator(seed)
    labels = _check_labels(labels)
    _check_alpha(alpha)
    _check_clients(len(labels), num_clients)
    members = [np.flatnonzero(labels == label) for label in np.unique(labels)]
    frequencies = np.array([len(own) for own in members]) / len(labels)
    weights = generator.dirichlet(alpha * frequencies, num_clients).T
    totals = weights.sum(axis=1, keepdims=True)
    # With a tiny alpha a class may have no weight with any client: any cut is as good, take the even one.
    shares = np.where(totals > 0, weights / np.where(totals > 0, totals, 1.0), 1.0 / num_clients)
    return _balance(_deal(members, shares, generator), generator)


def _deal(members: list[np.ndarray], shares: np.ndarray, generator: np.random.Generator) -> Partition:
    """Shuffles each class and cuts it at the cumulated shares[class, client]."""
    pieces = []
    for own, share in zip(members, shares, strict=True):
        cuts = np.floor(np.cumsum(share)[:-1] * len(own)).astype(np.int64)
        pieces.append(np.split(generator.permutation(own), cuts))
    return [np.concatenate(of_client) for of_client in zip(*pieces, strict=True)]


def _balance(clients: Partition, generator: np.random.Generator) -> Partition:
    """Moves as few samples as it takes to make the sizes differ by at most 1."""
    sizes = np.array([len(own) for own in clients])
    smallest, remainder = divmod(int(sizes.sum()), len(clients))
    targets = np.full(len(clients), smallest)
    targets[np.argsort(-sizes, kind="stable")[:remainder]] += 1
    clients = [generator.permutation(own) for own in clients]
    surplus = [own[target:] for own, target in zip(clients, targets, strict=True)]
    pool = generator.permutation(np.concatenate(surplus))
    lacking = np.maximum(targets - sizes, 0)
    given = np.split(pool, np.cumsum(lacking)[:-1])
    return [
        generator.permutation(np.concatenate([own[:target], more]))
        for own, target, more in zip(clients, targets, given, strict=True)
    ]


def _generator(seed: int) -> np.random.Generator:
    if isinstance(seed, bool) or not isinstance(seed, int | np.integer) or seed < 0:
        raise ValueError(f"seed={seed!r} is not allowed; must be an integer of at least 0")
    return np.random.default_rng(int(seed))


def _check_positive(setting: str, value: int) -> None:
    if isinstance(value, bool) or not isinstance(value, int | np.integer) or value < 1:
        raise ValueError(f"{setting}={value!r} is not allowed; must be an integer of at least 1")


def _check_clients(num_samples: int, num_clients: int, min_size: int = 1) -> None:
    _check_positive("num_samples", num_samples)
    _check_positive("num_clients", num_clients)
    _check_positive("min_size", min_size)
    if num_clients * min_size > num_samples:
        raise ValueError(
            f"num_clients={num_clients} with at least {min_size} samples each need "
            f"{num_clients * min_size} samples; there are {num_samples}"
        )


def _check_alpha(alpha: float) -> None:
    if not (np.isfinite(alpha) and alpha > 0):
        raise ValueError(f"alpha={alpha} is not allowed; must be positive and finite")


def _check_labels(labels: np.ndarray) -> np.ndarray:
    labels = np.asarray(labels)
    if labels.ndim != 1 or not np.issubdtype(labels.dtype, np.integer):
        raise ValueError(f"labels of shape {labels.shape} and dtype {labels.dtype}; must be int[samples]")
    return labels
