"""Federated algorithms, one file each."""

from zofed.algorithms.baffle import baffle
from zofed.algorithms.decomfl import decomfl
from zofed.algorithms.dzopa import dzopa
from zofed.algorithms.fedavg import fedavg
from zofed.algorithms.fedzo import fedzo
from zofed.algorithms.mezo import mezo
from zofed.algorithms.zone_s import zone_s

__all__ = ["baffle", "decomfl", "dzopa", "fedavg", "fedzo", "mezo", "zone_s"]
