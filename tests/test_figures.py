"""The papers' figures: their settings, how observations are judged, and the command from flags to files."""

import csv
import importlib
import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from matplotlib.image import imread

from experiments import figures, interrupt, sweeps
from experiments.figures import command_line, curves
from experiments.figures.command_line import Size
from experiments.figures.curves import Figure
from experiments.figures.observations import (
    Curves,
    Measured,
    Observation,
    comparable,
    falling,
    faster_in_turn,
    most_of,
    slightly_slower,
)
from experiments.settings import flatten, images

pytestmark = pytest.mark.usefixtures("compilation_cache")

ALL = sorted(path.stem for path in Path(figures.__file__).parent.glob("*_fig*.py"))
NAMES = [name for name in ALL if isinstance(importlib.import_module(f"experiments.figures.{name}").FIGURE, Figure)]
"""Those that are curves of studies; others are made of points."""
ATTACKS = [name for name in NAMES if name.startswith(("fedzo_fig1", "fedzo_fig2"))]
FEDZO = [name for name in NAMES if name.startswith("fedzo") and name not in ATTACKS]
"""Those of FedZO's paper; `test_figures_attack` judges its attack's, `test_decomfl_figures` DeComFL's."""
TINY = Size(num_rounds=3, eval_every=1, num_seeds=2)


def figure(name: str) -> Figure:
    return importlib.import_module(f"experiments.figures.{name}").FIGURE


def curve(final_loss: float, spread: float = 0.0, accuracy: float = 0.7) -> Measured:
    """A loss that falls along a line from 2 to `final_loss`, plus and minus `spread` in the two seeds.

    The accuracy jumps from 0.1 to its final value.
    """
    rounds = np.arange(0, 12, 2)
    loss = np.linspace(2.0, final_loss, 6) + spread * np.array([[-1.0], [1.0]]) * (rounds > 0)
    return Measured(rounds, loss, np.full((2, 6), np.where(rounds > 0, accuracy, 0.1)), 100.0 * rounds)


def broken(measured: Measured) -> Measured:
    """The curve with one seed that diverged at the end."""
    loss = measured.train_loss.copy()
    loss[1, -1] = np.nan
    return measured._replace(train_loss=loss)


CURVES: Curves = {
    "slow": curve(1.5),
    "middle": curve(1.2),
    "middle too": curve(1.21, accuracy=0.68),
    "inaccurate": curve(1.2, accuracy=0.6),
    "random": curve(1.2, accuracy=0.2),
    "fast": curve(1.0),
    "wide": curve(1.1, spread=0.3),
    "rising": curve(2.5),
    "broken": broken(curve(1.2)),
}


def faster(*labels: str) -> Observation:
    return faster_in_turn("s", CURVES, labels)


def slower(*pairs: tuple[str, str]) -> Observation:
    return slightly_slower("s", CURVES, pairs)


@pytest.mark.parametrize(
    ("observation", "seen"),
    [
        (faster("slow", "middle", "fast"), True),
        (faster("slow", "fast", "middle"), False),
        (faster("middle", "wide"), False),  # one seed of two
        (faster("slow", "broken"), False),
        (faster_in_turn("s", CURVES, ["inaccurate", "middle too", "slow"], "test_accuracy"), True),
        (faster_in_turn("s", CURVES, ["slow", "inaccurate"], "test_accuracy"), False),
        (slower(("middle", "fast")), True),
        (slower(("slow", "fast")), False),  # half the decrease
        (slower(("fast", "middle")), False),
        (slower(("middle", "fast"), ("slow", "fast")), False),
        (slower(("broken", "fast")), False),
        (slightly_slower("s", CURVES, [("inaccurate", "slow")], "test_accuracy"), True),
        (slightly_slower("s", CURVES, [("slow", "inaccurate")], "test_accuracy"), False),
        (slightly_slower("s", CURVES, [("random", "slow")], "test_accuracy"), False),
        (comparable("s", CURVES, "middle too", "middle"), True),
        (comparable("s", CURVES, "fast", "middle"), False),  # much better
        (comparable("s", CURVES, "slow", "middle"), False),
        (comparable("s", CURVES, "inaccurate", "middle"), False),
        (comparable("s", CURVES, "broken", "middle"), False),
        (most_of("s", CURVES, ["middle", "fast"], "fast"), True),
        (most_of("s", CURVES, ["middle", "slow"], "fast"), False),
        (most_of("s", CURVES, ["broken"], "fast"), False),
        (falling("s", CURVES, ["slow", "middle"]), True),
        (falling("s", CURVES, ["slow", "rising"]), False),
        (falling("s", CURVES, ["broken"]), False),
    ],
)
def test_an_observation_is_seen_or_not(observation: Observation, seen: bool) -> None:
    assert observation.seen is seen
    assert observation.statement == "s"
    assert any(label in observation.numbers for label in CURVES)


