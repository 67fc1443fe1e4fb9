"""The command of a figure: options, sizes, exit codes, and the report of what was observed.

python -m experiments.figures.NAME --workdir=DIR [--quick | --cpu] [--resume] [--noprogress]

Exit codes: 0 done, 1 wrong usage or settings, failed, or stopped at once, 130 interrupted with everything saved.
"""

import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple, Protocol

from absl import flags

from experiments.figures.observations import Observation
from experiments.files import replacing, write_json
from experiments.run import use_compilation_cache

__all__ = ["Playable", "Size", "command", "main", "write_report"]


class Size(NamedTuple):
    """How much of a figure is played.

    Attributes:
        num_rounds: of each run.
        num_seeds: of each run.
        eval_every: rounds between evaluations, where a figure's runs do not set it.
        changes: settings of all its studies, by dotted name; those of a schedule, of the studies that have one.
    """

    num_rounds: int
    num_seeds: int
    eval_every: int = 1
    changes: Mapping[str, Any] = {}


class Playable(Protocol):
    """A figure: `experiments.figures.curves.Figure` or `experiments.figures.points.PointsFigure`."""

    @property
    def name(self) -> str:
        """Of its module."""
        ...

    @property
    def title(self) -> str:
        """One line."""
        ...

    @property
    def sizes(self) -> Mapping[str, Size]:
        """By "quick", "cpu" and "full"."""
        ...

    def describe(self, size: Size) -> str:
        """A size in words."""
        ...

    def play(self, size: Size, directory: Path, resume: bool, show_progress: bool, repeat: Sequence[str]) -> int:
        """Plays the figure into a directory.

        Args:
            size: one of its sizes.
            directory: where results go; one that holds something else, or that a process uses, is refused.
            resume: go on with what is there.
            show_progress: on stderr.
            repeat: the command line, to be shown with --resume after an interrupt.

        Returns:
            The exit code.

        Raises:
            ValueError: a setting or the directory is not allowed; nothing was compiled or written then.
            zofed.data.MissingDataError: the data set is not on this machine; the message says how to get it.
        """
        ...


def command(figure: Playable) -> None:
    """The whole of a figure's module when it is run: plays the figure and exits."""
    use_compilation_cache()
    sys.exit(main(figure, sys.argv[1:]))


def main(figure: Playable, arguments: Sequence[str]) -> int:
    """The command of a figure with the given options; returns the exit code."""
    values, module = _flags(figure), f"experiments.figures.{figure.name}"
    try:
        try:
            rest = values([figure.name, *arguments])[1:]
        except flags.Error as error:
            raise ValueError(str(error)) from error
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
        repeat = ["python", "-m", module, *(word for word in arguments if word not in ("--resume", "--noresume"))]
        return figure.play(figure.sizes[size], Path(values.workdir), values.resume, values.progress, repeat)
    except (ValueError, OSError) as error:
        print(f"error: {error}", file=sys.stderr)
        return 1


def _flags(figure: Playable) -> flags.FlagValues:
    values = flags.FlagValues()
    text = {name: figure.describe(size) for name, size in figure.sizes.items()}
    flags.DEFINE_string("workdir", None, "Directory of the results.", flag_values=values)
    flags.DEFINE_bool("quick", False, f"Minutes on a CPU: {text['quick']}.", flag_values=values)
    flags.DEFINE_bool("cpu", False, f"At most an hour: {text['cpu']}. Neither: {text['full']}.", flag_values=values)
    flags.DEFINE_bool("resume", False, "Go on with the figure in workdir, if there is one.", flag_values=values)
    flags.DEFINE_bool("progress", True, "Show progress.", flag_values=values)
    flags.DEFINE_bool("help", False, "Show this.", short_name="h", flag_values=values)
    return values


def write_report(heading: str, observations: Sequence[Observation], directory: Path, pictures: Sequence[Path]) -> None:
    """Writes observations.json and observations.txt, and prints the latter and where all files are.

    Args:
        heading: first line of the text.
        observations: what was judged.
        directory: of the figure.
        pictures: other files of it, to be named.
    """
    lines = [heading]
    for observation in observations:
        lines += [
            f"[{'seen' if observation.seen else 'not seen'}] {observation.statement}",
            f"    criterion: {observation.criterion}",
            f"    measured: {observation.numbers}",
        ]
    report = "\n".join(lines) + "\n"
    paths = [directory / "observations.json", directory / "observations.txt"]
    write_json(paths[0], [observation._asdict() for observation in observations])
    with replacing(paths[1]) as beside:
        beside.write_text(report)
    print("", report, *pictures, *paths, sep="\n")
