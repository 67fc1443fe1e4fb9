"""zofed: a JAX functional simulator for federated zeroth-order optimisation."""

from zofed.algorithms import baffle, decomfl, dzopa, fedavg, fedzo, mezo, zone_s
from zofed.base import Algorithm, Client, ClientData, Cohort, LocalInfo, RoundInfo, State, dimension
from zofed.blackbox import blackbox
from zofed.simulate import Trace, simulate

__all__ = [
    "Algorithm",
    "Client",
    "ClientData",
    "Cohort",
    "LocalInfo",
    "RoundInfo",
    "State",
    "Trace",
    "baffle",
    "blackbox",
    "decomfl",
    "dimension",
    "dzopa",
    "fedavg",
    "fedzo",
    "mezo",
    "simulate",
    "zone_s",
]