def test_numbers_of_an_observation() -> None:
    assert (
        faster("slow", "wide").numbers
        == "slow: 1.7000 [1.7000, 1.7000]; wide: 1.4600 [1.1600, 1.7600], lower in 1 of 2 seeds"
    )
    assert (
        slower(("middle", "fast")).numbers
        == "middle against fast: averaged 1.5200 against 1.4000, higher in 2 of 2 seeds, progress 80.0% of it"
    )


IDEAL = {
    "fedzo_fig3": {"FedZO": [1.5, 1.46, 1.42, 0.9], "FedAvg": [1.38, 1.37, 1.36, 0.8]},
    "fedzo_fig4": {"FedZO": [1.5, 1.4, 1.3, 1.2], "FedAvg": [1.18]},
    "fedzo_fig5": {"SNR": [1.5, 1.2, 1.1], "noise-free": [1.09]},
}
"""Final losses of curves, in a figure's order, on which everything that the paper says is seen."""


@pytest.mark.parametrize("name", FEDZO)
def test_a_figure_sees_what_the_paper_says_where_it_is_and_only_there(name: str) -> None:
    labels = [part.label for part in figure(name).curves]
    losses = [loss for family in IDEAL[name].values() for loss in family]
    ideal = {label: curve(loss, accuracy=0.8 - 0.01 * loss) for label, loss in zip(labels, losses, strict=True)}
    assert all(observation.seen for observation in figure(name).observe(ideal))
    backwards = {label: curve(2.1 + 0.1 * number, accuracy=0.8 - 0.1 * number) for number, label in enumerate(labels)}
    assert not any(observation.seen for observation in figure(name).observe(backwards))


PAPER = {
    "num_clients": 50,
    "cohort_size": 50,
    "participation": "uniform",
    "aggregation.name": "mean",
    "algorithm.num_directions": 20,
    "algorithm.batch_size": 25,
    "algorithm.learning_rate": 1e-3,
    "algorithm.smoothing": 1e-3,
    "algorithm.directions": "sphere",
    "algorithm.estimator": "forward",
    "data.name": "fashion_mnist",
    "data.partition": "shards",
    "data.shards_per_client": 2,
}
OVER_THE_AIR = {
    "participation": "gain_threshold",
    "channel.gain_threshold": 0.8,
    "channel.mean_square_gain": 1.0,
    "channel.noise": "full",
    "channel.variant": "paper",
    "algorithm.local_steps": 20,
    "algorithm.name": "fedzo",
}
SETTINGS: dict[str, dict[str, dict[str, Any]]] = {
    "fedzo_fig3": {
        f"{word}, H = {steps}": {"algorithm.name": word.lower(), "algorithm.local_steps": steps}
        for word in ("FedZO", "FedAvg")
        for steps in (5, 10, 20, 50)
    },
    "fedzo_fig4": {
        **{
            f"FedZO, M = {size}": {"algorithm.name": "fedzo", "algorithm.local_steps": 5, "cohort_size": size}
            for size in (5, 10, 25, 50)
        },
        "FedAvg, M = 50": {"algorithm.name": "fedavg", "algorithm.local_steps": 5},
    },
    "fedzo_fig5": {
        **{
            f"SNR {snr} dB": {**OVER_THE_AIR, "aggregation.name": "aircomp", "channel.snr_db": float(snr)}
            for snr in (-10, -5, 0)
        },
        "noise-free": {**OVER_THE_AIR, "aggregation.name": "mean"},
    },
}


@pytest.mark.parametrize("name", FEDZO)
def test_curves_have_the_paper_s_settings(name: str) -> None:
    studies = {study.name: study for study in figure(name).studies}
    found = {}
    for part in figure(name).curves:
        study = studies[part.study]
        grid = sweeps.parse(study.axes, study.config)
        assert dict(part.settings) in grid.cells()
        found[part.label] = flatten(sweeps.apply(study.config, part.settings))
    assert {
        label: {setting: flat[setting] for setting in PAPER | SETTINGS[name][label]} for label, flat in found.items()
    } == {label: PAPER | settings for label, settings in SETTINGS[name].items()}


@pytest.mark.parametrize("name", NAMES)
def test_a_figure_plays_no_cell_that_it_does_not_show(name: str) -> None:
    def order(cell: tuple[str, dict[str, Any]]) -> str:
        return f"{cell[0]} {sorted(cell[1].items())}"

    cells = [
        (study.name, cell) for study in figure(name).studies for cell in sweeps.parse(study.axes, study.config).cells()
    ]
    shown = [(part.study, dict(part.settings)) for part in figure(name).curves]
    assert sorted(cells, key=order) == sorted(shown, key=order)
    assert len({part.look for part in figure(name).curves}) == len(shown)


def tiny(name: str, directory: str | None = None, data: str = "digits") -> Figure:
    """The figure with one step, direction and example, on the digits."""
    studies = []
    for study in figure(name).studies:
        config = study.config.copy_and_resolve_references()
        config.data = images(data, directory=directory)
        config.algorithm.num_directions = 1
        config.algorithm.batch_size = 1
        studies.append(study._replace(config=config))
    return figure(name)._replace(studies=tuple(studies))


