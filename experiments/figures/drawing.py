"""The drawing of a figure: training loss and test accuracy against the round, side by side."""

import textwrap
from collections.abc import Mapping
from typing import NamedTuple

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

from experiments.figures.observations import Curves, Measured
from experiments.plot_curves import PALETTE

__all__ = ["Look", "draw"]

_MARKERS = "osD^vPX"
_PANELS = {"train_loss": "training loss f(x) [nat]", "test_accuracy": "test accuracy"}
_CAPTION_COLUMNS = 150


class Look(NamedTuple):
    """How a curve is drawn: `color` is a place in the palette, which gives the marker too."""

    color: int
    dashed: bool = False


def draw(title: str, caption: str, curves: Curves, looks: Mapping[str, Look]) -> Figure:
    """Two panels, a legend beside them and a caption below; lines are means over the seeds, bands their range."""
    figure = Figure(figsize=(10.5, 4.3), layout="constrained")
    panels = figure.subplots(1, len(_PANELS))
    for panel, (score, label) in zip(panels, _PANELS.items(), strict=True):
        for name, curve in curves.items():
            _line(panel, name, curve, score, looks[name])
        panel.set_xlabel("communication round")
        panel.set_ylabel(label)
        panel.set_xlim(0, max(curve.rounds[-1] for curve in curves.values()))
        panel.xaxis.set_major_locator(MaxNLocator(6, integer=True))
        panel.grid(alpha=0.3, linewidth=0.6)
        panel.spines[["top", "right"]].set_visible(False)
    handles, names = panels[0].get_legend_handles_labels()
    figure.legend(handles, names, loc="outside right center", frameon=False, fontsize=9, handlelength=3.2)
    figure.suptitle(title, fontsize=11)
    figure.supxlabel("\n".join(textwrap.wrap(caption, _CAPTION_COLUMNS)), fontsize=8, color="0.25")
    return figure


def _line(panel: Axes, name: str, curve: Measured, score: str, look: Look) -> None:
    values: np.ndarray = getattr(curve, score)
    values = np.where(np.isfinite(values), values, np.nan)
    color, marker = PALETTE[look.color], _MARKERS[look.color]
    panel.fill_between(curve.rounds, values.min(axis=0), values.max(axis=0), color=color, alpha=0.2, linewidth=0)
    panel.plot(
        curve.rounds,
        values.mean(axis=0),
        label=name,
        color=color,
        linestyle=(0, (4, 2)) if look.dashed else "-",
        linewidth=1.5,
        marker=marker,
        markersize=4,
        markerfacecolor="white" if look.dashed else color,
        markevery=max(1, len(curve.rounds) // 10),
    )
