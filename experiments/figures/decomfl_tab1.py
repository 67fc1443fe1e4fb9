"""What a round sends, computed from Table 1 of DeComFL's paper and measured in runs.

python -m experiments.figures.decomfl_tab1 --workdir=runs/decomfl_tab1 [--quick | --cpu]

A quadratic of 28,938 dimensions, as many as the paper's network on MNIST has parameters, takes the place of a model:
what travels depends on its size and on who takes part, and on nothing else. 100 clients, 10 in a round, K = 2, P = 5.
`table.csv` has both accounts of the ledger, and what Table 1's rates come to (rounds up to their constants).
"""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from experiments import build
from experiments.figures.observations import Observation
from experiments.figures.points import Point, PointsFigure, Results, Size, command, write_rows
from experiments.metrics import Records
from experiments.settings import Config, quadratics, study
from zofed.ledger import Traffic
from zofed.theory import complexity_table

DIM, CLIENTS, COHORT, STEPS, DIRECTIONS, BITS = 28_938, 100, 10, 2, 5, 8
CHANGES = {"fedavg": {}, "fedzo": {}, "fedcom": {"aggregation.bits": BITS}, "decomfl": {}}
COMPUTED = {
    "fedavg": (COHORT * DIM, COHORT * DIM),
    "fedzo": (COHORT * DIM, COHORT * DIM),
    "fedcom": (BITS / 32 * COHORT * DIM, COHORT * DIM),
    "decomfl": (COHORT * STEPS * DIRECTIONS, 2 * CLIENTS * STEPS * DIRECTIONS),
}
"""Table 1's columns: numbers of 4 bytes in a round, up and down."""

EVALUATIONS = 10
ACCURACY, EFFECTIVE_RANK = 0.1, 100.0
NEAR = 0.05
"""A mean is near what it tends to if it is off by at most this share."""


def config_of(name: str, num_rounds: int, dim: int = DIM) -> Config:
    """The run of a row."""
    config = study(quadratics(dim=dim, samples_per_client=1))
    config.update(num_rounds=num_rounds, eval_every=num_rounds // EVALUATIONS)
    config.update(num_clients=CLIENTS, cohort_size=COHORT)
    config.algorithm.update(
        name="fedavg" if name == "fedcom" else name,
        local_steps=STEPS,
        num_directions=DIRECTIONS,
        batch_size=1,
        learning_rate=1e-5,
    )
    config.update_from_flattened_dict(CHANGES[name])
    return config


def points(size: Size) -> list[Point]:
    return [Point(name, config_of(name, size.num_rounds)) for name in CHANGES]


def traffic(config: Config, records: Records, costs_of: Callable[..., Any]) -> Traffic:
    """[seeds, evaluations] what was sent since the start."""
    heard = np.zeros_like(records["participants"])
    heard[:, 1:] = config.eval_every - records["empty_rounds"][:, 1:]
    replayed = records.get("replayed_rounds", np.zeros_like(heard))
    return costs_of(config, build.task_of(config)).over(records["participants"], heard, replayed)


def row(size: Size, results: Results, rates: Any, name: str) -> dict[str, Any]:
    config = config_of(name, size.num_rounds)
    paper, wire = (traffic(config, results[name], account) for account in (build.paper_costs_of, build.costs_of))
    mean = lambda sent: float(sent[:, -1].mean()) / size.num_rounds  # noqa: E731
    return {
        "algorithm": name,
        "uplink_numbers_computed": COMPUTED[name][0],
        "uplink_numbers_measured": mean(paper.uplink_bytes) / 4,
        "downlink_numbers_computed": COMPUTED[name][1],
        "downlink_numbers_measured": mean(paper.downlink_bytes) / 4,
        "uplink_bytes_as_serialised": mean(wire.uplink_bytes),
        "downlink_bytes_as_serialised": mean(wire.downlink_bytes),
        "rounds_computed": rates[name].rounds,
        "uplink_bytes_in_all_computed": rates[name].uplink_bytes,
        "downlink_bytes_in_all_computed": rates[name].downlink_bytes,
    }


def finish(size: Size, results: Results, directory: Path) -> list[Observation]:
    rates = complexity_table(DIM, CLIENTS, COHORT, STEPS, DIRECTIONS, ACCURACY, EFFECTIVE_RANK, BITS / 32)
    rows = [row(size, results, rates, name) for name in CHANGES]
    write_rows(directory / "table.csv", rows)
    by_name = {own["algorithm"]: own for own in rows}
    ours, others = by_name["decomfl"], [own for own in rows if own["algorithm"] != "decomfl"]
    config = config_of("decomfl", size.num_rounds)
    late = traffic(config, results["decomfl"], build.paper_costs_of).downlink_bytes[:, [-1 - EVALUATIONS // 2, -1]]
    late_mean = float(np.diff(late, axis=1).mean()) / 4 / (size.num_rounds - size.num_rounds // 2)
    costs = [
        build.paper_costs_of(own, build.task_of(own))
        for own in (config, config_of("decomfl", size.num_rounds, dim=2 * DIM))
    ]

    def both(own: dict[str, Any], way: str) -> str:
        return f"{own['algorithm']}: {own[f'{way}_numbers_measured']:.0f} against {own[f'{way}_numbers_computed']:.0f}"

    return [
        Observation(
            "a round's uplink is that of Table 1",
            "the measured mean is the computed number, to the rounding of a fraction of a byte",
            all(abs(own["uplink_numbers_measured"] - own["uplink_numbers_computed"]) <= COHORT for own in rows),
            "; ".join(both(own, "uplink") for own in rows),
        ),
        Observation(
            "a round's downlink of the others is that of Table 1",
            "the measured mean is the computed number",
            all(own["downlink_numbers_measured"] == own["downlink_numbers_computed"] for own in others),
            "; ".join(both(own, "downlink") for own in others),
        ),
        Observation(
            "DeComFL's downlink is 2MKP numbers a round on average",
            f"over the second half of the rounds the mean is within {NEAR:.0%} of it",
            abs(late_mean / ours["downlink_numbers_computed"] - 1) <= NEAR,
            f"{both(ours, 'downlink')}; {late_mean:.0f} over the second half",
        ),
        Observation(
            "what DeComFL sends does not depend on the dimension",
            "the ledger has the same costs for a model twice as large",
            costs[0] == costs[1],
            f"d = {DIM} and {2 * DIM}: {costs[0].per_participant.uplink_bytes} and "
            f"{costs[1].per_participant.uplink_bytes} bytes up per participant",
        ),
    ]


FIGURE = PointsFigure(
    name="decomfl_tab1",
    title="Table 1 of DeComFL: what a round sends",
    sizes={"quick": Size(50, 1), "cpu": Size(500, 3), "full": Size(2000, 3)},
    points=points,
    finish=finish,
)

if __name__ == "__main__":
    command(FIGURE)
