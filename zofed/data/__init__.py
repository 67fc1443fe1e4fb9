"""Real data and its partition over clients."""

from zofed.data.datasets import (
    NAMES,
    NORMALISATIONS,
    CorruptDataError,
    Dataset,
    MissingDataError,
    Normalisation,
    cache_directory,
    load,
)
from zofed.data.fetch import FetchError, fetch
from zofed.data.partitions import (
    dirichlet,
    dirichlet_prior,
    given_sizes,
    iid,
    label_shards,
    random_sizes,
)

__all__ = [
    "NAMES",
    "NORMALISATIONS",
    "CorruptDataError",
    "Dataset",
    "FetchError",
    "MissingDataError",
    "Normalisation",
    "cache_directory",
    "dirichlet",
    "dirichlet_prior",
    "fetch",
    "given_sizes",
    "iid",
    "label_shards",
    "load",
    "random_sizes",
]
