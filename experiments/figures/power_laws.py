"""The drawing of fitted power laws: measured means, the fit, and the slope that theory gives."""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from experiments.plot_curves import PALETTE
from zofed.theory.rates import Exponent

__all__ = ["Law", "Panel", "draw", "draw_all", "interval"]


class Law(NamedTuple):
    """One set of points.

    Attributes:
        label: in the legend.
        values: [seeds, points].
        fit: of them.
        theory: the exponent that theory gives.
    """

    label: str
    values: np.ndarray
    fit: Exponent
    theory: float


class Panel(NamedTuple):
    """The laws of one quantity, `x` its values."""

    name: str
    label: str
    measured: str
    x: np.ndarray
    laws: Sequence[Law]


def interval(fit: Exponent) -> str:
    """The exponent with its confidence interval."""
    return f"{fit.value:.2f} [{fit.low:.2f}, {fit.high:.2f}]"


def draw(panel: Panel) -> Figure:
    """A figure of one panel."""
    figure = Figure(figsize=(5.4, 3.8), layout="constrained")
    _fill(figure.subplots(), panel)
    return figure


def draw_all(panels: Sequence[Panel]) -> Figure:
    """All panels in two rows."""
    columns = -(-len(panels) // 2)
    figure = Figure(figsize=(3.4 * columns, 6.4), layout="constrained")
    axes = figure.subplots(2, columns).ravel()
    for place, panel in zip(axes, panels, strict=False):
        _fill(place, panel)
    for place in axes[len(panels) :]:
        place.set_visible(False)
    return figure


def _fill(axes: Axes, panel: Panel) -> None:
    axes.set_xscale("log")
    axes.set_yscale("log")
    for number, law in enumerate(panel.laws):
        _law(axes, panel.x, law, PALETTE[number])
    titles = [
        f"{law.label + ': ' if len(panel.laws) > 1 else ''}exponent {interval(law.fit)}, theory {law.theory:g}"
        for law in panel.laws
    ]
    axes.set_title("\n".join(titles), fontsize=8)
    axes.set_xticks(panel.x, [f"{value:g}" for value in panel.x])
    axes.set_xticks([], minor=True)
    axes.set_xlabel(panel.label)
    axes.set_ylabel(panel.measured, fontsize=8)
    axes.grid(alpha=0.3, linewidth=0.6, which="both")
    axes.spines[["top", "right"]].set_visible(False)
    axes.legend(frameon=False, fontsize=7)


def _law(axes: Axes, x: np.ndarray, law: Law, color: str) -> None:
    means = law.values.mean(axis=0)
    errors = 2 * law.values.std(axis=0, ddof=1) / np.sqrt(len(law.values))
    label = f"{law.label}, ± 2 standard errors"
    axes.errorbar(x, means, errors, fmt="o", markersize=4, color=color, capsize=3, label=label)
    axes.plot(x, law.fit.scale * x**law.fit.value, color=color, linewidth=1.2, label="fit")
    middle = np.exp(np.mean(np.log(means)) - law.theory * np.mean(np.log(x)))
    axes.plot(x, middle * x**law.theory, color=color, linestyle=":", linewidth=1.6, label="theory's slope")
