"""What a round sends: computed from Table 1 of DeComFL's paper, counted by the ledger, and measured on messages.

python -m experiments.figures.decomfl_tab1 --workdir=runs/decomfl_tab1 [--quick | --cpu]

A quadratic of 28,938 dimensions, as many as the paper's network on MNIST has parameters, takes the place of a model:
what travels depends on its size and on who takes part, and on nothing else. 100 clients, 10 in a round, K = 2, P = 5.

The columns of `table.csv` end with where they are from. computed: Table 1, and what its rates come to (rounds up to
their constants). ledger: what it counts in a run of all rounds; numbers are of 4 bytes, as the paper counts. measured:
messages of the run's first rounds, each of which is made, sent and read (`experiments.figures.exchanges`). A measured
number is one of 4 bytes, too, but DeComFL's messages have one key of 2 and a rate for each round that was missed, where
the paper counts K P seeds.
"""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from experiments.figures.command_line import Size, command
from experiments.figures.exchanges import Exchange, exchange
from experiments.figures.observations import Observation
from experiments.figures.points import Point, PointsFigure, Results
from experiments.files import write_rows
from experiments.metrics import Records
from experiments.settings import Config, quadratics, study
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

WAYS = ("uplink", "downlink")
EVALUATIONS = 10
"""Of a run after its start; messages are measured up to the first one."""
OF_TWICE_THE_SIZE = 3
"""Rounds that are played by messages with a model of twice the size."""
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


def row(size: Size, records: Records, made: Exchange, rates: Any, name: str) -> dict[str, Any]:
    played = len(made.uplink)
    columns: dict[str, Any] = {"algorithm": name, "rounds_of_ledger": size.num_rounds, "rounds_of_messages": played}
    for way, computed, sent in zip(WAYS, COMPUTED[name], made[:2], strict=True):
        measured_bytes, measured_numbers = np.sum(sent, axis=0)
        columns |= {
            f"{way}_numbers_computed": computed,
            f"{way}_numbers_ledger": float(records[f"{way}_bytes_paper"][:, -1].mean()) / 4 / size.num_rounds,
            f"{way}_numbers_measured": float(measured_numbers) / played,
            f"{way}_bytes_of_messages_ledger": int(records[f"{way}_bytes"][0, 1]),
            f"{way}_bytes_of_messages_measured": int(measured_bytes),
        }
    return columns | {
        "rounds_to_accuracy_computed": rates[name].rounds,
        "uplink_bytes_to_accuracy_computed": rates[name].uplink_bytes,
        "downlink_bytes_to_accuracy_computed": rates[name].downlink_bytes,
    }


def finish(size: Size, results: Results, directory: Path) -> list[Observation]:
    rates = complexity_table(DIM, CLIENTS, COHORT, STEPS, DIRECTIONS, ACCURACY, EFFECTIVE_RANK, BITS / 32)
    configs = {name: config_of(name, size.num_rounds) for name in CHANGES}
    made = {name: exchange(config, config.eval_every) for name, config in configs.items()}
    rows = [row(size, results[name], made[name], rates, name) for name in CHANGES]
    write_rows(directory / "table.csv", rows)
    ours, others = rows[-1], rows[:-1]
    late = results["decomfl"]["downlink_bytes_paper"][:, [-1 - EVALUATIONS // 2, -1]]
    late_mean = float(np.diff(late, axis=1).mean()) / 4 / (size.num_rounds - size.num_rounds // 2)
    twice = exchange(config_of("decomfl", size.num_rounds, dim=2 * DIM), OF_TWICE_THE_SIZE)
    first = [(own.uplink[:OF_TWICE_THE_SIZE], own.downlink[:OF_TWICE_THE_SIZE]) for own in (made["decomfl"], twice)]
    return [
        Observation(
            "the ledger counts the bytes of the messages",
            "all messages up to the first evaluation have as many bytes as the ledger says, exactly",
            all(
                own[f"{way}_bytes_of_messages_measured"] == own[f"{way}_bytes_of_messages_ledger"]
                for own in rows
                for way in WAYS
            ),
            "; ".join(_beside(own, f"{way}_bytes_of_messages", ("measured", "ledger")) for own in rows for way in WAYS),
        ),
        Observation(
            "a round's uplink is that of Table 1",
            "the measured mean is the computed number, with FedCom's least entry and step for each participant besides",
            all(abs(own["uplink_numbers_measured"] - own["uplink_numbers_computed"]) <= 2 * COHORT for own in rows),
            "; ".join(_beside(own, "uplink_numbers") for own in rows),
        ),
        Observation(
            "a round's downlink of the others is that of Table 1",
            "the measured mean is the computed number",
            all(own["downlink_numbers_measured"] == own["downlink_numbers_computed"] for own in others),
            "; ".join(_beside(own, "downlink_numbers") for own in others),
        ),
        Observation(
            "DeComFL's downlink is 2MKP numbers a round on average",
            f"over the second half of the rounds the ledger's mean is within {NEAR:.0%} of it",
            abs(late_mean / ours["downlink_numbers_computed"] - 1) <= NEAR,
            f"ledger over the second half {late_mean:,.0f}; {_beside(ours, 'downlink_numbers')} (ledger: all rounds; "
            f"measured: the first {ours['rounds_of_messages']}, one key for each round that was missed)",
        ),
        Observation(
            "what DeComFL sends does not depend on the dimension",
            f"messages of {OF_TWICE_THE_SIZE} rounds have as many bytes with a model of twice the size, each round's",
            first[0] == first[1],
            "; ".join(
                f"d = {dim}: {np.sum(up, axis=0)[0]:.0f} bytes up, {np.sum(down, axis=0)[0]:.0f} down (measured)"
                for dim, (up, down) in zip((DIM, 2 * DIM), first, strict=True)
            ),
        ),
    ]


def _beside(own: Mapping[str, Any], column: str, sources: tuple[str, ...] = ("measured", "ledger", "computed")) -> str:
    values = ", ".join(f"{source} {own[f'{column}_{source}']:,.0f}" for source in sources)
    return f"{own['algorithm']} {column.split('_')[0]}: {values}"


FIGURE = PointsFigure(
    name="decomfl_tab1",
    title="Table 1 of DeComFL: what a round sends",
    sizes={"quick": Size(50, 1), "cpu": Size(500, 1), "full": Size(2000, 3)},
    points=points,
    finish=finish,
)

if __name__ == "__main__":
    command(FIGURE)
