"""Grids of settings: axes and their product, cell by cell."""

import itertools
import math
from collections.abc import Sequence
from typing import Any, NamedTuple

__all__ = ["Axis", "Grid", "product"]


class Axis(NamedTuple):
    """One swept setting: its dotted name and the values it takes."""

    name: str
    values: tuple[Any, ...]


class Grid(NamedTuple):
    """Cells in C order: the last axis runs fastest. Without axes it has one cell."""

    axes: tuple[Axis, ...]

    @property
    def shape(self) -> tuple[int, ...]:
        return tuple(len(axis.values) for axis in self.axes)

    @property
    def num_cells(self) -> int:
        return math.prod(self.shape)

    def cells(self) -> list[dict[str, Any]]:
        """The swept settings of every cell.

        Example:
            >>> product([Axis("rate", (0.1, 1.0)), Axis("seed", (0, 1))]).cells()[1:3]
            [{'rate': 0.1, 'seed': 1}, {'rate': 1.0, 'seed': 0}]
        """
        names = [axis.name for axis in self.axes]
        combinations = itertools.product(*(axis.values for axis in self.axes))
        return [dict(zip(names, values, strict=True)) for values in combinations]


def product(axes: Sequence[Axis]) -> Grid:
    """Every combination of the values of the axes.

    Raises:
        ValueError: an axis is there twice, has no value, or has a value twice.
    """
    names = [axis.name for axis in axes]
    for axis in axes:
        if names.count(axis.name) > 1:
            raise ValueError(f"{axis.name} is swept twice; give all its values in one axis")
        if not axis.values:
            raise ValueError(f"the axis {axis.name} has no value; at least 1 is needed")
        if len(set(axis.values)) < len(axis.values):
            raise ValueError(f"the axis {axis.name} has a value twice: {list(axis.values)}")
    return Grid(tuple(axes))
