"""DeComFL's figures: their settings, their criteria where the paper is right and where it is not, and their lengths."""

import csv
import importlib
import json
from collections.abc import Callable
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import xarray

from experiments import build, sweeps
from experiments.figures import command_line, curves, decomfl_tab1, decomfl_tab4, exchanges
from experiments.figures.command_line import Size
from experiments.figures.curves import Figure
from experiments.figures.decomfl_observations import (
    behind_at_equal_length,
    better_in_pairs,
    ends_higher_in_turn,
    far_shorter,
    less_steady,
    matters_more,
)
from experiments.figures.observations import Curves, Measured, Observation
from experiments.settings import flatten, images
from zofed import rng, simulate

pytestmark = pytest.mark.usefixtures("compilation_cache")

NAMES = ("decomfl_fig2", "decomfl_fig3", "decomfl_fig4", "decomfl_fig6")
PAPER = {
    "num_clients": 100,
    "cohort_size": 10,
    "algorithm.learning_rate": 1e-3,
    "algorithm.momentum": 0.5,
    "algorithm.batch_size": 32,
    "data.partition": "dirichlet",
    "data.dirichlet_alpha": 1.0,
}


def figure(name: str) -> Figure:
    return importlib.import_module(f"experiments.figures.{name}").FIGURE


def curve(final: float, per_round: float, start: float = 0.1, loss: float = 1.0, spread: float = 0.0) -> Measured:
    """An accuracy that rises along a line to `final`, plus and minus `spread` in two seeds; a loss that falls."""
    rounds = np.arange(0, 50, 10)
    accuracy = np.linspace(start, final, 5) + spread * np.array([[-1.0], [1.0]])
    return Measured(rounds, np.tile(np.linspace(2.0, loss, 5), (2, 1)), accuracy, per_round * rounds)


CURVES: Curves = {
    "short": curve(0.8, 1.0),
    "longer": curve(0.9, 10.0),
    "longest": curve(0.95, 1000.0),
    "low": curve(0.3, 1.0),
    "wide": curve(0.79, 1.0, spread=0.05),
    "same": curve(0.79, 1.0),
}


@pytest.mark.parametrize(
    ("observation", "seen"),
    [
        (ends_higher_in_turn("s", CURVES, ["low", "short", "longer"]), True),
        (ends_higher_in_turn("s", CURVES, ["longer", "short"]), False),
        (behind_at_equal_length("s", CURVES, ["short", "longer", "longest"]), False),  # 0.8 is less than 0.9 there
        (behind_at_equal_length("s", {**CURVES, "slow": curve(0.9, 20.0)}, ["short", "slow"]), True),
        (matters_more("s", CURVES, ["low", "short"], ["short", "longer"]), True),
        (matters_more("s", CURVES, ["short", "longer"], ["low", "short"]), False),
        (far_shorter("s", CURVES, "short", ["longest"]), True),
        (far_shorter("s", CURVES, "short", ["longest", "longer"]), False),  # ten times
        (less_steady("s", CURVES, ["low", "short"], ["short", "longer"]), True),
        (less_steady("s", CURVES, ["low", "short"], ["low", "same"]), False),
        (better_in_pairs("s", CURVES, [("short", "low"), ("longer", "short")]), True),
        (better_in_pairs("s", CURVES, [("short", "wide")]), False),  # one seed of two
    ],
)
def test_an_observation_is_seen_or_not(observation: Observation, seen: bool) -> None:
    assert observation.seen is seen
    assert any(label in observation.numbers for label in CURVES)


IDEAL = {
    "decomfl_fig2": [(0.7, 10), (0.8, 20), (0.95, 40), (0.82, 80), (0.84, 200), (0.96, 28938)],
    "decomfl_fig3": [(0.8, 25, 1.2), (0.9, 1e6, 1.0), (0.9, 3e5, 1.0), (0.7, 1e5, 1.4)],
    "decomfl_fig4": [
        *[(0.80 + 0.01 * number, 10) for number in range(4)],
        *[(0.2 * number, 10) for number in range(4)],
    ],
    "decomfl_fig6": [(0.8, 25), (0.75, 1e5), (0.7, 6e4), (0.6, 1e4)],
}
"""Final accuracy, numbers per round and final loss of curves on which all that the paper says is seen."""


