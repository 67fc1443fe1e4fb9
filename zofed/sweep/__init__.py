"""Whole studies as few programs: grids of settings, and the cells that one vmapped program plays."""

from zofed.sweep.cell import Cell, Record, federated, initial_params
from zofed.sweep.grid import Axis, Grid, product
from zofed.sweep.plan import Group, split
from zofed.sweep.program import Program, client_mesh, vectorise

__all__ = [
    "Axis",
    "Cell",
    "Grid",
    "Group",
    "Program",
    "Record",
    "client_mesh",
    "federated",
    "initial_params",
    "product",
    "split",
    "vectorise",
]
