"""Signals while the main thread is in one long call, as in a segment of a run."""

import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import IO

import pytest

from experiments import interrupt

ROOT = Path(interrupt.__file__).parent.parent
BUSY = "hashlib.pbkdf2_hmac('sha256', b'', b'', 10**9)"
"""Minutes in C without the interpreter's lock, during which Python runs no handler of a signal."""


def started(code: str, *arguments: str) -> subprocess.Popen[str]:
    """A process that runs `code` within `on_request`, `requested` being what that yields; it says when it is there."""
    lines = [
        "import hashlib, sys",
        "from pathlib import Path",
        "from experiments import files, interrupt",
        "with interrupt.on_request(lambda: 'some rounds are kept') as requested:",
        *(f"    {line}" for line in code.splitlines()),
    ]
    command = [sys.executable, "-c", "\n".join(lines), *arguments]
    pipe = subprocess.PIPE
    process = subprocess.Popen(command, cwd=ROOT, stdin=pipe, stdout=pipe, stderr=pipe, text=True)
    assert line(process.stdout) == "there"
    return process


def line(stream: IO[str] | None) -> str:
    assert stream is not None
    return stream.readline().strip()


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_second_signal_ends_the_process_in_the_middle_of_a_call(number: int) -> None:
    with started(f"print('there', flush=True)\n{BUSY}") as process:
        process.send_signal(number)
        assert line(process.stderr) == "stopping after this segment; once more to stop at once"
        assert process.poll() is None
        process.send_signal(number)
        _, error = process.communicate(timeout=20)
    assert error == "\nstopped at once; some rounds are kept\n"
    assert process.returncode == 1


def test_a_file_on_its_way_is_finished_first(tmp_path: Path) -> None:
    code = f"""\
with files.replacing(Path(sys.argv[1])) as beside:
    beside.write_text("half")
    print("there", flush=True)
    sys.stdin.readline()
    beside.write_text("whole")
{BUSY}"""
    path = tmp_path / "file.txt"
    with started(code, str(path)) as process:
        process.send_signal(signal.SIGINT)
        assert line(process.stderr).startswith("stopping")
        process.send_signal(signal.SIGINT)
        with pytest.raises(subprocess.TimeoutExpired):
            process.wait(timeout=0.5)
        process.communicate("\n", timeout=20)
    assert process.returncode == 1
    assert path.read_text() == "whole"
    assert list(tmp_path.iterdir()) == [path]


def test_one_signal_is_a_request_and_handlers_are_as_before_after_it() -> None:
    before = [signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)]
    descriptors = len(os.listdir("/proc/self/fd")) if Path("/proc/self/fd").exists() else 0
    with interrupt.on_request(lambda: "") as requested:
        assert not requested()
        signal.raise_signal(signal.SIGTERM)
        while not requested():
            pass
    assert [signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)] == before
    assert signal.set_wakeup_fd(-1) == -1
    if descriptors:
        assert len(os.listdir("/proc/self/fd")) == descriptors