@pytest.mark.parametrize("name", NAMES)
def test_a_figure_sees_what_the_paper_says_where_it_is_and_only_there(name: str) -> None:
    labels = [part.label for part in figure(name).curves]
    ideal = {
        label: curve(final, length, 0.1, *loss)
        for label, (final, length, *loss) in zip(labels, IDEAL[name], strict=True)
    }
    assert [observation.seen for observation in figure(name).observe(ideal)].count(False) == 0
    equal = {label: curve(0.5, 10.0) for label in labels}
    assert not any(observation.seen for observation in figure(name).observe(equal))


@pytest.mark.parametrize("name", NAMES)
def test_curves_have_the_paper_s_settings(name: str) -> None:
    """At the full size, and for all curves."""
    studies = {study.name: curves.sized(study, figure(name).sizes["full"]) for study in figure(name).studies}
    for part in figure(name).curves:
        flat = flatten(sweeps.apply(studies[part.study].config, part.settings))
        expected = {setting: value for setting, value in PAPER.items() if setting not in part.settings}
        assert {setting: flat[setting] for setting in expected} == expected
        assert flat["data.model"] == ("mnist_cnn" if flat["data.name"] == "mnist" else "fashion_cnn")
        assert flat["algorithm.optimizer"] == ("trace" if flat["algorithm.name"] == "fedavg" else "momentum")
        if flat["algorithm.name"] == "decomfl" and flat["data.name"] == "fashion_mnist":
            assert flat["schedule.rounds"] == (500, 1000, 2000)
            assert (flat["algorithm.num_directions"], flat["schedule.num_directions_factors"]) == (25, (2, 4, 8))


@pytest.mark.parametrize("name", NAMES)
def test_every_size_can_be_played(name: str, load_real: Callable[[str], object]) -> None:
    """What `play` checks before anything compiles, for each size and each cell."""
    for study in figure(name).studies:
        load_real(study.config.data.name)
        for size in figure(name).sizes.values():
            whole = curves.sized(study, size)
            for cell in sweeps.parse(whole.axes, whole.config).cells():
                build.check(sweeps.apply(whole.config, cell))


def test_lengths_are_what_the_ledger_counts_for_a_client_of_every_round(tmp_path: Path) -> None:
    """Two participants of five: FedAvg sends 10 * 65 numbers a round, a quarter with 8 bits, DeComFL P, then 2 P."""
    whole = figure("decomfl_fig3")
    studies = []
    for study in whole.studies:
        config = study.config.copy_and_resolve_references()
        config.data = images("digits")
        config.update(num_clients=5, cohort_size=2)
        config.algorithm.update(batch_size=2, local_steps=1, num_directions=3)
        if config.schedule.rounds:
            config.schedule.update(rounds=(2,), num_directions_factors=(2,))
        studies.append(study._replace(config=config))
    assert whole._replace(studies=tuple(studies)).play(Size(4, 2, 2), tmp_path) == 0
    expected = {"decomfl": [0, 6, 18], "fedavg": [[0, 1300, 2600], [0, 325, 650]], "top_k": [[0, 130, 260]]}
    for study in whole.studies:
        results = xarray.load_dataset(tmp_path / study.name / "results.nc")
        sent = results["uplink_bytes_paper"].isel(seed=0).values / 4 / 2
        np.testing.assert_allclose(sent, expected[study.name], rtol=0, atol=1)
    with (tmp_path / "summary.csv").open() as file:
        assert [row["vector_length"] for row in csv.DictReader(file)] == ["18", "2600", "650", "260"]


