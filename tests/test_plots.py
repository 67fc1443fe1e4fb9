"""Figures: which a study gets, for any number of swept settings."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import xarray
from matplotlib.image import imread

from experiments.metrics import describe
from experiments.plots import draw_all


def study(axes: dict[str, list[Any]], scores: tuple[str, ...] = ("test_accuracy", "train_loss")) -> xarray.Dataset:
    """Made-up results of a sweep over `axes`, in which the first cell diverged."""
    generator = np.random.default_rng(0)
    shape = tuple(len(values) for values in axes.values())
    variables: dict[str, Any] = {
        "rounds_played": (tuple(axes), np.full(shape, 20)),
        "diverged": (tuple(axes), np.zeros(shape, bool)),
    }
    for name in scores:
        values = np.exp(-generator.random((*shape, 5))).astype(np.float32)
        metric = describe(name)
        attributes = {"long_name": metric.long_name, "units": metric.units}
        variables[name] = ((*axes, "eval"), values, attributes)
    results = xarray.Dataset(variables, {**axes, "round": ("eval", 5 * np.arange(5))}, {"title": "zofed study: x on y"})
    first = dict.fromkeys(axes, 0)
    results["diverged"][first] = True
    results["train_loss"][{**first, "eval": slice(3, None)}] = np.inf
    return results


@pytest.mark.parametrize(
    ("axes", "curves", "maps"),
    [
        ({}, 1, 0),
        ({"seed": [0, 1, 2]}, 1, 0),
        ({"rate": [0.1, 0.2]}, 1, 0),
        ({"rate": list(np.linspace(0, 1, 20))}, 1, 0),
        ({"rate": [0.1, 0.2], "name": ["a", "b", "c"], "seed": [0, 1]}, 1, 1),
        ({"rate": [0.1, 0.2], "size": list(range(8))}, 8, 1),
        ({"rate": [0.1, 0.2], "size": [1, 2], "on": [True, False], "seed": [0, 1]}, 2, 2),
    ],
)
def test_a_study_has_its_figures(axes: dict[str, list[Any]], curves: int, maps: int, tmp_path: Path) -> None:
    names = [path.name for path in draw_all(study(axes), tmp_path)]
    assert sum(name.startswith("learning_curves") for name in names) == curves
    assert sum(name.startswith("heat_map") for name in names) == maps
    assert {path.name for path in tmp_path.iterdir()} == set(names)
    assert all(imread(path).std() > 0.01 for path in tmp_path.iterdir())


def test_a_study_without_test_data_shows_its_loss(tmp_path: Path) -> None:
    results = study({"rate": [0.1, 0.2], "size": [1, 2]}, scores=("train_loss",))
    assert len(draw_all(results, tmp_path)) == 2


def test_a_study_with_a_budget_is_drawn_against_queries_too(tmp_path: Path) -> None:
    results = study({"rate": [0.1, 0.2], "seed": [0, 1]})
    asked = np.broadcast_to(np.arange(5) * np.array([[[100]], [[300]]]), (2, 2, 5))
    results["queries"] = (("rate", "seed", "eval"), asked, {"long_name": "queries", "units": "1"})
    names = {path.name for path in draw_all(results, tmp_path, by_queries=True)}
    assert names == {"learning_curves.png", "query_curves.png"}
    pictures = [imread(tmp_path / name) for name in sorted(names)]
    assert pictures[0].shape == pictures[1].shape
    assert not np.array_equal(pictures[0], pictures[1])


def test_equal_results_make_equal_figures(tmp_path: Path) -> None:
    results = study({"rate": [0.1, 0.2]})
    (one,), (two,) = draw_all(results, tmp_path / "one"), draw_all(results, tmp_path / "two")
    assert one.read_bytes() == two.read_bytes()


def test_nothing_played_nothing_drawn(tmp_path: Path) -> None:
    results = study({"rate": [0.1, 0.2]})
    results["rounds_played"][:] = -1
    assert draw_all(results, tmp_path) == []
