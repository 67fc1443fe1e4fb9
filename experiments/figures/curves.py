"""Figures of curves: studies, each played as by `experiments.run` in a folder of its own, and points of their sweeps.

A figure is a list of studies and a list of curves, each one point of a study's sweep with the seeds as its band.
"""

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import xarray

from experiments import baselines, build, plots, schedule, sweeps, workdir
from experiments.figures.command_line import Size, write_report
from experiments.figures.drawing import PANELS, Look, Panel, draw
from experiments.figures.observations import Curves, Measured, Observation, average
from experiments.files import write_rows
from experiments.run import run as run_study
from experiments.run import use_cpu_devices
from experiments.settings import Config

__all__ = ["SIZES", "Curve", "Figure", "Study", "sized", "work"]

SIZES = {
    "quick": Size(num_rounds=10, num_seeds=2),
    "cpu": Size(num_rounds=100, num_seeds=4, eval_every=5),
    "full": Size(num_rounds=300, num_seeds=10, eval_every=5),
}


class Study(NamedTuple):
    """One run of the machinery of `experiments.run`.

    Attributes:
        name: of its folder.
        config: the size overrides its rounds, the sweep its seed.
        axes: its sweep but for the seeds, as on the command line of `experiments.run`.
    """

    name: str
    config: Config
    axes: tuple[str, ...] = ()


class Curve(NamedTuple):
    """A line with its band.

    Attributes:
        label: in the legend.
        study: name of the study that plays it.
        settings: the values of the study's axes; the seeds make the band.
        look: how it is drawn.
    """

    label: str
    study: str
    settings: Mapping[str, Any]
    look: Look


class Figure(NamedTuple):
    """A figure of a paper.

    Attributes:
        name: of its module and of its files.
        title: above it.
        caption: its setting; the size is added.
        studies: what is played.
        curves: what is drawn.
        observe: what the paper says of it, judged on the curves by label.
        reference: label of a curve that the others' losses are drawn against, too, or None.
        sizes: by "quick", "cpu" and "full".
        panels: what is drawn against what.
    """

    name: str
    title: str
    caption: str
    studies: tuple[Study, ...]
    curves: tuple[Curve, ...]
    observe: Callable[[Curves], list[Observation]]
    reference: str | None = None
    sizes: Mapping[str, Size] = SIZES
    panels: tuple[Panel, ...] = PANELS

    def describe(self, size: Size) -> str:
        """A size in words."""
        return f"{size.num_rounds} rounds, {size.num_seeds} seeds"

    def play(
        self,
        size: Size,
        directory: Path,
        resume: bool = False,
        show_progress: bool = False,
        repeat: Sequence[str] = (),
    ) -> int:
        """Plays the studies, draws the curves, and judges the paper's observations: see `Playable.play`."""
        return _play(self, size, directory, resume, show_progress, repeat)


def _play(figure: Figure, size: Size, directory: Path, resume: bool, show_progress: bool, repeat: Sequence[str]) -> int:
    studies = [sized(study, size) for study in figure.studies]
    grids = [sweeps.parse(study.axes, study.config) for study in studies]
    configs = [
        sweeps.apply(study.config, cell) for study, grid in zip(studies, grids, strict=True) for cell in grid.cells()
    ]
    for study, grid in zip(studies, grids, strict=True):
        build.check(sweeps.apply(study.config, grid.cells()[0]))
    description = {
        "config": {"figure": figure.name, **_described(size)},
        "sweep": {},
        "versions": workdir.describe(studies[0].config, grids[0])["versions"],
    }
    with workdir.claim(directory, description, resume):
        return _play_studies(figure, size, studies, configs, directory, resume, show_progress, repeat)


def _play_studies(
    figure: Figure,
    size: Size,
    studies: Sequence[Study],
    configs: Sequence[Config],
    directory: Path,
    resume: bool,
    show_progress: bool,
    repeat: Sequence[str],
) -> int:
    use_cpu_devices()  # before the count of the work starts JAX
    effort = work(configs)
    print(
        f"{figure.name}: {len(configs)} runs of {size.num_rounds} rounds, {effort.random_numbers:.1e} random numbers, "
        f"{effort.passes:.1e} evaluations of the loss of one example",
        flush=True,
    )
    for study in studies:
        print(f"\nstudy {study.name}", flush=True)
        code = run_study(study.config, study.axes, directory / study.name, resume, show_progress, repeat)
        if code:
            return code

    results = {study.name: xarray.load_dataset(directory / study.name / "results.nc") for study in studies}
    curves = {curve.label: _measured(results[curve.study], curve) for curve in figure.curves}
    _write(figure, size, directory, curves)
    return 0


