"""The test run: strict types and shapes, four fake CPU devices, real data on demand."""

from collections.abc import Callable, Iterator

import jax
import pytest
from hypothesis import settings
from jax.experimental.compilation_cache import compilation_cache as cache

from zofed.data import Dataset, MissingDataError, load

# Before any backend starts: meshes and shard_map need several devices.
jax.config.update("jax_num_cpu_devices", 4)
jax.config.update("jax_numpy_dtype_promotion", "strict")
jax.config.update("jax_numpy_rank_promotion", "raise")

# The same examples in every run, so that a change is judged by what it changed; compiling has no deadline.
settings.register_profile("zofed", derandomize=True, deadline=None)
settings.load_profile("zofed")


@pytest.fixture(scope="session")
def load_real(request: pytest.FixtureRequest) -> Callable[[str], Dataset]:
    """`load`, but a set that is not here skips the test, or fails it under --require-data."""

    def load_or_skip(name: str) -> Dataset:
        try:
            return load(name)
        except MissingDataError as error:
            if request.config.getoption("--require-data"):
                raise
            pytest.skip(str(error))

    return load_or_skip


@pytest.fixture(scope="module")
def compilation_cache(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """As in the apps, equal programs compile once; here they are kept for the module alone."""

    def set_cache(directory: str | None, seconds: float) -> None:
        jax.config.update("jax_compilation_cache_dir", directory)
        jax.config.update("jax_persistent_cache_min_compile_time_secs", seconds)
        cache.reset_cache()

    set_cache(str(tmp_path_factory.mktemp("cache")), 0.0)
    yield
    set_cache(None, 1.0)
