"""What a round sends, computed from Table 1 of DeComFL's paper and measured in runs.

python -m experiments.figures.decomfl_tab1 --workdir=runs/decomfl_tab1 [--quick | --cpu]

A quadratic of 28,938 dimensions, as many as the paper's network on MNIST has parameters, takes the place of a model:
what travels depends on its size and on who takes part, and on nothing else. 100 clients, 10 in a round, K = 2, P = 5.
`table.csv` has: the numbers of a round in Table 1 (computed); those that the ledger counts in a run (counted);
the bytes of messages, counted and as they are made, up to the first evaluation (measured: DeComFL's clients and server
exchange them, a model's arrays are what a client is given and returns, and FedCom's are packed into bytes); and what
Table 1's rates come to (rounds up to their constants).
"""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from experiments import build
from experiments.figures.command_line import Size, command
from experiments.figures.observations import Observation
from experiments.figures.points import Point, PointsFigure, Results
from experiments.files import write_rows
from experiments.metrics import Records
from experiments.settings import Config, quadratics, study
from zofed import decomfl, rng
from zofed.aggregation import mean
from zofed.algorithms.decomfl import rule
from zofed.base import Cohort
from zofed.protocol import Client, Plan, Server, Traffic, play_round
from zofed.theory import complexity_table

DIM, CLIENTS, COHORT, STEPS, DIRECTIONS, BITS = 28_938, 100, 10, 2, 5, 8
RATE = 1e-5
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
        learning_rate=RATE,
    )
    config.update_from_flattened_dict(CHANGES[name])
    return config


def points(size: Size) -> list[Point]:
    return [Point(name, config_of(name, size.num_rounds)) for name in CHANGES]


def messages_made(config: Config) -> Traffic:
    """Bytes of all messages up to the first evaluation, those of the config's first seed."""
    task, seed_key = build.task_of(config), rng.seed_key(config.seed)
    params, clients = task.init(rng.init_key(seed_key)), task.data.clients
    algorithm = build.algorithm_of(config, task.loss, build.traced_settings(config))
    cohorts = [algorithm.sample_cohort(rng.round_keys(seed_key, r), CLIENTS) for r in range(config.eval_every)]
    if config.algorithm.name == "decomfl":
        return _shared_directions(config, cohorts)
    state, keys = algorithm.init(params, CLIENTS), rng.round_keys(seed_key, 0)
    memory = jax.tree.map(lambda leaf: leaf[0], state.memory)
    message, *_ = jax.jit(algorithm.local)(keys, state.server, memory, clients.client(jnp.int32(0)))
    serialise = _packed if config.aggregation.bits < 32 else lambda leaf: leaf.tobytes()
    up = sum(len(serialise(np.asarray(leaf))) for leaf in jax.tree.leaves(message))
    down = sum(np.asarray(leaf).nbytes for leaf in jax.tree.leaves(algorithm.params(state)))
    heard = sum(cohort.ids.size for cohort in cohorts)
    return Traffic(heard * up, heard * down)


def _shared_directions(config: Config, cohorts: Sequence[Cohort]) -> Traffic:
    settings, task, seed_key = config.algorithm, build.task_of(config), rng.seed_key(config.seed)
    plan = Plan(
        lambda rate, count: decomfl(task.loss, rate, settings.smoothing, STEPS, count, settings.batch_size),
        rule(),
        task.init(rng.init_key(seed_key)),
        STEPS,
    )
    server = Server(plan, mean(), num_clients=CLIENTS)
    clients = [Client(id, task.data.clients, seed_key, plan) for id in range(CLIENTS)]
    rounds = [
        play_round(server, clients, cohort.ids.tolist(), rng.round_keys(seed_key, number).direction, DIRECTIONS, RATE)
        for number, cohort in enumerate(cohorts)
    ]
    return Traffic(*(sum(sent) for sent in zip(*rounds, strict=True)))


