"""Runs a study: a config, swept over some of its settings, to results and figures in a directory.

    python -m experiments.run --config=experiments/configs/fedzo_digits.py --workdir=runs/digits
        --config.num_rounds=50 --sweep='algorithm.learning_rate=[0.01,0.1]' --sweep='seed=range(4)'

Exit codes: 0 done, 1 wrong usage or settings, failed, or stopped at once, 130 interrupted with everything saved.
"""

import contextlib
import json
import os
import shlex
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import jax
import numpy as np
from absl import flags
from ml_collections import config_flags

from experiments import build, checkpoint, execution, interrupt, plots, results, sweeps, workdir
from experiments.execution import Chunks, Outcome
from experiments.files import write_json, write_rows
from experiments.plot_attack import attack_picture
from experiments.progress import Progress
from experiments.settings import Config
from zofed import sweep
from zofed.blackbox import BlackBoxError
from zofed.sweep import Grid, Group

__all__ = ["common_flags", "main", "parse", "run", "use_compilation_cache", "use_cpu_devices"]

DEFAULT_CONFIG = Path(__file__).parent / "configs" / "fedzo_digits.py"
MAX_ROWS_SHOWN = 40


def common_flags(arguments: Sequence[str], config: Path) -> flags.FlagValues:
    """The options that all apps with a config have; `config` is the file that is read where none is given."""
    values = flags.FlagValues()
    config_flags.DEFINE_config_file(
        "config",
        str(config),
        "Config file; --config.NAME=VALUE changes a setting.",
        flag_values=values,
        sys_argv=list(arguments),
    )
    flags.DEFINE_string("workdir", None, "Directory of the results.", flag_values=values)
    flags.DEFINE_bool("resume", False, "Go on with the run in workdir, if there is one.", flag_values=values)
    flags.DEFINE_bool("progress", True, "Show progress.", flag_values=values)
    flags.DEFINE_bool("help", False, "Show this.", short_name="h", flag_values=values)
    return values


def _flags(arguments: Sequence[str]) -> flags.FlagValues:
    values = common_flags(arguments, DEFAULT_CONFIG)
    flags.DEFINE_multi_string(
        "sweep",
        [],
        "NAME=VALUES: a swept setting, and [a, b, ...], range(...), linspace(start, stop, num) or "
        "logspace(start, stop, num). Repeat it for more axes.",
        flag_values=values,
    )
    return values


def parse(
    arguments: Sequence[str], define: Callable[[Sequence[str]], flags.FlagValues], hint: str = ""
) -> flags.FlagValues:
    """The flags of a command line.

    Args:
        arguments: the first is the command's name.
        define: the options that there are.
        hint: added to the error where an argument is no option.

    Raises:
        ValueError: one is unknown or has a wrong value.
    """
    try:
        values = define(arguments)
        rest = values(list(arguments))[1:]
    except (AttributeError, KeyError) as error:  # how ml_collections says that an option names no setting
        cause = error.args[0]
        message = str(cause.args[0] if isinstance(cause, KeyError) else cause).replace("\n", ". ")
        raise ValueError(f"the config has no setting {message}") from error
    except (flags.Error, TypeError) as error:
        raise ValueError(str(error)) from error
    except Exception as error:  # whatever the code in a config file raises
        raise ValueError(f"--config: the file cannot be loaded: {type(error).__name__}: {error}") from error
    if rest:
        raise ValueError(f"{rest} are no options{hint}")
    return values


def main(arguments: Sequence[str]) -> int:
    """The command, `arguments[0]` being its name; returns the exit code."""
    try:
        options = parse(arguments, _flags, "; a sweep is written --sweep='NAME=VALUES'")
        if options.help:
            print(__doc__, options.get_help(), sep="\n")
            return 0
        if not options.workdir:
            raise ValueError("--workdir=DIR is missing: the directory of the results")
        command = ["python", "-m", "experiments.run", *arguments[1:]]
        return run(options.config, options.sweep, Path(options.workdir), options.resume, options.progress, command)
    except (ValueError, OSError, BlackBoxError) as error:
        print(f"error: {error}", file=sys.stderr)
        return 1


def run(
    config: Config,
    sweep_texts: Sequence[str] = (),
    directory: Path = Path("runs/study"),
    resume: bool = False,
    show_progress: bool = False,
    command: Sequence[str] = (),
) -> int:
    """Runs a study into `directory`.

    Args:
        config: a study's settings.
        sweep_texts: axes, as on the command line.
        directory: where results go; one that holds another run, or that a process uses, is refused.
        resume: go on from its checkpoints.
        show_progress: on stderr.
        command: the command line, to be shown with --resume after an interrupt.

    Returns:
        The exit code.

    Raises:
        ValueError: a setting, an axis or the directory is not allowed; nothing was compiled or written then.
    """
    # From the first moment: a signal while JAX starts or compiles would otherwise be lost in one of its callbacks.
    with interrupt.on_request(lambda: checkpoint.standing(directory)) as requested:
        return _run(config, sweep_texts, directory, resume, show_progress, command, requested)


