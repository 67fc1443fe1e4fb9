"""The test run: strict types and shapes, four fake CPU devices, real data on demand."""

from collections.abc import Callable

import jax
import pytest
from hypothesis import settings

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
