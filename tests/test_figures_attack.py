"""The figures of the black-box attack: their settings, how observations are judged, and one from data to files."""

import csv
import importlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from matplotlib.image import imread

from experiments import sweeps, workdir
from experiments.figures import curves
from experiments.figures.attacks import DZOPA, ZONE_S
from experiments.figures.command_line import Size
from experiments.figures.curves import Figure
from experiments.figures.observations import Curves, Measured, ahead, near
from experiments.settings import flatten
from zofed.data import Dataset

pytestmark = pytest.mark.usefixtures("compilation_cache")

NAMES = ("fedzo_fig1a", "fedzo_fig1b", "fedzo_fig1c", "fedzo_fig2")


def figure(name: str) -> Figure:
    return importlib.import_module(f"experiments.figures.{name}").FIGURE


def curve(final_loss: float, accuracy: float = 0.5, distortion: float = 1.0, spread: float = 0.0) -> Measured:
    """Straight lines, plus and minus `spread` of the loss in the two seeds."""
    rounds = np.arange(0, 12, 2)
    line = np.linspace(0.0, 1.0, 6)
    both = np.ones((2, 1))
    loss = 4.0 + (final_loss - 4.0) * line + spread * np.array([[-1.0], [1.0]]) * (rounds > 0)
    return Measured(rounds, loss, np.nan * loss, 100.0 * rounds, accuracy * line * both, distortion * line * both)


CURVES: Curves = {"good": curve(1.0, 0.8), "bad": curve(3.0, 0.2), "wide": curve(2.9, spread=0.5), "near": curve(1.2)}


def test_ahead_and_near() -> None:
    assert ahead("s", CURVES, [("good", "bad")]).seen
    assert not ahead("s", CURVES, [("good", "bad"), ("bad", "good")]).seen
    assert not ahead("s", CURVES, [("wide", "bad")]).seen  # one seed of two
    assert ahead("s", CURVES, [("good", "bad")], "attack_accuracy").seen
    assert not ahead("s", CURVES, [("bad", "good")], "attack_accuracy").seen
    assert ahead("s", CURVES, [("good", "bad")]).numbers.endswith("lower in 2 of 2 seeds")
    assert near("s", CURVES, "near", "good").seen
    assert not near("s", CURVES, "bad", "good").seen
    assert not near("s", CURVES, "good", "bad").seen


IDEAL: dict[str, dict[str, Measured]] = {
    "fedzo_fig1a": {
        **{f"FedZO, H = {steps}": curve(3 - number / 2) for number, steps in enumerate((5, 10, 20, 50))},
        DZOPA: curve(3.2),
        ZONE_S: curve(3.4),
    },
    "fedzo_fig1b": {f"FedZO, M = {size}": curve(3 - number / 2) for number, size in enumerate((5, 10, 25, 50))},
    "fedzo_fig1c": {
        **{f"SNR {snr} dB": curve(2 - number / 2) for number, snr in enumerate((-10, -5, 0))},
        "noise-free": curve(0.95),
    },
    "fedzo_fig2": {
        **{f"FedZO, H = {steps}": curve(3 - n / 2, 0.1 + n / 5, 0.5) for n, steps in enumerate((5, 10, 20, 50))},
        DZOPA: curve(3.2, 0.15),
        ZONE_S: curve(3.4, 0.2, 2.0),
    },
}


@pytest.mark.parametrize("name", NAMES)
def test_a_figure_sees_what_the_paper_says_where_it_is_and_only_there(name: str) -> None:
    ideal = IDEAL[name]
    assert [part.label for part in figure(name).curves] == list(ideal)
    assert [observation.seen for observation in figure(name).observe(ideal)].count(False) == 0
    apart = 0.5 if name == "fedzo_fig1c" else 0.0
    alike = {label: curve(4.5 + apart * number, 0.0, 0.0) for number, label in enumerate(ideal)}
    seen = [observation.statement for observation in figure(name).observe(alike) if observation.seen]
    assert not seen


