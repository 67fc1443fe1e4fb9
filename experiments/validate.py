"""Holds a config's runs against the bounds that cover it, term by term.

    python -m experiments.validate --config=experiments/configs/quadratic.py --workdir=runs/validate
        [--seeds=64] [--learning_rates='[0.001,0.01]'] [--config.NAME=VALUE ...] [--resume]

All seeds and learning rates are one compiled program; ||grad f(x^t)||^2 is recorded before every round. Besides what
experiments.run writes, DIR gets `validation.csv`, a row per bound and learning rate, and `figures/validation_*.png`.
Without --learning_rates: the config's own, and the largest that the first bound allows times 1, 1/4 and 1/16.

Exit codes: 0 done, 1 wrong usage or settings, failed, or stopped at once, 130 interrupted with everything saved.
"""

import csv
import math
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import xarray
from absl import flags

from experiments import build, sweeps
from experiments.bounds_of import (
    Covering,
    Known,
    as_numbers,
    bounds_of,
    constants_of,
    initial_model,
    setting_of,
)
from experiments.files import replacing, write_json
from experiments.plot_bounds import Panel, draw
from experiments.run import common_flags, parse, use_compilation_cache, use_cpu_devices
from experiments.run import run as run_study
from experiments.settings import Config
from zofed import checks, theory
from zofed.tasks import Task

__all__ = ["main", "validate"]

DEFAULT_CONFIG = Path(__file__).parent / "configs" / "quadratic.py"
MAX_PANELS = 5


def _flags(arguments: Sequence[str]) -> flags.FlagValues:
    values = common_flags(arguments, DEFAULT_CONFIG)
    flags.DEFINE_integer("seeds", 64, "Runs per learning rate.", flag_values=values)
    flags.DEFINE_string(
        "learning_rates",
        None,
        "A list [a, b, ...] or logspace(start, stop, num). Default: see above.",
        flag_values=values,
    )
    return values


def main(arguments: Sequence[str]) -> int:
    """The command, `arguments[0]` being its name; returns the exit code."""
    try:
        options = parse(arguments, _flags)
        if options.help:
            print(__doc__, options.get_help(), sep="\n")
            return 0
        if not options.workdir:
            raise ValueError("--workdir=DIR is missing: the directory of the results")
        command = ["python", "-m", "experiments.validate", *arguments[1:]]
        directory = Path(options.workdir)
        return validate(
            options.config, options.seeds, options.learning_rates, directory, options.resume, options.progress, command
        )
    except (ValueError, OSError) as error:
        print(f"error: {error}", file=sys.stderr)
        return 1


def validate(
    config: Config,
    seeds: int,
    learning_rates: str | None,
    directory: Path,
    resume: bool = False,
    show_progress: bool = False,
    command: Sequence[str] = (),
) -> int:
    """Plays the runs, and holds them against the bounds.

    Args:
        config: a study's settings; it is evaluated after every round, whatever `eval_every` says.
        seeds: runs per learning rate.
        learning_rates: as on the command line, or None.
        directory: where results go; one that holds another run is refused.
        resume: go on from its checkpoints.
        show_progress: on stderr.
        command: the command line, to be shown with --resume after an interrupt.

    Returns:
        The exit code.

    Raises:
        ValueError: a setting is not allowed, or no bound covers the config.
    """
    use_cpu_devices()  # before a task's data start JAX
    checks.count("seeds", seeds)
    config = config.copy_and_resolve_references()
    config.eval_every, config.record_gradient = 1, True
    build.check(config)
    bounds = bounds_of(config)
    task = build.task_of(config)
    played = range(config.seed, config.seed + seeds)
    known = constants_of(config, task, played)
    text = learning_rates or str(_usual_rates(config, task, known, bounds[0]))
    axes = [f"algorithm.learning_rate={text}", f"seed=range({played.start},{played.stop})"]
    rates = [float(rate) for rate in sweeps.parse(axes, config).axes[0].values]
    for warning in _warnings(config, task, known, bounds, rates, played):
        print(f"warning: {warning}", file=sys.stderr)
    code = run_study(config, axes, directory, resume, show_progress, command)
    if code:
        return code
    results = xarray.load_dataset(directory / "results.nc")
    _write(config, task, known, bounds, results, directory)
    return 0


def _usual_rates(config: Config, task: Task, known: Known, covering: Covering) -> list[float]:
    bound = covering.of(_constants(known, covering), setting_of(config, task, 1.0, config.num_rounds))
    rates = {float(config.algorithm.learning_rate)}
    # Rounded down to three digits, so that float32 does not lift the largest one above its limit.
    for share in (1.0, 0.25, 0.0625):
        rate = share * float(bound.largest_learning_rate)
        unit = 10.0 ** (math.floor(math.log10(rate)) - 2)
        rates.add(float(f"{math.floor(rate / unit) * unit:.3g}"))
    return sorted(rates)


