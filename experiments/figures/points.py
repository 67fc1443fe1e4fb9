"""Figures of measured points: runs of many configs, each over some seeds, with what they show beside what was expected.

A figure is a list of points, each a config that is played over its seeds as one program. Their records are kept in
`points/` of the workdir, so that an interrupted figure goes on where it was.
"""

import hashlib
import shlex
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np
from ml_collections import ConfigDict

from experiments import build, execution, interrupt, workdir
from experiments.figures.command_line import Size, write_report
from experiments.figures.observations import Observation
from experiments.files import replacing
from experiments.metrics import Records, append
from experiments.run import use_cpu_devices
from experiments.settings import Config
from zofed import sweep

__all__ = ["Point", "PointsFigure", "Results", "measure"]


class Point(NamedTuple):
    """One config, played over seeds; `name` is of its file."""

    name: str
    config: Config


Results = Mapping[str, Records]
"""By point: by recorded quantity [seeds, evaluations]."""


class PointsFigure(NamedTuple):
    """A figure made of points.

    Attributes:
        name: of its module.
        title: one line.
        sizes: by "quick", "cpu" and "full".
        points: of a size; there may be none where `finish` does all the work.
        finish: `(size, results, directory) -> observations`; draws and writes what is particular to the figure.
        words: what a size's two numbers count.
    """

    name: str
    title: str
    sizes: Mapping[str, Size]
    points: Callable[[Size], Sequence[Point]]
    finish: Callable[[Size, Results, Path], list[Observation]]
    words: tuple[str, str] = ("rounds", "seeds")

    def describe(self, size: Size) -> str:
        """A size in words."""
        return f"{size.num_rounds} {self.words[0]}, {size.num_seeds} {self.words[1]}"

    def play(self, size: Size, directory: Path, resume: bool, show_progress: bool, repeat: Sequence[str]) -> int:
        """Plays the points and finishes the figure: see `Playable.play`."""
        return _play(self, size, directory, resume, show_progress, repeat)


def _play(
    figure: PointsFigure, size: Size, directory: Path, resume: bool, show_progress: bool, repeat: Sequence[str]
) -> int:
    use_cpu_devices()  # before a task's data start JAX
    points = figure.points(size)
    for point in points:
        build.check(point.config)
    digest = hashlib.sha256("\n".join(f"{point.name}: {point.config}" for point in points).encode()).hexdigest()
    described = {
        "figure": figure.name,
        "num_rounds": size.num_rounds,
        "num_seeds": size.num_seeds,
        "digest_of_points": digest[:16],
    }
    versions = workdir.describe(ConfigDict({"seed": 0}), sweep.product([]))["versions"]
    with workdir.claim(directory, {"config": described, "sweep": {}, "versions": versions}, resume):
        results = _measured(points, size, directory, show_progress)
        if len(results) < len(points):
            print("interrupted; what was computed is saved. To go on:\n  " + shlex.join([*repeat, "--resume"]))
            return 130
        observations = figure.finish(size, results, directory)
        heading = f"{figure.title}: {figure.describe(size)}"
        write_report(heading, observations, directory, sorted(directory.glob("*.png")))
    return 0


def _measured(points: Sequence[Point], size: Size, directory: Path, show_progress: bool) -> dict[str, Records]:
    """The points' records, of the first ones only after an interrupt."""
    results: dict[str, Records] = {}
    with interrupt.on_request(lambda: f"--resume goes on after point {len(results)}") as requested:
        for number, point in enumerate(points, start=1):
            path = directory / "points" / f"{point.name}.npz"
            if not path.exists():
                if show_progress:
                    print(f"point {number} of {len(points)}: {point.name}", file=sys.stderr, flush=True)
                found = measure(point.config, size.num_seeds)
                with replacing(path) as beside:
                    np.savez(beside, **found)  # pyright: ignore[reportArgumentType]
            with np.load(path, allow_pickle=False) as arrays:
                results[point.name] = dict(arrays)
            if requested():
                break
    return results


def measure(config: Config, num_seeds: int) -> Records:
    """What is recorded of a config's runs over seeds from its own one: [seeds, evaluations] by name.

    Small models are vmapped over the seeds, large ones follow one another.
    """
    task = build.task_of(config)
    dim = build.dimension_of(task)
    chosen = execution.chunks(config, task)
    if config.num_clients * config.algorithm.num_directions * dim * num_seeds <= execution.FLOATS_AT_ONCE:
        chosen = execution.Chunks(None, None, None)
    cell = build.cell_of(config, task, chosen.clients, chosen.directions)
    seeds = tuple(range(config.seed, config.seed + num_seeds))
    (group,) = sweep.split(sweep.product([sweep.Axis("seed", seeds)]), build.traced_settings(config))
    program = sweep.vectorise(cell, num_seeds, execution.devices(config), cell_chunk=chosen.cells)
    data, settings = program.place(task.data), program.pad(group.traced)
    states, record = program.start(settings, data)
    records = append({}, program.trim(record))
    for _ in range(config.num_rounds // config.eval_every):
        states, record = program.advance(states, settings, data)
        record = program.trim(record)
        record.pop("history", None)
        records = append(records, record)
    return execution.finished(records, task, config)
