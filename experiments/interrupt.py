"""Ctrl-C and SIGTERM as a polite request: finish the current segment, save, stop. A second one stops at once."""

import contextlib
import os
import signal
import sys
import threading
from collections.abc import Callable, Iterator

from experiments.files import writing

__all__ = ["on_request"]

_SIGNALS = (signal.SIGINT, signal.SIGTERM)


@contextlib.contextmanager
def on_request(kept: Callable[[], str]) -> Iterator[Callable[[], bool]]:
    """Within it, a first signal only makes the function it yields return True; a second one ends the process.

    A thread listens, since Python runs handlers between two steps of the main thread, and a segment is one step. The
    exit code is then 1, and no file is left half-written.

    Args:
        kept: what there is to go on from after such an end, in words; called by the thread.
    """
    requested = threading.Event()
    reading, written = os.pipe()
    os.set_blocking(written, False)  # as Python asks for: a handler must not wait

    def listen() -> None:
        while number := os.read(reading, 1):
            if number[0] not in _SIGNALS:
                continue
            if requested.is_set():
                with writing:
                    try:
                        show_cursor = "\x1b[?25h" if sys.stderr.isatty() else ""  # which a progress bar hides
                        print(f"{show_cursor}\nstopped at once; {kept()}", file=sys.stderr, flush=True)
                    finally:
                        os._exit(1)
            requested.set()
            print("stopping after this segment; once more to stop at once", file=sys.stderr, flush=True)

    listener = threading.Thread(target=listen, name="interrupts", daemon=True)
    listener.start()
    # Python writes signals to the pipe only where they have handlers of its own.
    usual_handlers = {number: signal.signal(number, lambda *_: None) for number in _SIGNALS}
    usual_pipe = signal.set_wakeup_fd(written)
    try:
        yield requested.is_set
    finally:
        signal.set_wakeup_fd(usual_pipe)
        for number, handler in usual_handlers.items():
            signal.signal(number, handler)
        os.close(written)
        listener.join()
        os.close(reading)
