"""History files: what each cell's model can be rebuilt from, with digests that tell when a file was changed."""

import platform
import struct
import zipfile
import zlib
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import jax
import numpy as np

from experiments.files import replacing
from zofed import replay
from zofed.replay import History

__all__ = ["Histories", "HistoryFile", "load", "made_by", "path_of", "save"]


_READ_ERRORS = (
    zipfile.BadZipFile,
    zlib.error,
    struct.error,
    EOFError,
    KeyError,
    OSError,
    RuntimeError,
    TypeError,
    ValueError,
)
"""What numpy and zipfile raise for a file that is not what they wrote."""


class HistoryFile(NamedTuple):
    """What a file holds.

    Attributes:
        history: all rounds from the first on.
        model: SHA-256 of the trained model and its optimiser's state, after the last of them.
        made_by: versions and hardware that it was made with.
    """

    history: History
    model: str
    made_by: str


def path_of(directory: Path, cell: int) -> Path:
    """The place of a cell's file in the directory of histories."""
    return directory / f"cell_{cell:05d}.npz"


def made_by() -> str:
    """What bit-equality is promised for: the same versions on the same hardware."""
    device = jax.local_devices()[0]
    return f"jax {jax.__version__}, {device.platform} {device.device_kind}, {platform.machine()}"


def save(path: Path, file: HistoryFile) -> None:
    """Writes a history, atomically; equal contents make equal files."""
    arrays: dict[str, Any] = {
        **file.history._asdict(),
        "model": np.array(file.model),
        "made_by": np.array(file.made_by),
    }
    with replacing(path) as beside:
        np.savez_compressed(beside, **arrays, content=np.array(_content(file)))


def _content(file: HistoryFile) -> str:
    texts = (np.frombuffer(text.encode(), np.uint8) for text in (file.model, file.made_by))
    return replay.digest((*file.history, *texts))


def load(path: Path) -> HistoryFile:
    """The history at `path`.

    Raises:
        ValueError: it is not there, cut short, changed since it was written, or no such file; the message says which.
    """
    if not path.exists():
        raise ValueError(f"{path} does not exist")
    try:
        with path.open("rb") as opened, np.load(opened, allow_pickle=False) as content:
            arrays = {name: content[name] for name in content.files}
    except _READ_ERRORS as error:
        raise ValueError(f"{path} is cut short or no history: {error}") from error
    wanted = {*History._fields, "model", "made_by", "content"}
    if set(arrays) != wanted:
        raise ValueError(f"{path} is no history: it holds {sorted(arrays)}, not {sorted(wanted)}")
    history = History(*(arrays[name] for name in History._fields))
    file = HistoryFile(history, str(arrays["model"]), str(arrays["made_by"]))
    if _content(file) != str(arrays["content"]):
        raise ValueError(f"{path} was changed after it was written: its contents do not match their digest")
    if not np.array_equal(history.round, np.arange(len(history.round))):
        raise ValueError(f"{path} holds the rounds {history.round.tolist()[:5]} ..., not 0, 1, 2 ...")
    return file


class Histories:
    """The growing histories of a group's cells; of an algorithm that keeps none, nothing."""

    def __init__(self, directory: Path, cells: Sequence[int]) -> None:
        self.paths = [path_of(directory, cell) for cell in cells]
        self.parts: list[History] = []

    def append(self, history: History | None) -> None:
        """Takes the rounds of a segment, with a leading axis of cells."""
        if history is not None:
            self.parts.append(history)

    def resume(self, num_rounds: int) -> None:
        """Takes up the first rounds of what the files hold, if there are any.

        Raises:
            ValueError: a file is damaged, or ends before the checkpoint.
        """
        if num_rounds == 0 or not any(path.exists() for path in self.paths):
            return
        own = []
        for path in self.paths:
            history = load(path).history
            if len(history.round) < num_rounds:
                raise ValueError(
                    f"{path} ends after round {len(history.round)}, its checkpoint after {num_rounds}; "
                    "delete both to play their cells again"
                )
            own.append(replay.rounds_between(history, 0, num_rounds))
        self.parts = [jax.tree.map(lambda *fields: np.stack(fields), *own)]

    def save(self, models: Any) -> None:
        """Writes every cell's file; `models` has a leading axis of cells."""
        if not self.parts:
            return
        for number, path in enumerate(self.paths):
            own = [History(*(field[number] for field in part)) for part in self.parts]
            model = replay.digest(jax.tree.map(lambda leaf, number=number: leaf[number], models))
            save(path, HistoryFile(replay.concatenate(own), model, made_by()))
