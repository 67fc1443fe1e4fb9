"""Checkpoints: the states of a group's cells and what was recorded of them so far, as msgpack after its sha256."""

import hashlib
from pathlib import Path
from typing import Any, NamedTuple

import flax.serialization
import jax
import numpy as np

from experiments.files import replacing
from experiments.metrics import Records

__all__ = ["Checkpoint", "load", "path_of", "save", "standing"]

_DIGEST_SIZE = hashlib.sha256().digest_size


class Checkpoint(NamedTuple):
    """Where a group of cells stands after `round` rounds."""

    round: int
    states: Any
    records: Records


def path_of(directory: Path, group: int) -> Path:
    """The place of a group's checkpoint in the directory of a run."""
    return directory / "checkpoints" / f"group_{group:03d}.msgpack"


def standing(directory: Path) -> str:
    """Where the checkpoints in the directory of a run let it go on, in words; groups are counted from 1."""
    paths = sorted((directory / "checkpoints").glob("group_*.msgpack"))
    if not paths:
        return "no round is saved yet"
    done = flax.serialization.msgpack_restore(paths[-1].read_bytes()[_DIGEST_SIZE:])["round"]
    return f"--resume goes on after round {done} of group {len(paths)}"


def save(path: Path, checkpoint: Checkpoint) -> None:
    """Writes a checkpoint, atomically."""
    content = flax.serialization.to_bytes(checkpoint._asdict())
    with replacing(path) as beside:
        beside.write_bytes(hashlib.sha256(content).digest() + content)


def load(path: Path, like: Any) -> Checkpoint | None:
    """The checkpoint at `path`, None where there is none.

    Args:
        like: states of the same structure, arrays or their shapes.

    Raises:
        ValueError: the file is damaged, or does not fit.
    """
    if not path.exists():
        return None
    whole = path.read_bytes()
    digest, content = whole[:_DIGEST_SIZE], whole[_DIGEST_SIZE:]
    if hashlib.sha256(content).digest() != digest:
        raise ValueError(f"{path} is damaged: its sha256 is another; delete it to play its cells again")
    try:
        kept: Any = flax.serialization.msgpack_restore(content)
        states = flax.serialization.from_state_dict(like, kept["states"])
        checkpoint = Checkpoint(int(kept["round"]), states, dict(kept["records"]))
    except (KeyError, TypeError, ValueError) as error:
        raise ValueError(f"{path} is from another version: {error}; delete it to play its cells again") from error
    fits = jax.tree.map(lambda own, wanted: np.shape(own) == wanted.shape and own.dtype == wanted.dtype, states, like)
    if not all(jax.tree.leaves(fits)):
        raise ValueError(f"{path} holds states of other shapes or dtypes; delete it to play its cells again")
    return checkpoint
