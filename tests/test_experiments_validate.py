"""The command that holds runs against bounds: its table against the recorded runs and closed forms, and its errors."""

import csv
import json
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import xarray
from matplotlib.image import imread

from experiments import bounds_of, build, validate
from experiments.configs import decomfl_digits, quadratic
from experiments.sweeps import apply
from zofed import sweep, tasks, theory

pytestmark = [
    pytest.mark.usefixtures("compilation_cache"),
    # How ml_collections loads a config file.
    pytest.mark.filterwarnings("ignore:the load_module:DeprecationWarning"),
]

TINY = [
    "--config.data.dim=12",
    "--config.num_clients=4",
    "--config.num_rounds=6",
    "--config.algorithm.local_steps=2",
    "--config.algorithm.smoothing=1e-4",
]


def command(*options: str) -> int:
    return validate.main(["validate", f"--config={quadratic.__file__}", "--noprogress", *options])


def covering(**changes: Any) -> list[str]:
    """The names of the bounds that cover the quadratic config with these settings."""
    config = apply(quadratic.get_config(), {name.replace("__", "."): value for name, value in changes.items()})
    build.check(config)
    return [bound.name for bound in bounds_of.bounds_of(config)]


def test_a_validation(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    options = (*TINY, "--config.cohort_size=4", "--seeds=3", "--learning_rates=[0.002,0.4]", f"--workdir={tmp_path}")
    assert command(*options) == 0
    captured = capsys.readouterr()
    assert (
        "warning: algorithm.learning_rate=0.4 is outside the conditions of fedzo_full, which allow 0.0" in captured.err
    )
    assert "algorithm.smoothing=0.0001: at the start float32 round-off" in captured.err
    assert "cells: 6 in 1 groups" in captured.out

    rows = list(csv.DictReader((tmp_path / "validation.csv").read_text().splitlines()))
    assert [(row["bound"], float(row["learning_rate"]), row["holds"]) for row in rows] == [
        ("fedzo_full", 0.002, "True"),
        ("fedzo_full", 0.4, "False"),
        ("fedzo", 0.002, "True"),
        ("fedzo", 0.4, "False"),
    ]
    results = xarray.load_dataset(tmp_path / "results.nc")
    norms = results["squared_gradient_norm"]
    assert norms.sizes == {"algorithm.learning_rate": 2, "seed": 3, "eval": 7}
    measured = norms.sel({"algorithm.learning_rate": 0.002}).values[:, :-1].mean(axis=1)
    assert float(rows[0]["measured"]) == pytest.approx(measured.mean(), rel=1e-5)
    assert float(rows[0]["measured_max"]) == pytest.approx(measured.max(), rel=1e-5)

    task = tasks.quadratic(12, 4, 10, heterogeneity=1.0, noise=0.1)
    centre = np.asarray(task.data.clients.samples, np.float64).mean(axis=0)
    slope = np.asarray(tasks.eigenvalues(12), np.float64) * centre
    np.testing.assert_allclose(norms.values[..., 0], np.sum(slope**2), rtol=1e-5)
    constants = theory.closed_forms.quadratic(task.data.clients, tasks.eigenvalues(12))
    bound = theory.fedzo_full(constants, theory.Setting(12, 4, 4, 6, 2, 5, 20, 0.002, 1e-4))
    assert float(rows[0]["total"]) == pytest.approx(float(bound.total))
    assert float(rows[0]["initial_gap"]) == pytest.approx(float(bound.terms.initial_gap))
    assert rows[0]["binding"] == bound.binding()
    assert json.loads((tmp_path / "constants.json").read_text())["gap"] == pytest.approx(constants.gap)
    assert imread(tmp_path / "figures" / "validation_fedzo.png").std() > 0.02

    assert command(*options) == 1  # played already
    assert "go on with --resume" in capsys.readouterr().err
    assert command(*options, "--resume") == 0


def test_the_bounds_that_cover_a_config() -> None:
    assert covering(cohort_size=10) == ["fedzo_full", "fedzo"]
    assert covering(cohort_size=5) == ["fedzo"]
    assert covering(participation="gain_threshold", aggregation__name="aircomp") == ["fedzo_aircomp"]
    scalars = {"algorithm__name": "decomfl", "algorithm__directions": "gaussian"}
    assert covering(**scalars) == ["decomfl", "decomfl_printed"]
    assert covering(**scalars, algorithm__local_steps=1) == ["decomfl", "decomfl_printed", "decomfl_low_rank"]
    scalars["algorithm__directions"] = "sphere_sqrt_dim"
    assert covering(**scalars, algorithm__local_steps=1) == ["decomfl_low_rank", "decomfl_low_rank_printed"]


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"algorithm__name": "fedavg"}, "algorithm.name='fedavg': no bound of zofed.theory covers it"),
        ({"algorithm__directions": "gaussian"}, "algorithm.directions='gaussian': no bound"),
        ({"data__batching": "epoch"}, "data.batching='epoch': no bound"),
        ({"algorithm__server_optimizer": "adam"}, "algorithm.server_optimizer='adam': no bound"),
        ({"algorithm__optimizer": "momentum"}, "algorithm.optimizer='momentum': no bound"),
        ({"algorithm__weight_decay": 1e-5}, "algorithm.weight_decay=1e-05: no bound"),
        ({"schedule__rounds": (10,), "schedule__learning_rate_factors": (0.5,)}, r"schedule.rounds=\(10,\): no bound"),
        ({"query_budget": 10**6}, "query_budget=1000000: no bound"),
        ({"algorithm__name": "decomfl", "algorithm__directions": "sphere_sqrt_dim"}, "algorithm.local_steps=5 with"),
    ],
)
def test_configs_that_no_bound_covers(changes: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        covering(**changes)


@pytest.mark.slow
def test_constants_of_a_task_that_is_not_synthetic() -> None:
    config = decomfl_digits.get_config()
    config.data.partition = "iid"
    known = bounds_of.constants_of(config, build.task_of(config))
    assert known.source.startswith("estimated")
    assert (known.mean.gradient_growth, known.mean.dissimilarity_growth) == (1.0, 0.0)
    assert known.mean.gap == pytest.approx(np.log(10), rel=1e-4)  # from zero weights
    assert 0.1 < known.mean.smoothness < 100


def test_the_gap_is_the_largest_of_the_seeds() -> None:
    config = quadratic.get_config()
    config.data.dim = 4
    task = build.task_of(config)

    def start(key: jax.Array) -> jax.Array:
        return 10 * jax.random.normal(key, (4,))

    task = task._replace(init=start)
    seeds = range(3, 8)
    starts = [sweep.initial_params(start, jnp.uint32(seed)) for seed in seeds]
    losses = [float(task.loss_value(x)) for x in starts]
    assert len(set(losses)) == len(losses)
    worst = bounds_of.initial_model(config, task, seeds)
    np.testing.assert_array_equal(worst, starts[int(np.argmax(losses))])
    eigenvalues = tasks.eigenvalues(4, config.data.condition)
    gaps = [theory.closed_forms.quadratic(task.data.clients, eigenvalues, x).gap for x in starts]
    assert bounds_of.constants_of(config, task, seeds).mean.gap == pytest.approx(max(gaps), rel=1e-6)


def test_what_round_off_is_held_against_with_central_differences() -> None:
    config = quadratic.get_config()
    config.algorithm.smoothing = 1e-6
    task = build.task_of(config)
    known, balances = bounds_of.constants_of(config, task), []
    for estimator, words in (("forward", "their smoothing error"), ("central", "of third derivatives, is not known")):
        config.algorithm.estimator = estimator
        (warning,) = validate._warnings(config, task, known, [], [], range(2))
        assert f"{estimator} differences" in warning
        assert words in warning
        balances.append(float(warning.split()[-1]))
    assert balances[0] / balances[1] == pytest.approx(np.sqrt(2), rel=0.01)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ([], "--workdir=DIR is missing"),
        (["--workdir=x", "--seeds=0"], "seeds=0; allowed: an integer from 1 up"),
        (["--workdir=x", "--learning_rates=[0.1,oops]"], "algorithm.learning_rate=[0.1,oops] cannot be read"),
        (["--workdir=x", "--sweep=seed=[1]"], "Unknown command line flag 'sweep'"),
        (["--workdir=x", "validate"], "['validate'] are no options"),
    ],
)
def test_wrong_options_say_so(options: list[str], message: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert command(*options) == 1
    assert message in capsys.readouterr().err
    assert not Path("x").exists()
