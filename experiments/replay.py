"""Rebuilds every trained model of a run from its keys and scalars, and compares: DeComFL and its relatives.

    python -m experiments.replay --workdir=runs/decomfl_digits

One line per cell: `match` (bit for bit), `close` (made with other versions or hardware, with the largest difference) or
MISMATCH. Exit codes: 0 no mismatch, 1 a mismatch, a damaged history or wrong usage.
"""

import functools
import json
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import jax
import numpy as np
from absl import flags
from ml_collections import ConfigDict

from experiments import build, checkpoint, history, schedule, shared_directions
from experiments.history import HistoryFile
from experiments.schedule import Phase
from experiments.settings import Config
from experiments.sweeps import apply
from zofed import replay, sweep
from zofed.algorithms.decomfl import start
from zofed.replay import History
from zofed.sweep import Group, initial_params

__all__ = ["Verdict", "main", "verdicts"]

CLOSE = 1e-3
"""Largest difference, relative to the largest entry, that other versions or hardware may make."""


class Verdict(NamedTuple):
    """What replaying a cell showed; `word` is match, close or MISMATCH, or "not run"."""

    cell: int
    word: str
    detail: str

    def __str__(self) -> str:
        return f"cell {self.cell}: {self.word}" + (f"  {self.detail}" if self.detail else "")


def verdicts(directory: Path) -> Iterator[Verdict]:
    """Replays the cells of the run in `directory`, group by group.

    Raises:
        ValueError: there is no run, or its algorithm keeps no history.
    """
    path = directory / "config.json"
    if not path.exists():
        raise ValueError(f"--workdir={directory} holds no run: there is no {path.name} in it")
    described = json.loads(path.read_text())
    config = ConfigDict(described["config"])
    axes = [sweep.Axis(name, tuple(map(_as_swept, values))) for name, values in described["sweep"].items()]
    grid = sweep.product(axes)
    kept = 0
    for number, group in enumerate(sweep.split(grid, build.traced_settings(config))):
        own = apply(config, group.static)
        if own.algorithm.name in shared_directions.NAMES:
            kept += 1
            yield from _group(own, group, directory, directory / "checkpoints" / f"group_{number:03d}.msgpack")
    if not kept:
        raise ValueError(f"no algorithm of this run keeps a history; those do: {', '.join(shared_directions.NAMES)}")


def _as_swept(value: Any) -> Any:
    """JSON has no tuples, such as the settings of a schedule are."""
    return tuple(value) if isinstance(value, list) else value


def _group(config: Config, group: Group, directory: Path, saved: Path) -> Iterator[Verdict]:
    agreed, task = shared_directions.rule_of(config), build.task_of(config)
    rebuild = jax.jit(functools.partial(replay.rebuild, agreed))
    first = jax.jit(lambda seed: start(agreed, initial_params(task.init, seed)))
    trained = _trained(config, group, saved)
    for place, cell in enumerate(group.cells):
        path = history.path_of(directory / "history", cell)
        if not path.exists() and not saved.exists():
            yield Verdict(cell, "not run", "")
            continue
        rebuilt = first(group.traced["seed"][place])
        try:
            file = history.load(path)
            parts = _parts(file.history, schedule.phases(config))
        except ValueError as error:
            yield Verdict(cell, "MISMATCH", str(error))
            continue
        for part in parts:
            rebuilt = rebuild(rebuilt, part)
        model = None
        if trained is not None and trained.round == len(file.history.round):
            model = jax.tree.map(lambda leaf, place=place: leaf[place], trained.states.server)
        yield _judge(cell, file, rebuilt, model)


def _parts(whole: History, phases: list[Phase]) -> list[History]:
    """The history phase by phase, without the zeros that fill up scalars to the most directions: none is drawn there.

    Raises:
        ValueError: a phase has more scalars than directions.
    """
    parts = []
    for phase in phases:
        own = History(*(field[phase.first : phase.end] for field in whole))
        if np.any(own.scalars[..., phase.num_directions :]):
            raise ValueError(
                f"rounds from {phase.first} on hold scalars beyond their {phase.num_directions} directions"
            )
        if len(own.round):
            parts.append(own._replace(scalars=own.scalars[..., : phase.num_directions]))
    return parts


def _trained(config: Config, group: Group, path: Path) -> checkpoint.Checkpoint | None:
    if not path.exists():
        return None
    task = build.task_of(config)
    program = sweep.vectorise(build.cell_of(config, task, None, None), len(group.cells))
    shapes = jax.eval_shape(program.start, program.pad(group.traced), task.data)[0]
    return checkpoint.load(path, shapes)


def _judge(cell: int, file: HistoryFile, rebuilt: Any, model: Any) -> Verdict:
    """Compares digests; and entries, where the trained model is at hand."""
    rounds = f"{len(file.history.round)} rounds"
    if model is not None and replay.digest(model) != file.model:
        return Verdict(
            cell, "MISMATCH", f"{rounds}; the checkpoint holds another model than the history was saved with"
        )
    if replay.digest(rebuilt) == file.model:
        return Verdict(cell, "match", rounds)
    here = history.made_by()
    if model is None:
        return Verdict(
            cell, "MISMATCH", f"{rounds}; made by {file.made_by}, replayed by {here}; no checkpoint to compare"
        )
    pairs = zip(jax.tree.leaves(rebuilt.params), jax.tree.leaves(model.params), strict=True)
    differences = [(np.abs(np.asarray(ours) - theirs).max(), np.abs(theirs).max()) for ours, theirs in pairs]
    largest, size = (float(max(values)) for values in zip(*differences, strict=True))
    detail = f"{rounds}; largest difference {largest:.1e}"
    if file.made_by != here and largest <= CLOSE * max(size, 1.0):
        return Verdict(cell, "close", f"{detail}; made by {file.made_by}, replayed by {here}")
    return Verdict(cell, "MISMATCH", detail)


def main(arguments: Sequence[str]) -> int:
    """The command, `arguments[0]` being its name; returns the exit code."""
    values = flags.FlagValues()
    flags.DEFINE_string("workdir", None, "Directory of the run.", flag_values=values)
    try:
        rest = values(list(arguments))[1:]
        if rest or not values.workdir:
            raise ValueError(f"{rest} are no options" if rest else "--workdir=DIR is missing: the directory of the run")
        mismatches = 0
        for verdict in verdicts(Path(values.workdir)):
            print(verdict, flush=True)
            mismatches += verdict.word == "MISMATCH"
    except (flags.Error, OSError, ValueError) as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    return 1 if mismatches else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv))
