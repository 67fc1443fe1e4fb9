"""Federated algorithms, one file each."""

from zofed.algorithms.fedavg import fedavg
from zofed.algorithms.fedzo import fedzo

__all__ = ["fedavg", "fedzo"]
