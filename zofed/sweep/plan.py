"""Which cells of a grid share a program: all that differ only in settings that a program can trace."""

from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np

from zofed.sweep.grid import Grid

__all__ = ["Group", "split"]


class Group(NamedTuple):
    """Cells that one program plays.

    Attributes:
        cells: their numbers in the grid.
        static: the swept settings that are the same in all of them and shape the program.
        traced: one array per traced setting, its value in each of the cells.
    """

    cells: tuple[int, ...]
    static: dict[str, Any]
    traced: dict[str, np.ndarray]


def split(grid: Grid, traced: Mapping[str, np.generic]) -> list[Group]:
    """Groups the cells by their static settings, in the order in which those first occur.

    Args:
        grid: the whole sweep.
        traced: the settings that a program traces, with their values where no axis gives others; the numpy
            scalars also give the dtypes. They are arguments of the program even where all cells agree, so that
            one compiled program serves every value.

    Example:
        >>> from zofed.sweep import Axis, product
        >>> grid = product([Axis("steps", (1, 5)), Axis("rate", (0.1, 0.2))])
        >>> for group in split(grid, {"rate": np.float32(1), "seed": np.uint32(0)}):
        ...     print(group.cells, group.static, group.traced["seed"])
        (0, 1) {'steps': 1} [0 0]
        (2, 3) {'steps': 5} [0 0]
    """
    cells = grid.cells()
    members: dict[tuple[Any, ...], list[int]] = {}
    for number, cell in enumerate(cells):
        shape = tuple(value for name, value in cell.items() if name not in traced)
        members.setdefault(shape, []).append(number)

    def group(numbers: list[int]) -> Group:
        static = {name: value for name, value in cells[numbers[0]].items() if name not in traced}
        values = {
            name: np.array([cells[number].get(name, default) for number in numbers], default.dtype)
            for name, default in traced.items()
        }
        return Group(tuple(numbers), static, values)

    return [group(numbers) for numbers in members.values()]
