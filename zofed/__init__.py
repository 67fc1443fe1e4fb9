"""zofed: a JAX functional simulator for federated zeroth-order optimisation."""

from zofed.algorithms import baffle, decomfl, fedavg, fedzo, mezo
from zofed.base import Algorithm, Client, ClientData, Cohort, LocalInfo, RoundInfo, State, dimension
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
    "decomfl",
    "dimension",
    "fedavg",
    "fedzo",
    "mezo",
    "simulate",
]
