"""What a process keeps: of the memory it has freed, and of the segments it has played."""

import platform
import subprocess
import sys
from pathlib import Path

import jax
import pytest

from experiments import build, execution, memory, sweeps
from experiments.execution import Chunks
from experiments.progress import Progress
from experiments.settings import quadratics, study
from zofed import sweep

ROOT = Path(memory.__file__).parent.parent
FREE = """
import re
from pathlib import Path
from experiments import memory
def held():
    return int(re.search(r"VmRSS:\\s+(\\d+) kB", Path("/proc/self/status").read_text())[1])
before = held()
blocks = [b"x" * 50_000 for _ in range(2_000)]
last = b"x" * 50_000  # above the others, so that these are not at the heap's end
del blocks
freed = held()
memory.give_back()
print(freed - before, held() - before)
"""


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="malloc_trim is glibc's")
def test_freed_memory_goes_back_to_the_system() -> None:
    output = subprocess.run([sys.executable, "-c", FREE], cwd=ROOT, capture_output=True, text=True, check=True).stdout
    kept, after = map(int, output.split())
    assert kept > 90_000  # kB, of the 97,656 that the blocks had
    assert after < 10_000


class Watched(Progress):
    """Counts after each segment the arrays on the devices, their bytes, and the programs compiled so far."""

    def __init__(self, log: pytest.LogCaptureFixture) -> None:
        super().__init__(0, False)
        self.log, self.seen = log, []

    def rounds(self, played: int, loss: float) -> None:
        arrays = jax.live_arrays()
        compiled = sum(record.getMessage().startswith("Finished XLA compilation") for record in self.log.records)
        self.seen.append((len(arrays), sum(array.nbytes for array in arrays), compiled))


def test_segments_leave_nothing_on_the_devices_and_compile_nothing(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    config = study(quadratics(dim=5, samples_per_client=4))
    config.num_clients, config.cohort_size, config.num_rounds, config.eval_every = 3, 2, 6, 1
    config.algorithm.update(name="decomfl", local_steps=1, num_directions=2, batch_size=2, smoothing=0.1)
    config.algorithm.directions = "gaussian"
    (group,) = sweep.split(sweeps.parse(["seed=range(2)"], config), build.traced_settings(config))

    def announce(chunks: Chunks, devices: object, memory: int) -> None: ...

    progress = Watched(caplog)
    with jax.log_compiles():
        execution.run(config, [group], tmp_path, lambda: False, announce, progress)
    before, *segments = progress.seen
    assert len(segments) == config.num_rounds
    assert segments[0][2] > before[2] > 0  # the program of all segments
    assert set(segments[1:]) == {segments[1]}
    assert segments[1][2] == segments[0][2]
