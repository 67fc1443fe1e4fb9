"""The drawing of a figure: training loss and test accuracy against rounds or what is sent, side by side."""

import textwrap
from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

from experiments.figures.observations import Curves
from experiments.plot_curves import PALETTE

__all__ = ["PANELS", "Look", "Panel", "draw"]

_MARKERS = "osD^vPX"
_LABELS = {
    "train_loss": "training loss f(x) [nat]",
    "test_accuracy": "test accuracy",
    "attack_accuracy": "attack accuracy",
    "distortion": "mean distortion ||z' - z||²",
    "rounds": "communication round",
    "queries": "queries of all clients: losses of one image",
    "vector_length": "communicated vector length: numbers sent per client",
}
_LOGARITHMIC = ("queries", "vector_length")
_CAPTION_COLUMNS = 66
"""Characters of the caption in a line, per panel."""


class Panel(NamedTuple):
    """What is drawn against what: attributes of `Measured`. What is sent or asked for has a
    logarithmic axis.

    `label` is that of the score, if it is not the usual one.
    """

    across: str
    score: str
    label: str = ""


PANELS = (Panel("rounds", "train_loss"), Panel("rounds", "test_accuracy"))


class Look(NamedTuple):
    """How a curve is drawn: `color` is a place in the palette, which gives the marker too."""

    color: int
    dashed: bool = False


def draw(
    title: str,
    caption: str,
    curves: Curves,
    looks: Mapping[str, Look],
    reference: str | None = None,
    parts: Sequence[Panel] = PANELS,
) -> Figure:
    """Panels with a legend beside them and a caption below; lines are means over the seeds, bands their range.

    Args:
        title: above the panels.
        caption: below them.
        curves: by label.
        looks: of the curves.
        reference: a curve that the others' losses hardly differ from; a last panel shows by how much, seed by seed.
        parts: the panels.
    """
    columns = len(parts) + bool(reference)
    figure = Figure(figsize=(4.5 + 3 * columns, 4.3), layout="constrained")
    panels = figure.subplots(1, columns)
    for panel, (across, score, label) in zip(panels, parts, strict=False):
        values = {name: getattr(curve, score) for name, curve in curves.items()}
        _fill(panel, across, label or _LABELS[score], curves, values, looks)
    if reference:
        differences = {name: curve.train_loss - curves[reference].train_loss for name, curve in curves.items()}
        _fill(panels[-1], "rounds", f"loss minus that of {reference} [nat]", curves, differences, looks)
    handles, names = panels[0].get_legend_handles_labels()
    figure.legend(handles, names, loc="outside right center", frameon=False, fontsize=9, handlelength=3.2)
    figure.suptitle(title, fontsize=11)
    figure.supxlabel("\n".join(textwrap.wrap(caption, _CAPTION_COLUMNS * len(panels))), fontsize=8, color="0.25")
    return figure


def _fill(
    panel: Axes,
    across: str,
    label: str,
    curves: Curves,
    values: Mapping[str, np.ndarray],
    looks: Mapping[str, Look],
) -> None:
    for name, curve in curves.items():
        start = int(across in _LOGARITHMIC)  # where nothing is sent yet, which has no logarithm
        _line(panel, name, getattr(curve, across)[start:], values[name][:, start:], looks[name])
    panel.set_xlabel(_LABELS[across])
    panel.set_ylabel(label)
    if across in _LOGARITHMIC:
        panel.set_xscale("log")
    else:
        panel.set_xlim(0, max(curve.rounds[-1] for curve in curves.values()))
        panel.xaxis.set_major_locator(MaxNLocator(6, integer=True))
    panel.grid(alpha=0.3, linewidth=0.6)
    panel.spines[["top", "right"]].set_visible(False)


def _line(panel: Axes, name: str, rounds: np.ndarray, values: np.ndarray, look: Look) -> None:
    values = np.where(np.isfinite(values), values, np.nan)
    color, marker = PALETTE[look.color], _MARKERS[look.color]
    panel.fill_between(rounds, values.min(axis=0), values.max(axis=0), color=color, alpha=0.2, linewidth=0)
    panel.plot(
        rounds,
        values.mean(axis=0),
        label=name,
        color=color,
        linestyle=(0, (4, 2)) if look.dashed else "-",
        linewidth=1.5,
        marker=marker,
        markersize=4,
        markerfacecolor="white" if look.dashed else color,
        markevery=max(1, len(rounds) // 10),
    )
