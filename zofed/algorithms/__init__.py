"""Federated algorithms, one file each."""

from zofed.algorithms.baffle import baffle
from zofed.algorithms.decomfl import decomfl
from zofed.algorithms.fedavg import fedavg
from zofed.algorithms.fedzo import fedzo
from zofed.algorithms.mezo import mezo

__all__ = ["baffle", "decomfl", "fedavg", "fedzo", "mezo"]
