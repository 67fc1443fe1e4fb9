"""Figures of a study: which there are, for any number of swept settings, and how their axes are worded."""

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import xarray
from matplotlib.figure import Figure

from experiments.files import replacing
from experiments.plot_curves import MAX_COLUMNS, learning_curves
from experiments.plot_maps import heat_map

__all__ = ["SEEDS", "draw_all", "save"]

SEEDS = ("seed", "data.seed")
"""Axes that repeat a study rather than change it: figures show their mean and spread."""


def draw_all(results: xarray.Dataset, directory: Path, by_queries: bool = False) -> list[Path]:
    """Draws the figures that the results allow, and returns their paths.

    Of the swept settings, seeds aside, learning curves show the first by colour and the second, if it has few
    values, by column; a heat map has the first and the second as its axes. Each combination of the others has
    figures of its own. With `by_queries` the learning curves are drawn against the queries, too.
    """
    if not (results["rounds_played"] >= 0).any():
        return []
    seeds = [name for name in SEEDS if name in results.dims]
    settings = [str(name) for name in results["diverged"].dims if name not in seeds]
    columns = [name for name in settings[1:2] if results.sizes[name] <= MAX_COLUMNS]
    paths = []
    for suffix, title, part in _parts(results, [name for name in settings[1:] if name not in columns]):
        figure = learning_curves(part, settings[:1], columns, seeds, title)
        paths.append(save(figure, directory / f"learning_curves{suffix}.png"))
        if by_queries:
            figure = learning_curves(part, settings[:1], columns, seeds, title, "queries")
            paths.append(save(figure, directory / f"query_curves{suffix}.png"))
    if len(settings) >= 2:
        for suffix, title, part in _parts(results, settings[2:]):
            figure = heat_map(part, settings[0], settings[1], seeds, title)
            paths.append(save(figure, directory / f"heat_map{suffix}.png"))
    return paths


def _parts(results: xarray.Dataset, apart: Sequence[str]) -> Iterator[tuple[str, str, xarray.Dataset]]:
    """The results for each combination of the settings `apart`, with a file suffix and a title."""
    for number, index in enumerate(np.ndindex(*(results.sizes[name] for name in apart))):
        part = results.isel(dict(zip(apart, index, strict=True)))
        title = ", ".join(f"{name} = {part[name].values[()]}" for name in apart)
        yield (f"_{number:02d}" if apart else ""), title, part


def save(figure: Figure, path: Path, dpi: int = 150) -> Path:
    """Writes a figure as PNG, atomically, and returns its path."""
    options: dict[str, Any] = {"dpi": dpi, "metadata": {"Software": None}}
    with replacing(path) as beside:
        figure.savefig(beside, **options)
    return path
