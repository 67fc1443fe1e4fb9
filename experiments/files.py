"""Files that are whole or not there: written beside their place, then moved into it."""

import contextlib
import csv
import json
import os
import threading
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

__all__ = ["replacing", "write_json", "write_rows", "writing"]

writing = threading.RLock()
"""Held while a file is on its way to its place: who has it can end the process without leaving a part of one."""


@contextlib.contextmanager
def replacing(path: Path) -> Iterator[Path]:
    """A path to write to; on success the file there becomes `path` at once, on failure it is removed."""
    path.parent.mkdir(parents=True, exist_ok=True)
    beside = path.with_name(f".{path.name}.partial{path.suffix}")
    with writing:
        try:
            yield beside
            with beside.open("rb") as written:
                os.fsync(written.fileno())
            beside.replace(path)
        finally:
            beside.unlink(missing_ok=True)


def write_json(path: Path, content: Any) -> None:
    """Writes indented JSON, atomically."""
    with replacing(path) as beside:
        beside.write_text(json.dumps(content, indent=2) + "\n")


def write_rows(path: Path, rows: Sequence[Mapping[str, Any]]) -> Path:
    """Writes CSV with a column for each name in the first row, atomically, and returns its path."""
    with replacing(path) as beside, beside.open("w", newline="") as file:
        writer = csv.DictWriter(file, rows[0].keys())
        writer.writeheader()
        writer.writerows(rows)
    return path
