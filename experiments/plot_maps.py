"""Heat maps: the final score over two settings."""

from collections.abc import Sequence

import numpy as np
import xarray
from matplotlib.axes import Axes
from matplotlib.colors import LogNorm, Normalize
from matplotlib.figure import Figure
from matplotlib.image import AxesImage

from experiments.metrics import describe
from experiments.plot_curves import axis_label, value_label

__all__ = ["heat_map"]

_SCORES = ("test_accuracy", "attack_accuracy", "train_loss")
"""The map shows the first that was recorded."""
_MAX_NUMBERS = 150
"""Cells of a map above this number carry no written values."""


def heat_map(results: xarray.Dataset, horizontal: str, vertical: str, seeds: Sequence[str], title: str = "") -> Figure:
    """The score after the last round, averaged over `seeds`: bright is good, a cross marks a diverged run.

    Args:
        results: with the dimensions `horizontal`, `vertical`, `seeds` and `eval`.
        horizontal: the setting along the horizontal axis.
        vertical: the setting along the vertical axis.
        seeds: dimensions that are averaged over.
        title: above the figure.
    """
    score = next(name for name in _SCORES if name in results)
    final = results[score].isel(eval=-1)
    diverged = results["diverged"].any(seeds) | final.isnull().any(seeds)
    values = final.mean(seeds).where(~diverged).transpose(vertical, horizontal).values
    crossed = diverged.transpose(vertical, horizontal).values
    columns, rows = results.sizes[horizontal], results.sizes[vertical]

    figure = Figure(figsize=(2.6 + 0.8 * columns, 1.5 + 0.6 * rows), layout="constrained")
    panel = figure.subplots()
    finite = values[np.isfinite(values)]
    wide = finite.size > 0 and finite.min() > 0 and finite.max() > 20 * finite.min()
    lower_is_better = describe(score).best is np.fmin
    image = panel.imshow(
        values,
        origin="lower",
        aspect="auto",
        cmap="cividis_r" if lower_is_better else "cividis",
        norm=LogNorm() if wide else Normalize(),
    )
    _write_cells(panel, image, values, crossed)
    panel.set_xticks(range(columns), [value_label(value) for value in results[horizontal].values])
    panel.set_yticks(range(rows), [value_label(value) for value in results[vertical].values])
    panel.tick_params(axis="x", labelrotation=45 if columns > 6 else 0)
    panel.set_xlabel(horizontal)
    panel.set_ylabel(vertical)
    count = int(np.prod([results.sizes[name] for name in seeds]))
    last = int(results["round"].values[-1])
    panel.set_title(title or f"after {last} rounds" + (f", mean of {count} seeds" if count > 1 else ""), fontsize=10)
    figure.colorbar(image, ax=panel, label=axis_label(results[score]))
    return figure


def _write_cells(panel: Axes, image: AxesImage, values: np.ndarray, crossed: np.ndarray) -> None:
    for (row, column), value in np.ndenumerate(values):
        if crossed[row, column]:
            panel.text(column, row, "x", ha="center", va="center", color="#D55E00", fontsize=14)
        elif values.size <= _MAX_NUMBERS:
            red, green, blue, _ = image.cmap(image.norm(value))
            dark = 0.299 * red + 0.587 * green + 0.114 * blue < 0.5
            panel.text(
                column,
                row,
                f"{value:.3g}",
                ha="center",
                va="center",
                color="white" if dark else "black",
                fontsize=8,
            )
