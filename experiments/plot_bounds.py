"""The figure of a validation: the measured mean of ||grad f||^2 against a bound, term by term."""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from experiments.plot_curves import PALETTE
from zofed.theory import Bound

__all__ = ["Panel", "draw"]

_NAMES = {
    "initial_gap": "initial gap",
    "heterogeneity": "heterogeneity",
    "sampling": "sampling of clients",
    "drift": "drift",
    "noise": "data noise",
    "smoothing": "smoothing",
    "channel": "channel noise",
}


class Panel(NamedTuple):
    """One learning rate.

    Attributes:
        learning_rate: eta.
        rounds: [T] 1 ... T, numbers of rounds averaged over.
        measured: [seeds, T] means over the rounds so far.
        bound: at these numbers of rounds.
    """

    learning_rate: float
    rounds: np.ndarray
    measured: np.ndarray
    bound: Bound


def draw(title: str, caption: str, panels: Sequence[Panel]) -> Figure:
    """Panels side by side, all with the same axes; a bound whose conditions do not hold is dotted.

    Args:
        title: above them.
        caption: below them.
        panels: one per learning rate.
    """
    figure = Figure(figsize=(2.2 + 2.7 * len(panels), 4.0), layout="constrained")
    axes = figure.subplots(1, len(panels), squeeze=False, sharey=True)[0]
    for panel, part in zip(axes, panels, strict=True):
        _fill(panel, part)
    axes[0].set_ylabel("mean of ||grad f(x)||² over the rounds so far")
    axes[0].set_ylim(*_limits(panels))
    handles = {
        label: handle for panel in axes[::-1] for handle, label in zip(*panel.get_legend_handles_labels(), strict=True)
    }
    figure.legend(handles.values(), handles.keys(), loc="outside right center", frameon=False, fontsize=8)
    figure.suptitle(title, fontsize=10)
    figure.supxlabel(caption, fontsize=8, color="0.25")
    return figure


def _limits(panels: Sequence[Panel]) -> tuple[float, float]:
    measured = np.concatenate([part.measured.ravel() for part in panels])
    measured = measured[np.isfinite(measured) & (measured > 0)]
    totals = np.concatenate([np.atleast_1d(part.bound.total).ravel() for part in panels])
    return measured.min() / 300, 2 * max(measured.max(), totals.max())


def _fill(panel: Axes, part: Panel) -> None:
    measured = np.where(np.isfinite(part.measured), part.measured, np.nan)
    holds = bool(part.bound.holds)
    panel.fill_between(part.rounds, measured.min(axis=0), measured.max(axis=0), color="0.2", alpha=0.25, linewidth=0)
    panel.plot(part.rounds, measured.mean(axis=0), color="black", linewidth=1.8, label="measured: mean, range of seeds")
    total = np.broadcast_to(part.bound.total, part.rounds.shape)
    panel.plot(part.rounds, total, color=PALETTE[1], linestyle="-" if holds else ":", linewidth=1.8, label="bound")
    for number, (name, value) in enumerate(part.bound.terms._asdict().items()):
        if np.max(value) > 0:
            color = (*PALETTE[:1], *PALETTE[2:6], "0.5", "#8C564B")[number]
            values = np.broadcast_to(value, part.rounds.shape)
            panel.plot(part.rounds, values, color=color, linestyle="--", linewidth=1.0, label=_NAMES[name])
    margin = min(float(value) for value in part.bound.margins.values())
    words = "" if holds else "\noutside the conditions"
    panel.set_title(f"η = {part.learning_rate:.3g}, margin {margin:.2g}{words}", fontsize=9)
    panel.set_xscale("log")
    panel.set_yscale("log")
    panel.set_xlabel("rounds T")
    panel.grid(alpha=0.3, linewidth=0.6)
    panel.spines[["top", "right"]].set_visible(False)
