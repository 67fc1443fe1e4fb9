"""Ctrl-C and SIGTERM as a polite request: finish the current segment, save, stop."""

import contextlib
import signal
import sys
from collections.abc import Callable, Iterator
from typing import Any

__all__ = ["on_request"]

_SIGNALS = (signal.SIGINT, signal.SIGTERM)


@contextlib.contextmanager
def on_request() -> Iterator[Callable[[], bool]]:
    """Within it, a first signal only makes the function it yields return True; a second one acts as usual."""
    usual = {number: signal.getsignal(number) for number in _SIGNALS}
    requested = False

    def restore() -> None:
        for number, handler in usual.items():
            signal.signal(number, handler)

    def note(number: int, frame: Any) -> None:
        del number, frame
        nonlocal requested
        requested = True
        restore()
        print("stopping after this segment; once more to stop at once", file=sys.stderr)

    for number in _SIGNALS:
        signal.signal(number, note)
    try:
        yield lambda: requested
    finally:
        restore()