def test_table_1_measures_what_it_computes(tmp_path: Path) -> None:
    """In 20 rounds, too few for DeComFL's downlink to be what it tends to; messages of the first two."""
    sizes = dict.fromkeys(("quick", "cpu", "full"), Size(20, 1))
    assert command_line.main(decomfl_tab1.FIGURE._replace(sizes=sizes), [f"--workdir={tmp_path}", "--quick"]) == 0
    with (tmp_path / "table.csv").open() as file:
        table = {row.pop("algorithm"): row for row in csv.DictReader(file)}
    rows = {name: {column: float(value) for column, value in row.items()} for name, row in table.items()}
    for name, row in rows.items():
        assert row["uplink_numbers_ledger"] == pytest.approx(row["uplink_numbers_computed"], rel=1e-4)
        share = row["downlink_numbers_ledger"] / row["downlink_numbers_computed"]
        assert 0.05 < share < 0.8 if name == "decomfl" else share == 1
        for way in ("uplink", "downlink"):
            assert row[f"{way}_bytes_of_messages_measured"] == row[f"{way}_bytes_of_messages_ledger"] > 0
    assert rows["fedcom"]["uplink_numbers_measured"] == 10 * (28_938 / 4 + 2)
    assert rows["decomfl"]["uplink_numbers_measured"] == 10 * 10
    assert rows["decomfl"]["uplink_bytes_of_messages_measured"] == 2 * 10 * (20 + 4 * 10)
    # Nobody missed a round before the first, all one before the second, of which a key, a rate and 10 scalars come.
    assert rows["decomfl"]["downlink_numbers_measured"] == (10 * 3 + 10 * (3 + 3 + 10)) / 2
    assert len(json.loads((tmp_path / "observations.json").read_text())) == 5


@pytest.mark.parametrize("name", ["fedcom", "decomfl"])
def test_messages_play_the_rounds_of_the_simulation(name: str) -> None:
    """What is counted suffices: parties that know only what they read end where the run does, to a rounding."""
    config = decomfl_tab1.config_of(name, 20, dim=12)
    config.algorithm.learning_rate = 0.05
    config.algorithm.smoothing = 0.1
    task, seed_key = build.task_of(config), rng.seed_key(config.seed)
    algorithm = build.algorithm_of(config, task.loss, build.traced_settings(config))
    start = task.init(seed_key)
    state, _ = jax.jit(lambda state: simulate(seed_key, algorithm, state, task.data.clients, 4))(
        algorithm.init(start, config.num_clients)
    )
    found = exchanges.exchange(config, 4).params
    assert jnp.max(jnp.abs(algorithm.params(state) - start)) > 0.1
    np.testing.assert_allclose(found, algorithm.params(state), rtol=0, atol=1e-4)


def test_a_vector_off_the_grid_is_not_packed() -> None:
    values = np.linspace(0, 1, 300, dtype=np.float32)
    np.testing.assert_array_equal(exchanges.unpack(exchanges.pack(values, 32), 32), values)
    with pytest.raises(ValueError, match="on no grid of 256 levels"):
        exchanges.pack(values, 8)


def test_memory_is_what_a_program_is_given_hands_back_and_needs_between() -> None:
    vector = jax.ShapeDtypeStruct((1000,), jnp.float32)
    found = [decomfl_tab4.memory_of(lambda x: x + 1, vector, donate=donate) for donate in ((), (0,))]
    assert [memory.total for memory in found] == [8000, 4000]


def test_memory_of_a_client_does_not_grow_with_the_directions() -> None:
    model = decomfl_tab4.equal_layers()
    few, many = (
        decomfl_tab4.client_memory(decomfl_tab4.algorithms(model.loss, count)["DeComFL"], model) for count in (2, 8)
    )
    dim = decomfl_tab4.dimension(model.params)
    assert few.given == many.given >= 4 * dim
    assert many.temporaries < 1.05 * few.temporaries
    # The direction and the moved parameters of the layer that the loss is at, not of the 16 layers.
    assert many.temporaries < 4 * 2.5 * dim / decomfl_tab4.LAYERS
