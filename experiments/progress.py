"""Progress of a run on stderr: rounds, loss, time left."""

import math
import sys
from types import TracebackType
from typing import Self

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, TextColumn, TimeElapsedColumn, TimeRemainingColumn
from rich.progress import Progress as Bar

__all__ = ["Progress"]


class Progress:
    """A bar over all rounds of all groups; warnings appear above it. Without `shown`, warnings alone."""

    def __init__(self, total_rounds: int, shown: bool) -> None:
        self._console = Console(file=sys.stderr)
        self._bar = Bar(
            TextColumn("{task.description}"),
            BarColumn(),
            MofNCompleteColumn(),
            TextColumn("rounds, loss {task.fields[loss]}"),
            TimeElapsedColumn(),
            TextColumn("left"),
            TimeRemainingColumn(),
            console=self._console,
            disable=not shown,
        )
        self._task = self._bar.add_task("starting", total=total_rounds, loss="...")

    def __enter__(self) -> Self:
        self._bar.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._bar.stop()

    def group(self, number: int, num_groups: int) -> None:
        """A group begins: its program compiles first."""
        self._bar.update(self._task, description=f"group {number + 1} of {num_groups}")

    def rounds(self, played: int, loss: float) -> None:
        """Rounds were played; `loss` is the median of the cells' training losses."""
        shown = "not finite" if math.isnan(loss) else f"{loss:.4g}"
        self._bar.update(self._task, advance=played, loss=shown)

    def warn(self, message: str) -> None:
        self._console.print(f"warning: {message}", style="yellow", highlight=False, soft_wrap=True)
