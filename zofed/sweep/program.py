"""A group of cells as one jitted program: vmapped, and spread over devices where there are several."""

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh, NamedSharding
from jax.sharding import PartitionSpec as Spec

from zofed.sweep.cell import Cell

__all__ = ["CELL_AXIS", "Program", "vectorise"]

CELL_AXIS = "cells"
"""Name of the mesh axis that cells are spread over."""


class Program(NamedTuple):
    """A cell's functions over a leading axis of cells, each traced and compiled once.

    Attributes:
        start: `(settings, data) -> (states, records)`.
        advance: `(states, settings, data) -> (states, records)`; the next states take the memory of these.
        pad: repeats the last cell until the devices have equal numbers of cells: for settings, and for states
            that were kept.
        trim: numpy arrays of the group's own cells only, of states or records.
        place: puts data on the devices, once.
    """

    start: Any
    advance: Any
    pad: Callable[[Any], Any]
    trim: Callable[[Any], Any]
    place: Callable[[Any], Any]


def vectorise(cell: Cell, num_cells: int, devices: Sequence[Any] | None = None) -> Program:
    """`cell` over `num_cells` cells. With several devices each plays an equal share of them, without talking.

    Args:
        cell: for instance `zofed.sweep.federated(...)`.
        num_cells: cells of the group.
        devices: default the first device alone.
    """
    devices = list(jax.devices()[:1] if devices is None else devices)[:num_cells]
    padding = -num_cells % len(devices)
    mesh = Mesh(np.array(devices), (CELL_AXIS,))
    by_cell, replicated = NamedSharding(mesh, Spec(CELL_AXIS)), NamedSharding(mesh, Spec())

    def over_cells(function: Callable[..., Any], donate: tuple[int, ...], num_trees: int) -> Any:
        mapped = jax.vmap(function, in_axes=(0,) * num_trees + (None,))
        shardings = (by_cell,) * num_trees + (replicated,)
        if len(devices) > 1:
            in_specs = (Spec(CELL_AXIS),) * num_trees + (Spec(),)
            mapped = jax.shard_map(mapped, mesh=mesh, in_specs=in_specs, out_specs=Spec(CELL_AXIS), check_vma=False)
        return jax.jit(mapped, in_shardings=shardings, out_shardings=by_cell, donate_argnums=donate)

    def pad(tree: Any) -> Any:
        repeat = lambda leaf: jnp.concatenate([leaf, jnp.repeat(leaf[-1:], padding, axis=0)])  # noqa: E731
        tree = jax.tree.map(repeat, tree) if padding else tree
        return jax.device_put(tree, by_cell)

    def trim(tree: Any) -> Any:
        return jax.tree.map(lambda leaf: np.asarray(leaf)[:num_cells], tree)

    start = over_cells(cell.start, (), 1)
    advance = over_cells(cell.advance, (0,), 2)
    return Program(start, advance, pad, trim, partial(jax.device_put, device=replicated))