def rows(path: Path) -> list[dict[str, str]]:
    with path.open() as file:
        return list(csv.DictReader(file))


def test_a_figure_from_its_studies_to_its_files(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    small = tiny("fedzo_fig5")
    assert small.play(TINY, tmp_path) == 0
    output = capsys.readouterr().out
    assert output.startswith("fedzo_fig5: 8 runs of 3 rounds, 8.2e+06 random numbers")
    assert output.count("[seen]") + output.count("[not seen]") == 4
    assert output.rstrip().endswith(str(tmp_path / "observations.txt"))

    names = {path.name for path in tmp_path.iterdir()}
    assert names == {
        *("aircomp", "noise_free", "config.json", ".lock"),
        *("fedzo_fig5.png", "summary.csv", "observations.json", "observations.txt"),
    }
    assert {"results.nc", "summary.csv", "timing.json"} <= {path.name for path in (tmp_path / "aircomp").iterdir()}
    assert imread(tmp_path / "fedzo_fig5.png").std() > 0.05
    observations = json.loads((tmp_path / "observations.json").read_text())
    assert [set(observation) for observation in observations] == [{"statement", "criterion", "seen", "numbers"}] * 4
    assert (tmp_path / "observations.txt").read_text() in output

    table = rows(tmp_path / "summary.csv")
    assert [row["curve"] for row in table] == [part.label for part in small.curves]
    cells = rows(tmp_path / "noise_free" / "summary.csv")
    mean = np.mean([float(cell["final_train_loss"]) for cell in cells])
    assert float(table[3]["final_train_loss_mean"]) == pytest.approx(mean, abs=1e-6)
    assert (table[3]["seeds"], table[3]["rounds"], table[3]["diverged"]) == ("2", "3", "0")

    # Played already: refused, or drawn again from what is there.
    before = (tmp_path / "fedzo_fig5.png").read_bytes()
    with pytest.raises(ValueError, match="go on with --resume"):
        small.play(TINY, tmp_path)
    assert small.play(TINY, tmp_path, resume=True) == 0
    assert (tmp_path / "fedzo_fig5.png").read_bytes() == before
    with pytest.raises(ValueError, match="num_seeds is 2 there, 3 here"):
        small.play(TINY._replace(num_seeds=3), tmp_path, resume=True)
    with pytest.raises(ValueError, match="figure is 'fedzo_fig5' there, 'fedzo_fig4' here"):
        tiny("fedzo_fig4").play(TINY, tmp_path, resume=True)


@pytest.mark.slow
@pytest.mark.parametrize("name", [name for name in NAMES if name not in ("fedzo_fig5", *ATTACKS)])
def test_the_other_figures_too(name: str, tmp_path: Path) -> None:
    assert tiny(name).play(TINY, tmp_path) == 0
    assert len(rows(tmp_path / "summary.csv")) == len(figure(name).curves)


def test_an_interrupted_figure_says_how_to_go_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    @contextmanager
    def at_once(kept: Any) -> Iterator[Any]:
        yield lambda: True

    monkeypatch.setattr(interrupt, "on_request", at_once)
    monkeypatch.setitem(curves.SIZES, "quick", TINY)
    assert command_line.main(tiny("fedzo_fig5"), [f"--workdir={tmp_path}", "--quick", "--noprogress"]) == 130
    command = f"python -m experiments.figures.fedzo_fig5 --workdir={tmp_path} --quick --noprogress --resume"
    assert capsys.readouterr().out.rstrip().endswith(command)
    assert not (tmp_path / "fedzo_fig5.png").exists()


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--quick"], "--workdir=DIR is missing"),
        (["--workdir=x", "--fast"], "Unknown command line flag 'fast'"),
        (["--workdir=x", "quick"], "['quick'] are no options"),
        (["--workdir=x", "--quick", "--cpu"], "give one of them"),
    ],
)
def test_wrong_options_say_so(options: list[str], message: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert command_line.main(figure("fedzo_fig4"), options) == 1
    captured = capsys.readouterr()
    assert captured.err.startswith("error: ")
    assert message in captured.err
    assert captured.out == ""
    assert not Path("x").exists()


def test_missing_data_says_how_to_get_it_and_touches_nothing(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "empty").mkdir()
    absent = tiny("fedzo_fig4", str(tmp_path / "empty"), "fashion_mnist")
    assert command_line.main(absent, [f"--workdir={tmp_path / 'run'}", "--quick"]) == 1
    assert "python -m zofed.data fetch fashion_mnist" in capsys.readouterr().err
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize("name", NAMES)
def test_help_and_docstring_give_the_command(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert command_line.main(figure(name), ["--help"]) == 0
    assert "--workdir" in capsys.readouterr().out
    documentation = importlib.import_module(f"experiments.figures.{name}").__doc__ or ""
    assert f"python -m experiments.figures.{figure(name).name} --workdir=" in documentation
    assert figure(name).name == name