def sized(study: Study, size: Size) -> Study:
    """The study with the rounds and the seeds of a size."""
    config = study.config.copy_and_resolve_references()
    config.num_rounds, config.eval_every = size.num_rounds, size.eval_every
    scheduled = bool(config.schedule.rounds)
    changes = {name: value for name, value in size.changes.items() if scheduled or not name.startswith("schedule.")}
    config.update_from_flattened_dict(changes)
    return study._replace(config=config, axes=(*study.axes, f"seed=range({size.num_seeds})"))


def _described(size: Size) -> dict[str, Any]:
    changes = [f"{name}={value}" for name, value in size.changes.items()]
    return {**size._replace(changes={})._asdict(), **({"changes": changes} if changes else {})}


class Work(NamedTuple):
    """What the rounds of some runs come to, evaluations of the model between them aside.

    Attributes:
        random_numbers: entries of directions drawn; of first-order methods none.
        passes: losses of one example computed; a gradient of one counts as three.
    """

    random_numbers: float
    passes: float


def work(configs: Sequence[Config]) -> Work:
    """The work of the given runs."""
    random_numbers, passes = 0.0, 0.0
    for config in configs:
        share = np.exp(-(config.channel.gain_threshold**2) / config.channel.mean_square_gain)
        cohort = config.num_clients * share if config.participation == "gain_threshold" else config.cohort_size
        steps = config.algorithm.local_steps
        if config.algorithm.name in baselines.NAMES:
            cohort, steps = 1 if config.algorithm.name == "zone_s" else cohort, config.algorithm.num_estimates
        examples = cohort * steps * config.algorithm.batch_size
        dim = 0 if config.algorithm.name == "fedavg" else build.dimension_of(build.task_of(config))
        for phase in schedule.phases(config):
            rounds = phase.end - phase.first
            if config.algorithm.name == "fedavg":
                passes += rounds * examples * 3
                continue
            # Clients that share directions share their drawing, and the server draws them once more.
            drawn = 2 if config.algorithm.name == "decomfl" else cohort
            random_numbers += rounds * drawn * steps * phase.num_directions * dim
            passes += rounds * examples * (phase.num_directions + 1)
    return Work(random_numbers, passes)


def _measured(results: xarray.Dataset, curve: Curve) -> Measured:
    part = results.sel(dict(curve.settings)).transpose("seed", "eval")
    # Cohorts of one size: a client of every round has sent that part of what all of them have.
    sent = part["uplink_bytes_paper"].values.mean(axis=0) / 4 / part["mean_cohort_size"].values[:, 1:].mean()
    scores = {name: part[name].values for name in Measured._fields if name in part}
    scores["queries"] = part["queries"].values.mean(axis=0)
    missing = {} if "test_accuracy" in scores else {"test_accuracy": np.full(scores["train_loss"].shape, np.nan)}
    return Measured(rounds=results["round"].values, vector_length=sent, **scores, **missing)


def _row(label: str, curve: Measured) -> dict[str, Any]:
    names = ("train_loss", "test_accuracy", "attack_accuracy", "distortion")
    scores = {name: getattr(curve, name) for name in names}
    columns = {f"final_{name}": values[:, -1] for name, values in scores.items() if not np.isnan(values).all()}
    columns["average_train_loss"] = average(curve)
    spreads = {
        f"{name}_{word}": f"{reduce(values):.6f}"
        for name, values in columns.items()
        for word, reduce in (("mean", np.mean), ("min", np.min), ("max", np.max))
    }
    diverged = int((~np.isfinite(curve.train_loss)).any(axis=1).sum())
    return {
        "curve": label,
        "seeds": len(curve.train_loss),
        "rounds": int(curve.rounds[-1]),
        "diverged": diverged,
        "vector_length": round(float(curve.vector_length[-1])),
        **spreads,
    }


def _write(figure: Figure, size: Size, directory: Path, curves: Curves) -> None:
    """Draws the curves, writes their numbers and what they say of the paper's observations, and prints the latter."""
    seeds = f"lines: mean of {size.num_seeds} seeds, bands: minimum to maximum"
    changes = ", ".join(f"{name} = {value}" for name, value in size.changes.items())
    changed = f" Changed at this size: {changes}." if changes else ""
    caption = f"{figure.caption} {size.num_rounds} rounds; {seeds}.{changed}"
    looks = {curve.label: curve.look for curve in figure.curves}
    drawing = draw(figure.title, caption, curves, looks, figure.reference, figure.panels)
    written = [
        plots.save(drawing, directory / f"{figure.name}.png"),
        write_rows(directory / "summary.csv", [_row(label, curve) for label, curve in curves.items()]),
    ]
    heading = f"{figure.title}: the paper's observations, after {figure.describe(size)}"
    write_report(heading, figure.observe(curves), directory, written)