def _constants(known: Known, covering: Covering) -> theory.Constants:
    return known.every_client if covering.every_client else known.mean


def _warnings(
    config: Config,
    task: Task,
    known: Known,
    bounds: Sequence[Covering],
    rates: Sequence[float],
    seeds: Sequence[int],
) -> list[str]:
    found = []
    for covering in bounds:
        for rate in rates:
            bound = covering.of(_constants(known, covering), setting_of(config, task, rate, config.num_rounds))
            if not bound.holds:
                allowed = float(bound.largest_learning_rate)
                found.append(
                    f"algorithm.learning_rate={rate:.4g} is outside the conditions of {covering.name}, which allow "
                    f"{allowed:.4g} at most ({bound.binding()}): the bound says nothing there"
                )
    if config.algorithm.estimator == "jvp":
        return found
    # A difference along a vector of norm r is one along a unit vector with r times the smoothing.
    norm = 1.0 if config.algorithm.directions == "sphere" else math.sqrt(build.dimension_of(task))
    loss = float(task.loss_value(initial_model(config, task, seeds)))
    central = config.algorithm.estimator == "central"
    # Round-off is divided by twice the smoothing there.
    balance = float(theory.balancing_smoothing(loss / 2 if central else loss, known.mean.smoothness)) / norm
    if config.algorithm.smoothing < balance:
        error = "what the bound's smoothing term allows for (their own, of third derivatives, is not known)"
        found.append(
            f"algorithm.smoothing={config.algorithm.smoothing:.3g}: at the start float32 round-off of the "
            f"{config.algorithm.estimator} differences exceeds {error if central else 'their smoothing error'}; both "
            f"are as large at {balance:.3g}"
        )
    return found


def _write(
    config: Config,
    task: Task,
    known: Known,
    bounds: Sequence[Covering],
    results: xarray.Dataset,
    directory: Path,
) -> None:
    """The table, printed too, and a figure per bound."""
    norms = results["squared_gradient_norm"].transpose("algorithm.learning_rate", "seed", "eval").values[..., :-1]
    rates = results["algorithm.learning_rate"].values
    rounds = np.arange(1, config.num_rounds + 1)
    means = np.cumsum(norms, axis=-1) / rounds
    rows, paths = [], []
    for covering in bounds:
        constants, panels = _constants(known, covering), []
        for rate, measured in zip(rates.tolist(), means, strict=True):
            bound = covering.of(constants, setting_of(config, task, rate, rounds))
            rows.append(_row(covering, rate, measured[:, -1], bound) | {"constants": known.source})
            panels.append(Panel(rate, rounds, measured, bound))
        shown = [panels[place] for place in np.unique(np.linspace(0, len(panels) - 1, MAX_PANELS).round().astype(int))]
        caption = f"{len(norms[0])} seeds; constants {known.source}"
        path = directory / "figures" / f"validation_{covering.name}.png"
        options: dict[str, Any] = {"dpi": 110, "metadata": {"Software": None}}
        with replacing(path) as beside:
            draw(covering.title, caption, shown).savefig(beside, **options)
        paths.append(path)
    table = directory / "validation.csv"
    with replacing(table) as beside, beside.open("w", newline="") as file:
        writer = csv.DictWriter(file, rows[0].keys())
        writer.writeheader()
        writer.writerows(rows)
    constants_path = directory / "constants.json"
    write_json(constants_path, {"source": known.source, **as_numbers(known.mean)})
    print(f"\nconstants {known.source}: {', '.join(f'{k}={v:.4g}' for k, v in as_numbers(known.mean).items())}")
    for row in rows:
        verdict = "kept" if row["ratio"] <= 1 else "EXCEEDED"  # by nan, too
        print(
            f"{row['bound']}  learning_rate={row['learning_rate']:.4g}  measured={row['measured']:.4g}  "
            f"bound={row['total']:.4g}  measured/bound={row['ratio']:.3f}  binding={row['binding']} "
            f"(allowed/used {row['margin']:.2f})  {verdict if row['holds'] else 'outside the conditions'}"
        )
    print(table, constants_path, *paths, sep="\n")


def _row(covering: Covering, rate: float, measured: np.ndarray, bound: theory.Bound) -> dict[str, Any]:
    total = float(np.asarray(bound.total)[-1])
    terms = {
        name: float(np.broadcast_to(value, bound.total.shape)[-1]) for name, value in bound.terms._asdict().items()
    }
    return {
        "bound": covering.name,
        "learning_rate": rate,
        "seeds": len(measured),
        "measured": float(measured.mean()),
        "measured_min": float(measured.min()),
        "measured_max": float(measured.max()),
        "total": total,
        "ratio": float(measured.mean()) / total,
        "holds": bool(bound.holds),
        "binding": bound.binding(),
        "margin": float(bound.largest_learning_rate) / rate,
        **terms,
    }


if __name__ == "__main__":
    use_compilation_cache()
    sys.exit(main(sys.argv))
