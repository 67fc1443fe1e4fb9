"""Figures of measured points: runs of many configs, each over some seeds, with what they show beside what was expected.

A figure is a list of points, each a config that is played over its seeds as one program. Their records are kept in
`points/` of the workdir, so that an interrupted figure goes on where it was. Exit codes: 0 done, 1 wrong usage or
settings, failed, or stopped at once, 130 interrupted with everything saved.
"""

import csv
import hashlib
import shlex
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from absl import flags
from matplotlib.figure import Figure
from ml_collections import ConfigDict

from experiments import build, execution, interrupt, workdir
from experiments.figures.observations import Observation
from experiments.files import replacing, write_json
from experiments.metrics import Records, append
from experiments.run import use_compilation_cache, use_cpu_devices
from experiments.settings import Config
from zofed import sweep

__all__ = ["Point", "PointsFigure", "Results", "Size", "command", "main", "save_figure", "write_rows"]


class Size(NamedTuple):
    """How much of a figure is played."""

    num_rounds: int
    num_seeds: int


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


def command(figure: PointsFigure) -> None:
    """The whole of a figure's module when it is run: plays the figure and exits."""
    use_compilation_cache()
    sys.exit(main(figure, sys.argv[1:]))


def main(figure: PointsFigure, arguments: Sequence[str]) -> int:
    """The command of a figure with the given options; returns the exit code."""
    values = _flags(figure)
    try:
        try:
            rest = values([figure.name, *arguments])[1:]
        except flags.Error as error:
            raise ValueError(str(error)) from error
        module = f"experiments.figures.{figure.name}"
        if values.help:
            print(f"{module} --workdir=DIR [--quick | --cpu]: {figure.title}", values.get_help(), sep="\n")
            return 0
        if rest:
            raise ValueError(f"{rest} are no options")
        if values.quick and values.cpu:
            raise ValueError("--quick and --cpu are two sizes; give one of them, or none for the full size")
        if not values.workdir:
            raise ValueError("--workdir=DIR is missing: the directory of the results")
        size = "quick" if values.quick else "cpu" if values.cpu else "full"
        options = [option for option in arguments if option not in ("--resume", "--noresume")]
        repeat = ["python", "-m", module, *options, "--resume"]
        return _play(figure, figure.sizes[size], Path(values.workdir), values.resume, values.progress, repeat)
    except (ValueError, OSError) as error:
        print(f"error: {error}", file=sys.stderr)
        return 1


def _flags(figure: PointsFigure) -> flags.FlagValues:
    values = flags.FlagValues()
    text = {name: figure.describe(size) for name, size in figure.sizes.items()}
    flags.DEFINE_string("workdir", None, "Directory of the results.", flag_values=values)
    flags.DEFINE_bool("quick", False, f"Minutes on a CPU: {text['quick']}.", flag_values=values)
    flags.DEFINE_bool("cpu", False, f"Longer: {text['cpu']}. Neither: {text['full']}.", flag_values=values)
    flags.DEFINE_bool("resume", False, "Go on with the figure in workdir, if there is one.", flag_values=values)
    flags.DEFINE_bool("progress", True, "Show progress.", flag_values=values)
    flags.DEFINE_bool("help", False, "Show this.", short_name="h", flag_values=values)
    return values


def _play(
    figure: PointsFigure, size: Size, directory: Path, resume: bool, show_progress: bool, repeat: Sequence[str]
) -> int:
    use_cpu_devices()  # before a task's data start JAX
    points = figure.points(size)
    for point in points:
        build.check(point.config)
    digest = hashlib.sha256("\n".join(f"{point.name}: {point.config}" for point in points).encode()).hexdigest()
    described = {"figure": figure.name, **size._asdict(), "digest_of_points": digest[:16]}
    versions = workdir.describe(ConfigDict({"seed": 0}), sweep.product([]))["versions"]
    with workdir.claim(directory, {"config": described, "sweep": {}, "versions": versions}, resume):
        results = _measured(points, size, directory, show_progress)
        if len(results) < len(points):
            print("interrupted; what was computed is saved. To go on:\n  " + shlex.join(repeat))
            return 130
        observations = figure.finish(size, results, directory)
        _report(figure, size, observations, directory)
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


def save_figure(path: Path, drawing: Figure, dpi: int = 110) -> Path:
    """Writes a PNG, atomically."""
    options: dict[str, Any] = {"dpi": dpi, "metadata": {"Software": None}}
    with replacing(path) as beside:
        drawing.savefig(beside, **options)
    return path


def write_rows(path: Path, rows: Sequence[Mapping[str, Any]]) -> Path:
    """Writes CSV, atomically."""
    with replacing(path) as beside, beside.open("w", newline="") as file:
        writer = csv.DictWriter(file, rows[0].keys())
        writer.writeheader()
        writer.writerows(rows)
    return path


def _report(figure: PointsFigure, size: Size, observations: Sequence[Observation], directory: Path) -> None:
    lines = [f"{figure.title}: {figure.describe(size)}"]
    for observation in observations:
        lines += [
            f"[{'seen' if observation.seen else 'not seen'}] {observation.statement}",
            f"    criterion: {observation.criterion}",
            f"    measured: {observation.numbers}",
        ]
    report = "\n".join(lines) + "\n"
    write_json(directory / "observations.json", [observation._asdict() for observation in observations])
    with replacing(directory / "observations.txt") as beside:
        beside.write_text(report)
    print("", report, *sorted(directory.glob("*.png")), sep="\n")