def _packed(leaf: np.ndarray) -> bytes:
    """A leaf on a grid of 256 levels, as bytes: the least entry, the step and each entry's place on the grid."""
    low, step = leaf.min(), np.ptp(leaf) / np.float32(2**BITS - 1)
    places = np.rint((leaf - low) / step)
    np.testing.assert_allclose(low + places * step, leaf, rtol=0, atol=1e-3 * step)
    return np.array([low, step], np.float32).tobytes() + places.astype(np.uint8).tobytes()


def row(size: Size, records: Records, rates: Any, name: str) -> dict[str, Any]:
    config = config_of(name, size.num_rounds)
    made = messages_made(config)
    mean_of = lambda column: float(records[column][:, -1].mean()) / size.num_rounds / 4  # noqa: E731
    first = lambda column: int(records[column][0, 1])  # noqa: E731
    return {
        "algorithm": name,
        "uplink_numbers_computed": COMPUTED[name][0],
        "uplink_numbers_counted": mean_of("uplink_bytes_paper"),
        "downlink_numbers_computed": COMPUTED[name][1],
        "downlink_numbers_counted": mean_of("downlink_bytes_paper"),
        "rounds_of_messages": config.eval_every,
        "uplink_bytes_of_messages_counted": first("uplink_bytes"),
        "uplink_bytes_of_messages_measured": made.uplink,
        "downlink_bytes_of_messages_counted": first("downlink_bytes"),
        "downlink_bytes_of_messages_measured": made.downlink,
        "rounds_computed": rates[name].rounds,
        "uplink_bytes_in_all_computed": rates[name].uplink_bytes,
        "downlink_bytes_in_all_computed": rates[name].downlink_bytes,
    }


def finish(size: Size, results: Results, directory: Path) -> list[Observation]:
    rates = complexity_table(DIM, CLIENTS, COHORT, STEPS, DIRECTIONS, ACCURACY, EFFECTIVE_RANK, BITS / 32)
    rows = [row(size, results[name], rates, name) for name in CHANGES]
    write_rows(directory / "table.csv", rows)
    by_name = {own["algorithm"]: own for own in rows}
    ours, others = by_name["decomfl"], [own for own in rows if own["algorithm"] != "decomfl"]
    config = config_of("decomfl", size.num_rounds)
    late = results["decomfl"]["downlink_bytes_paper"][:, [-1 - EVALUATIONS // 2, -1]]
    late_mean = float(np.diff(late, axis=1).mean()) / 4 / (size.num_rounds - size.num_rounds // 2)
    costs = [
        build.paper_costs_of(own, build.task_of(own))
        for own in (config, config_of("decomfl", size.num_rounds, dim=2 * DIM))
    ]

    def both(own: dict[str, Any], way: str) -> str:
        return f"{own['algorithm']}: {own[f'{way}_numbers_counted']:.0f} against {own[f'{way}_numbers_computed']:.0f}"

    ways = [f"{way}_bytes_of_messages" for way in ("uplink", "downlink")]
    return [
        Observation(
            "the ledger counts the bytes of the messages",
            "those that the parties make up to the first evaluation have the counted number of bytes, exactly",
            all(own[f"{way}_measured"] == own[f"{way}_counted"] for own in rows for way in ways),
            "; ".join(f"{own['algorithm']}: {[own[f'{way}_measured'] for way in ways]} up, down" for own in rows),
        ),
        Observation(
            "a round's uplink is that of Table 1",
            "the counted mean is the computed number, to the rounding of a fraction of a byte",
            all(abs(own["uplink_numbers_counted"] - own["uplink_numbers_computed"]) <= COHORT for own in rows),
            "; ".join(both(own, "uplink") for own in rows),
        ),
        Observation(
            "a round's downlink of the others is that of Table 1",
            "the counted mean is the computed number",
            all(own["downlink_numbers_counted"] == own["downlink_numbers_computed"] for own in others),
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
    sizes={"quick": Size(50, 1), "cpu": Size(500, 1), "full": Size(2000, 3)},
    points=points,
    finish=finish,
)

if __name__ == "__main__":
    command(FIGURE)
