"""Rounds and bytes for an accuracy: Table 1 of DeComFL, and when its low effective rank pays."""

import math
from typing import NamedTuple

import jax
import numpy as np

from zofed import checks, ledger
from zofed.ledger import Costs

__all__ = ["Complexity", "cheaper_effective_rank", "complexity_table"]


class Complexity(NamedTuple):
    """What an accuracy costs all clients together, up to constants of the rounds.

    Attributes:
        rounds: the order of the number of rounds, with a constant of 1; rounded up.
        uplink_bytes: bytes sent in all of them.
        downlink_bytes: bytes received.
    """

    rounds: int
    uplink_bytes: int
    downlink_bytes: int

    @property
    def total_bytes(self) -> int:
        return self.uplink_bytes + self.downlink_bytes


def complexity_table(
    dim: int,
    num_clients: int,
    cohort_size: int,
    local_steps: int,
    num_directions: int,
    accuracy: float,
    effective_rank: float,
    compression: float = 1.0,
) -> dict[str, Complexity]:
    """Table 1 of DeComFL (arXiv 2405.15861): orders of rounds, times what a round's messages come to.

    A mean squared gradient norm of epsilon takes 1 / (m K eps^2) rounds of FedAvg and FedCom, d / (m P K eps^2) of
    FedZO and DeComFL, and kappa / (m P eps^2) of DeComFL with one local step where the effective rank is kappa. Bytes
    are those of `zofed.ledger`, of DeComFL in its paper's account: in the long run a seed and a scalar of each round
    for each of the M clients, whether it takes part or not.

    Args:
        dim: d, of 4-byte numbers.
        num_clients: M.
        cohort_size: m.
        local_steps: K; the row of low rank has 1.
        num_directions: P.
        accuracy: epsilon.
        effective_rank: kappa.
        compression: beta of FedCom, the share of a model's bytes that an update takes.

    Returns:
        By row: fedavg, fedzo, fedcom, decomfl, decomfl_low_rank.

    Raises:
        ValueError: a number is out of range.

    Example:
        >>> rows = complexity_table(10**6, 100, 10, 1, 10, accuracy=0.1, effective_rank=50.0)
        >>> rows["fedavg"], rows["decomfl_low_rank"]
        (Complexity(rounds=10, uplink_bytes=400000000, downlink_bytes=400000000),
         Complexity(rounds=50, uplink_bytes=20000, downlink_bytes=400000))
    """
    dim, num_clients = checks.count("dim", dim), checks.count("num_clients", num_clients)
    cohort_size = checks.count("cohort_size", cohort_size, at_most=num_clients, limit="num_clients")
    local_steps = checks.count("local_steps", local_steps)
    num_directions = checks.count("num_directions", num_directions)
    for name, value in (("accuracy", accuracy), ("effective_rank", effective_rank), ("compression", compression)):
        checks.positive(name, value)
    unit = cohort_size * accuracy**2
    first_order, zeroth_order = 1 / (local_steps * unit), dim / (num_directions * local_steps * unit)
    model = ledger.model_exchange(jax.ShapeDtypeStruct((dim,), np.float32))
    scalars = ledger.shared_directions_paper(local_steps, num_directions)
    one_step = ledger.shared_directions_paper(1, num_directions)
    exchange = _Cohort(num_clients, cohort_size)
    rows = {
        "fedavg": exchange.cost(model, first_order),
        "fedzo": exchange.cost(model, zeroth_order),
        "fedcom": exchange.cost(model, first_order),
        "decomfl": exchange.cost(scalars, zeroth_order),
        "decomfl_low_rank": exchange.cost(one_step, effective_rank / (num_directions * unit)),
    }
    compressed = math.ceil(compression * rows["fedcom"].uplink_bytes)
    return rows | {"fedcom": rows["fedcom"]._replace(uplink_bytes=compressed)}


class _Cohort(NamedTuple):
    num_clients: int
    size: int

    def cost(self, costs: Costs, rounds: float) -> Complexity:
        whole = math.ceil(rounds * (1 - 1e-12))
        # In the long run a participant replays num_clients / size rounds: num_clients in all.
        traffic = costs.over([self.size], [1], replayed_rounds=[self.num_clients])
        return Complexity(whole, whole * int(traffic.uplink_bytes[0]), whole * int(traffic.downlink_bytes[0]))


def cheaper_effective_rank(dim: int, num_clients: int, cohort_size: int, local_steps: int) -> float:
    """The effective rank below which DeComFL needs fewer bytes than FedAvg for the same accuracy, by Table 1.

    From kappa / (m P eps^2) rounds of P (4 m + 8 M) bytes against 1 / (m K eps^2) of 8 m d: neither P nor the accuracy
    stays. It is the paper's kappa << m d / (M K) with its constants, those of the two rates being taken as equal.

    Args:
        dim: d.
        num_clients: M.
        cohort_size: m.
        local_steps: K of FedAvg; DeComFL has 1.

    Example:
        >>> cheaper_effective_rank(dim=10**6, num_clients=100, cohort_size=10, local_steps=1)
        95238.0...
    """
    checks.count("local_steps", local_steps)
    checks.count("cohort_size", cohort_size, at_most=num_clients, limit="num_clients")
    model = ledger.model_exchange(jax.ShapeDtypeStruct((dim,), np.float32)).over([cohort_size], [1])
    scalars = ledger.shared_directions_paper(1, 1).over([cohort_size], [1], replayed_rounds=[num_clients])
    per_round = [int(traffic.uplink_bytes[0] + traffic.downlink_bytes[0]) for traffic in (model, scalars)]
    return per_round[0] / per_round[1] / local_steps