def _run(
    config: Config,
    sweep_texts: Sequence[str],
    directory: Path,
    resume: bool,
    show_progress: bool,
    command: Sequence[str],
    requested: Callable[[], bool],
) -> int:
    grid = sweeps.parse(sweep_texts, config)
    cells = [sweeps.apply(config, cell) for cell in grid.cells()]
    for cell in cells:
        build.check(cell)
    build.check_axes(cells, [axis.name for axis in grid.axes])
    groups = sweep.split(grid, build.traced_settings(config))
    use_cpu_devices()
    execution.devices(config)

    def announce(chunks: Chunks, devices: Sequence[Any], memory: int) -> None:
        nonlocal announced
        if not announced:
            print(_plan(grid, groups, chunks, devices, memory), flush=True)
        announced = True

    announced = False
    with workdir.claim(directory, workdir.describe(config, grid), resume) as warnings:
        with Progress(config.num_rounds * len(groups), show_progress) as progress:
            for warning in warnings:
                progress.warn(warning)
            outcomes = execution.run(config, groups, directory, requested, announce, progress)
        _write(directory, config, grid, outcomes)
    failures = [outcome.failure for outcome in outcomes if outcome.failure]
    if failures:
        print(f"error: {failures[0]}; the rounds before it are saved", file=sys.stderr)
        return 1
    if len(outcomes) == len(groups) and all(outcome.ended for outcome in outcomes):
        return 0
    print("interrupted; what was computed is saved. To go on:\n  " + _resume_command(command, directory))
    return 130


def use_cpu_devices() -> None:
    """Lets JAX make a CPU device per core, unless a number is set; too late, and harmless, once it has started."""
    with contextlib.suppress(RuntimeError):
        if jax.config.jax_num_cpu_devices == -1:  # pyright: ignore[reportAttributeAccessIssue]
            jax.config.update("jax_num_cpu_devices", os.cpu_count() or 1)


def use_compilation_cache() -> None:
    """Compiled programs are kept in ~/.cache/zofed/jax, or where JAX_COMPILATION_CACHE_DIR says."""
    if not os.environ.get("JAX_COMPILATION_CACHE_DIR"):
        jax.config.update("jax_compilation_cache_dir", str(Path.home() / ".cache" / "zofed" / "jax"))


def _plan(grid: Grid, groups: Sequence[Group], chunks: Chunks, devices: Sequence[Any], memory: int) -> str:
    at_once = ", ".join(f"{name} {size or 'all'}" for name, size in chunks._asdict().items())
    return (
        f"cells: {grid.num_cells} in {len(groups)} groups | devices: {len(devices)} x {devices[0].device_kind} | "
        f"chunks: {at_once} | "
        f"memory: about {memory / 2**20:.0f} MiB a device"
    )


def _write(directory: Path, config: Config, grid: Grid, outcomes: Sequence[Outcome]) -> None:
    """Writes all results of a run and says where they are."""
    table = results.dataset(config, grid, outcomes)
    rows = results.summary(table)
    results.write_dataset(directory / "results.nc", table)
    write_rows(directory / "summary.csv", rows)
    _write_timing(directory / "timing.json", outcomes)
    figures = plots.draw_all(table, directory / "figures", by_queries=config.query_budget is not None)
    if "victim" in config.data:
        figures += [_draw_attack(directory, config, number, outcome) for number, outcome in enumerate(outcomes)]
    print("\n".join(_final_lines(rows)))
    for path in (directory / "results.nc", directory / "summary.csv", *figures):
        print(path)


def _draw_attack(directory: Path, config: Config, number: int, outcome: Outcome) -> Path:
    """The picture of a group's first cell."""
    own = sweeps.apply(config, outcome.group.static)
    settings = ", ".join(f"{name} = {value}" for name, value in outcome.group.static.items())
    picture = attack_picture(build.task_of(own), outcome.model, own.data.shrink, settings)
    return plots.save(picture, directory / "figures" / f"attack_{number:02d}.png")


def _final_lines(rows: Sequence[dict[str, Any]]) -> list[str]:
    """The settings, status and last scores of each cell; of a long table the first rows."""
    hidden = ("best_", "uplink_", "downlink_", "rounds")
    lines = [
        "  ".join(f"{name}={_short(value)}" for name, value in row.items() if not name.startswith(hidden))
        for row in rows[:MAX_ROWS_SHOWN]
    ]
    more = len(rows) - len(lines)
    return [*lines, f"... and {more} more in summary.csv"] if more else lines


def _short(value: Any) -> str:
    return f"{value:.4g}" if isinstance(value, float | np.floating) else str(value)


def _write_timing(path: Path, outcomes: Sequence[Outcome]) -> None:
    """Adds this process to the file of all wall times: one entry per process that worked on the run."""
    try:
        earlier = list(json.loads(path.read_text())["processes"]) if path.exists() else []
    except (KeyError, TypeError, ValueError) as error:
        print(f"warning: {path} cannot be read ({error}); it is written anew, without earlier times", file=sys.stderr)
        earlier = []
    groups = [{"group": number, **outcome.timing} for number, outcome in enumerate(outcomes)]
    write_json(path, {"processes": [*earlier, {"groups": groups}]})


def _resume_command(command: Sequence[str], directory: Path) -> str:
    words = [word for word in command if word not in ("--resume", "--noresume")]
    words = words or ["python", "-m", "experiments.run", f"--workdir={directory}"]
    return shlex.join([*words, "--resume"])


if __name__ == "__main__":
    use_compilation_cache()
    sys.exit(main(sys.argv))
