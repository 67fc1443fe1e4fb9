"""Fitted exponents, and the figures made of measured points."""

import csv
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from matplotlib.image import imread

from experiments.figures import command_line, rates
from experiments.figures.command_line import Size
from experiments.figures.points import Point, PointsFigure, Results
from experiments.figures.power_laws import Law, Panel, draw_all
from experiments.files import write_rows
from experiments.plots import save
from zofed.theory.rates import fit_exponent

pytestmark = pytest.mark.usefixtures("compilation_cache")


def test_the_interval_of_an_exponent_covers_it_as_often_as_it_says() -> None:
    generator = np.random.default_rng(0)
    x = np.array([1.0, 2.0, 4.0, 8.0])
    covered = 0
    for _ in range(400):
        fit = fit_exponent(x, 3 * x**-0.5 * generator.gamma(4.0, 0.25, (12, 4)))
        covered += fit.low < -0.5 < fit.high
    assert 0.91 < covered / 400 < 0.98
    exact = fit_exponent(x, np.tile(2 * x**1.5, (3, 1)))
    assert exact == pytest.approx((1.5, 1.5, 1.5, 2.0))


@pytest.mark.parametrize(
    ("x", "y", "message"),
    [
        ([1.0, 2.0], [[1.0, 2.0]], "runs=1; allowed: an integer from 2 up"),
        ([1.0], [[1.0], [1.0]], r"allowed: \(runs, points\)"),
        ([1.0, 2.0], [[1.0, -2.0], [1.0, -2.0]], "must be positive"),
    ],
)
def test_what_has_no_exponent(x: Any, y: Any, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        fit_exponent(x, y)


@pytest.mark.slow
def test_differences_have_the_exponents_of_their_smoothing() -> None:
    errors = rates.difference_errors((0.1, 0.4), num_seeds=3, num_directions=32)
    for name, expected in (("forward", 1.0), ("central", 2.0)):
        assert errors[name].shape == (3, 2)
        assert fit_exponent([0.1, 0.4], errors[name]).value == pytest.approx(expected, abs=0.05)


@pytest.mark.slow
def test_points_of_the_rates_are_within_the_bounds_conditions() -> None:
    size = rates.FIGURE.sizes["cpu"]
    for rate in rates.RATES:
        margins = [rates._margin(rate.config(value, size)) for value in rate.values]
        # Over the air the smallest cohort, of one client, gives the condition of the bound.
        assert min(margins) >= 1 or rate.name == "receive_snr", (rate.name, margins)


def test_the_mean_over_rounds_from_some_of_them() -> None:
    norms = 3 * 0.9 ** np.arange(401.0)[None, :] + 0.2
    exact = norms[:, :-1].mean(axis=1)
    for every in (1, 4):
        found = rates._mean({"squared_gradient_norm": norms[:, ::every]}, 400)
        assert found == pytest.approx(exact, rel=1e-12 if every == 1 else 0.005)


def tiny() -> PointsFigure:
    """A figure of two points on the quadratic of 4 dimensions."""
    size = Size(num_rounds=200, num_seeds=2)

    def points(size: Size) -> list[Point]:
        made = []
        for value in (1, 4):
            config = rates._cohort(value, size)
            config.update_from_flattened_dict({"data.dim": 4, "num_clients": 4})
            made.append(Point(f"cohort_size_{value}.0", config))
        return made

    def finish(size: Size, results: Results, directory: Path) -> list[Any]:
        values = np.stack([rates._mean(results[f"cohort_size_{value}.0"], size.num_rounds) for value in (1, 4)], axis=1)
        fit = fit_exponent([1, 4], values)
        panel = Panel("tiny", "cohort size", "measured", np.array([1, 4]), [Law("measured", values, fit, -0.5)])
        save(draw_all([panel, panel, panel]), directory / "tiny.png")
        write_rows(directory / "tiny.csv", [{"exponent": fit.value}])
        return [rates._observation(panel, panel.laws[0])]

    return PointsFigure("rates", "Tiny", {"quick": size, "cpu": size, "full": size}, points, finish)


def test_a_figure_of_points(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    options = [f"--workdir={tmp_path}", "--quick"]
    assert command_line.main(tiny(), options) == 0
    captured = capsys.readouterr()
    assert "point 2 of 2: cohort_size_4.0" in captured.err
    observation = json.loads((tmp_path / "observations.json").read_text())[0]
    assert set(observation) == {"statement", "criterion", "seen", "numbers"}
    assert (tmp_path / "observations.txt").read_text() in captured.out
    assert -1.2 < float(next(csv.DictReader((tmp_path / "tiny.csv").read_text().splitlines()))["exponent"]) < 0
    assert imread(tmp_path / "tiny.png").std() > 0.02
    with np.load(tmp_path / "points" / "cohort_size_4.0.npz") as records:
        assert records["squared_gradient_norm"].shape == (2, 201)

    assert command_line.main(tiny(), options) == 1  # played already
    assert "go on with --resume" in capsys.readouterr().err
    (tmp_path / "points" / "cohort_size_4.0.npz").unlink()
    assert command_line.main(tiny(), [*options, "--resume"]) == 0
    assert "cohort_size_1.0" not in capsys.readouterr().err  # only what was missing is played again