PAPER = {
    "participation": "uniform",
    "aggregation.name": "mean",
    "algorithm.name": "fedzo",
    "algorithm.num_directions": 20,
    "algorithm.batch_size": 25,
    "algorithm.learning_rate": 1e-3,
    "algorithm.smoothing": 1e-3,
    "algorithm.directions": "sphere",
    "data.name": "cifar10_attack",
    "data.scores": "logits",
    "data.distortion_weight": 1.0,
    "data.partition": "random_sizes",
    "data.keep_every": 1,
}
TEN = {"num_clients": 10, "cohort_size": 10}
FIRST: dict[str, dict[str, Any]] = {
    **{f"FedZO, H = {steps}": {**TEN, "algorithm.local_steps": steps} for steps in (5, 10, 20, 50)},
    DZOPA: {**TEN, "algorithm.name": "dzopa", "algorithm.learning_rate": 5e-3, "algorithm.graph": "complete"},
    ZONE_S: {
        **TEN,
        "algorithm.name": "zone_s",
        "algorithm.penalty": 500.0,
        "algorithm.num_estimates": 100,
        "algorithm.num_directions": 1,
        "algorithm.directions": "gaussian",
    },
}
AIR = {"participation": "gain_threshold", "channel.gain_threshold": 0.8, "channel.mean_square_gain": 1.0}
AIR |= {"num_clients": 50, "algorithm.local_steps": 20, "channel.variant": "paper", "channel.noise": "full"}
SETTINGS: dict[str, dict[str, dict[str, Any]]] = {
    "fedzo_fig1a": FIRST,
    "fedzo_fig1b": {
        f"FedZO, M = {size}": {"num_clients": 50, "cohort_size": size, "algorithm.local_steps": 20}
        for size in (5, 10, 25, 50)
    },
    "fedzo_fig1c": {
        **{
            f"SNR {snr} dB": {**AIR, "aggregation.name": "aircomp", "channel.snr_db": float(snr)}
            for snr in (-10, -5, 0)
        },
        "noise-free": AIR,
    },
    "fedzo_fig2": FIRST,
}


@pytest.mark.parametrize("name", NAMES)
def test_curves_have_the_paper_s_settings(name: str) -> None:
    studies = {study.name: curves.sized(study, figure(name).sizes["full"]) for study in figure(name).studies}
    for part in figure(name).curves:
        study = studies[part.study]
        grid = sweeps.parse(study.axes[:-1], study.config)
        assert dict(part.settings) in grid.cells()
        flat = flatten(sweeps.apply(study.config, part.settings))
        wanted = PAPER | SETTINGS[name][part.label]
        assert {setting: flat[setting] for setting in wanted} == wanted
    assert figure(name).sizes["full"].num_rounds == (100 if name == "fedzo_fig1c" else 300)


def test_a_size_with_changes_is_resumed_and_another_is_not(tmp_path: Path) -> None:
    def claim(size: Size, resume: bool) -> list[str]:
        description = {"config": {"figure": "x", **curves._described(size)}, "sweep": {}, "versions": {}}
        with workdir.claim(tmp_path, description, resume) as warnings:
            return warnings

    size = figure("fedzo_fig1b").sizes["cpu"]
    claim(size, False)
    assert claim(size, True) == []
    with pytest.raises(ValueError, match=r"changes is \['algorithm.batch_size=5'"):
        claim(size._replace(changes={"algorithm.batch_size": 6}), True)


@pytest.mark.slow
def test_an_attack_figure_from_data_to_files(tmp_path: Path, load_real: Callable[[str], Dataset]) -> None:
    load_real("cifar10")
    small: dict[str, Any] = {f"algorithm.{name}": 1 for name in ("batch_size", "num_directions", "local_steps")}
    small["data.keep_every"] = 100
    assert figure("fedzo_fig1c").play(Size(3, 2, 1, small), tmp_path) == 0
    with (tmp_path / "summary.csv").open() as file:
        rows = list(csv.DictReader(file))
    assert [row["curve"] for row in rows] == list(IDEAL["fedzo_fig1c"])
    assert "final_attack_accuracy_mean" in rows[0]
    assert "final_test_accuracy_mean" not in rows[0]
    for path in (tmp_path / "fedzo_fig1c.png", tmp_path / "aircomp" / "figures" / "attack_00.png"):
        assert imread(path).std() > 0.05
