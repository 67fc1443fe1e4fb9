"""Learning curves: scores against rounds, a colour per value of a setting, a column per value of another."""

import textwrap
from collections.abc import Sequence
from typing import Any

import matplotlib
import numpy as np
import xarray
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.ticker import MaxNLocator

from experiments.metrics import describe

__all__ = ["MAX_COLUMNS", "PALETTE", "axis_label", "learning_curves", "value_label"]

# Okabe and Ito's palette, which colour-blind readers can tell apart, without its yellow: too pale for lines.
PALETTE = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#56B4E9", "#E69F00", "#000000")
_STYLES = ("-", (0, (5, 2)), (0, (1, 1.5)), (0, (5, 1.5, 1, 1.5)))
"""Go with the colours in turn, so that a curve shows through another that covers it."""
MAX_COLUMNS = 5
_SCORES = ("train_loss", "test_accuracy", "attack_accuracy")
_MAX_LABELS = 12
_LOG_RATIO = 20.0
"""A loss whose values differ by more than this factor is drawn on a logarithmic axis."""


def axis_label(quantity: xarray.DataArray) -> str:
    """A recorded quantity in words, with its unit where it has one."""
    short, units = quantity.attrs["long_name"].split(",")[0], quantity.attrs["units"]
    return short if units == "1" else f"{short} [{units}]"


def value_label(value: Any) -> str:
    """A setting's value, short."""
    return f"{value:.4g}" if isinstance(value, float | np.floating) else str(value)


def learning_curves(
    results: xarray.Dataset,
    colored: Sequence[str],
    columns: Sequence[str],
    seeds: Sequence[str],
    title: str = "",
    across: str = "round",
) -> Figure:
    """Scores against the round, or against the queries asked so far.

    Args:
        results: with the dimensions named in the other arguments, and `eval`.
        colored: the setting that colours tell apart, or none.
        columns: the setting with a column of panels for each value, or none: scores are then side by side.
        seeds: dimensions whose mean is the line, and whose range is the band.
        title: above the figure.
        across: "round" or "queries".
    """
    scores = [name for name in _SCORES if name in results]
    parts = _split(results, columns)
    shape = (len(scores), len(parts)) if columns else (1, len(scores))
    figure = Figure(figsize=(2.0 + (2.9 if columns else 4.1) * shape[1], 0.6 + 2.9 * shape[0]), layout="constrained")
    panels = figure.subplots(*shape, squeeze=False, sharex=True, sharey="row" if columns else False)
    for panel, (score, part) in zip(panels.flat, [(score, part) for score in scores for part in parts], strict=True):
        for number, cell in enumerate(_split(part, colored)):
            _curve(panel, cell, score, seeds, _look(number, _length(results, colored)), across)
        _finish(panel, results, score, across)
    for panel in panels.flat:
        panel.label_outer() if columns else None
    for panel, part in zip(panels[0], parts, strict=False):
        if columns:
            panel.set_title(f"{columns[0]} = {value_label(part[columns[0]].values[()])}", fontsize=9)
    handles = _legend(results, colored, seeds)
    if handles:
        figure.legend(handles=handles, loc="outside right center", frameon=False, fontsize=8)
    figure.suptitle(title or str(results.attrs["title"]).split(": ")[-1], fontsize=10)
    return figure


def _split(results: xarray.Dataset, names: Sequence[str]) -> list[xarray.Dataset]:
    """The results by the value of the setting, where there is one."""
    if not names:
        return [results]
    return [results.isel({names[0]: number}) for number in range(results.sizes[names[0]])]


def _length(results: xarray.Dataset, names: Sequence[str]) -> int:
    return results.sizes[names[0]] if names else 1


def _look(number: int, count: int) -> dict[str, Any]:
    """Colours from the palette while it lasts, then along a scale of even brightness."""
    scale = matplotlib.colormaps["viridis"]
    color = PALETTE[number] if count <= len(PALETTE) else scale(0.92 * number / (count - 1))
    return {"color": color, "linestyle": _STYLES[number % len(_STYLES)]}


def _curve(
    panel: Axes, cell: xarray.Dataset, score: str, seeds: Sequence[str], look: dict[str, Any], across: str
) -> None:
    values = cell[score].where(np.isfinite(cell[score]))
    places = cell[across].mean([name for name in seeds if name in cell[across].dims]).values
    marker = "o" if len(places) <= 25 else ""
    if seeds:
        panel.fill_between(places, values.min(seeds), values.max(seeds), color=look["color"], alpha=0.18, linewidth=0)
        values = values.mean(seeds)
    panel.plot(places, values, marker=marker, markersize=2.5, linewidth=1.4, **look)


def _finish(panel: Axes, results: xarray.Dataset, score: str, across: str) -> None:
    finite = results[score].values[np.isfinite(results[score].values)]
    positive = finite.size > 0 and finite.min() > 0
    if describe(score).best is np.fmin and positive and finite.max() > _LOG_RATIO * finite.min():
        panel.set_yscale("log")
    panel.set_xlabel("communication round" if across == "round" else "queries of all clients")
    panel.set_ylabel(axis_label(results[score]))
    panel.set_xlim(0, float(results[across].max()) or 1.0)
    panel.xaxis.set_major_locator(MaxNLocator(6, integer=True))
    panel.grid(alpha=0.3, linewidth=0.6)
    panel.spines[["top", "right"]].set_visible(False)


def _legend(results: xarray.Dataset, colored: Sequence[str], seeds: Sequence[str]) -> list[Line2D]:
    def text(words: str) -> Line2D:
        return Line2D([], [], linestyle="none", label="\n".join(textwrap.wrap(words, 26)))

    handles = []
    if colored:
        handles.append(text(colored[0]))
        count = results.sizes[colored[0]]
        for number in np.unique(np.linspace(0, count - 1, min(count, _MAX_LABELS)).round().astype(int)).tolist():
            label = _value_with_losses(results.isel({colored[0]: number}), colored[0])
            handles.append(Line2D([], [], linewidth=1.6, label=label, **_look(number, count)))
    if seeds:
        count = int(np.prod([results.sizes[name] for name in seeds]))
        handles.append(text(f"line: mean of {count} seeds; band: minimum to maximum"))
    return handles


def _value_with_losses(part: xarray.Dataset, name: str) -> str:
    label = value_label(part[name].values[()])
    diverged = part["diverged"].values
    return f"{label} ({diverged.sum()} of {diverged.size} diverged)" if diverged.any() else label
