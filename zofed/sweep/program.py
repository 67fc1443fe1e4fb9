"""A group of cells as one jitted program: vmapped, and spread over devices where there are several."""

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh, NamedSharding
from jax.sharding import PartitionSpec as Spec

from zofed.simulate import CLIENT_AXIS
from zofed.sweep.cell import Cell

__all__ = ["CELL_AXIS", "Program", "client_mesh", "vectorise"]

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


def client_mesh(devices: Sequence[Any]) -> Mesh:
    """The mesh for `zofed.simulate` and `vectorise` that spreads each cell's clients over the devices."""
    return Mesh(np.array(devices), (CLIENT_AXIS,))


def vectorise(
    cell: Cell,
    num_cells: int,
    devices: Sequence[Any] | None = None,
    clients: Mesh | None = None,
    cell_chunk: int | None = None,
) -> Program:
    """`cell` over `num_cells` cells. With several devices each plays an equal share of them, without talking.

    Args:
        cell: for instance `zofed.sweep.federated(...)`.
        num_cells: cells of the group.
        devices: default the first device alone.
        clients: the mesh over which `cell` itself spreads its clients, in the place of devices for cells.
        cell_chunk: cells vmapped at once on a device; blocks of them follow one another. None vmaps all. A cell whose
            working set fills the cache is fastest alone. The largest divisor of a device's share up to this is taken.
    """
    devices = list(jax.devices()[:1] if devices is None or clients is not None else devices)[:num_cells]
    padding = -num_cells % len(devices)
    mesh = Mesh(np.array(devices), (CELL_AXIS,)) if clients is None else clients
    replicated = NamedSharding(mesh, Spec())
    by_cell = NamedSharding(mesh, Spec(CELL_AXIS)) if clients is None else replicated

    share = (num_cells + padding) // len(devices)
    block = max(size for size in range(1, min(cell_chunk or share, share) + 1) if share % size == 0)

    def over_cells(function: Callable[..., Any], donate: tuple[int, ...], num_trees: int) -> Any:
        def mapped(*arguments: Any) -> Any:
            *trees, data = arguments
            # A block of one is a cell, not a vmap over one.
            blocks = block if block > 1 else None
            return jax.lax.map(lambda cells: function(*cells, data), tuple(trees), batch_size=blocks)

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
