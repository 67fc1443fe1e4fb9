"""A model from keys and scalars alone: the history of a run, and the scan that rebuilds what it made."""

import hashlib
from collections.abc import Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from zofed.descent import Model, Rule, apply

__all__ = ["History", "concatenate", "digest", "rebuild", "rounds_between"]


class History(NamedTuple):
    """What rounds did to the model, one entry per round along the first axis: a few numbers whatever the dimension.

    A schedule is part of the record: each round has the rate and the number of directions that it was played with.

    Attributes:
        round: int32.
        key: uint32[..., 2], the key data of the round's direction stream.
        scalars: [..., local_steps, directions], as the server received them; zero beyond `num_directions`.
        num_directions: int32; 0 for a round in which nobody was heard, and which left the model as it was.
        rate: float32.
    """

    round: Any
    key: Any
    scalars: Any
    num_directions: Any
    rate: Any


def rebuild(rule: Rule, model: Model, history: History) -> Model:
    """Plays the rounds of `history`, in order, on `model`: DeComFL (5), Algorithm 4 lines 2-11. Pure; jit it.

    Bit for bit the server's model, on the same backend and version of JAX, since it is the server's own update.

    Args:
        rule: of the run, `zofed.algorithms.decomfl.rule(...)`.
        model: what the first of the rounds started from.
        history: consecutive rounds.
    """

    def play(model: Model, entry: History) -> tuple[Model, None]:
        key = jax.random.wrap_key_data(entry.key, impl="threefry2x32")
        return apply(rule, key, entry.scalars, entry.num_directions, entry.rate, model), None

    return jax.lax.scan(play, model, jax.tree.map(jnp.asarray, history))[0]


def concatenate(parts: Sequence[History]) -> History:
    """Parts of a history, in order, as one, in numpy. Fewer directions are filled up with zeros: a schedule's phases.

    Example:
        >>> def part(round, directions):
        ...     return History([round], [[0, 7]], np.ones((1, 2, directions), np.float32), [directions], [0.1])
        >>> whole = concatenate([part(0, 1), part(1, 3)])
        >>> whole.scalars.shape, whole.num_directions.tolist()
        ((2, 2, 3), [1, 3])
    """
    parts = [jax.tree.map(np.asarray, part, is_leaf=lambda leaf: not isinstance(leaf, History)) for part in parts]
    most = max(part.scalars.shape[-1] for part in parts)

    def filled(part: History) -> History:
        missing = most - part.scalars.shape[-1]
        return part._replace(scalars=np.pad(part.scalars, [(0, 0)] * (part.scalars.ndim - 1) + [(0, missing)]))

    return History(*(np.concatenate(fields) for fields in zip(*map(filled, parts), strict=True)))


def rounds_between(history: History, first: int, end: int) -> History:
    """The entries of rounds first .. end - 1: all that a client needs that took part in round `first` last.

    Raises:
        ValueError: some of them are not in the history.
    """
    start, held = (int(history.round[0]), len(history.round)) if len(history.round) else (end, 0)
    if first < end and not start <= first <= end <= start + held:
        have = f"rounds {start} to {start + held - 1}" if held else "no round"
        raise ValueError(f"rounds {first} to {end - 1} are wanted; the history holds {have}")
    return History(*(field[first - start : end - start] if first < end else field[:0] for field in history))


def digest(tree: Any) -> str:
    """SHA-256 of the bytes, shapes and dtypes of all leaves, with their paths.

    Example:
        >>> digest({"a": jnp.zeros(2)}) == digest({"a": np.zeros(2, np.float32)}) != digest({"a": np.zeros(2)})
        True
    """
    hashed = hashlib.sha256()
    for path, leaf in jax.tree_util.tree_flatten_with_path(tree)[0]:
        array = np.asarray(leaf)
        little = array.astype(array.dtype.newbyteorder("<"))
        hashed.update(f"{jax.tree_util.keystr(path)} {array.dtype.name} {array.shape};".encode())
        hashed.update(little.tobytes())
    return hashed.hexdigest()
