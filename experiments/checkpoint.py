"""Checkpoints: the states of a group's cells and what was recorded of them so far, as msgpack."""

from pathlib import Path
from typing import Any, NamedTuple

import flax.serialization
import jax
import numpy as np

from experiments.files import replacing
from experiments.metrics import Records

__all__ = ["Checkpoint", "load", "save"]


class Checkpoint(NamedTuple):
    """Where a group of cells stands after `round` rounds."""

    round: int
    states: Any
    records: Records


def save(path: Path, checkpoint: Checkpoint) -> None:
    """Writes a checkpoint, atomically."""
    with replacing(path) as beside:
        beside.write_bytes(flax.serialization.to_bytes(checkpoint._asdict()))


def load(path: Path, like: Any) -> Checkpoint | None:
    """The checkpoint at `path`, None where there is none.

    Args:
        like: states of the same structure, arrays or their shapes.

    Raises:
        ValueError: the file does not fit.
    """
    if not path.exists():
        return None
    try:
        content: Any = flax.serialization.msgpack_restore(path.read_bytes())
        states = flax.serialization.from_state_dict(like, content["states"])
    except (KeyError, TypeError, ValueError) as error:
        raise ValueError(
            f"{path} is damaged or from another version: {error}; delete it to play its cells again"
        ) from error
    fits = jax.tree.map(lambda kept, wanted: np.shape(kept) == wanted.shape, states, like)
    if not all(jax.tree.leaves(fits)):
        raise ValueError(f"{path} holds states of other shapes; delete it to play its cells again")
    return Checkpoint(int(content["round"]), states, dict(content["records"]))
