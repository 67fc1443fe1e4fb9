"""Schedules in the apps: what is played, recorded, counted, resumed and replayed across phases."""

import re
import shutil
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import xarray

from experiments import build, execution, history, replay, run, shared_directions
from experiments.configs import quadratic
from experiments.settings import Config
from zofed import messages, rng
from zofed.algorithms.decomfl import Memory
from zofed.base import State
from zofed.descent import Model, descend

# How ml_collections loads a config file.
pytestmark = [
    pytest.mark.filterwarnings("ignore:the load_module:DeprecationWarning"),
    pytest.mark.usefixtures("compilation_cache"),
]

CONFIG = Path(run.__file__).parent / "configs" / "quadratic.py"
CLIENTS, COHORT, STEPS, DIRECTIONS, ROUNDS = 4, 2, 2, 2, 6
TINY = [
    f"--config={CONFIG}",
    "--config.data.dim=3",
    f"--config.num_rounds={ROUNDS}",
    "--config.eval_every=1",
    f"--config.num_clients={CLIENTS}",
    f"--config.cohort_size={COHORT}",
    "--config.algorithm.name=decomfl",
    f"--config.algorithm.local_steps={STEPS}",
    f"--config.algorithm.num_directions={DIRECTIONS}",
    "--config.algorithm.batch_size=2",
    "--config.algorithm.smoothing=0.1",
    "--config.algorithm.optimizer=trace",
    "--config.algorithm.momentum=0.5",
    "--config.algorithm.weight_decay=0.01",
    "--config.execution.num_devices=1",
    "--config.execution.cell_chunk=8",  # vmapped
    "--noprogress",
]
SCHEDULE = [
    "--config.schedule.rounds=(2,4)",
    "--config.schedule.learning_rate_factors=(0.5,0.25)",
    "--config.schedule.num_directions_factors=(3,2)",
]
SWEEP = ["--sweep=seed=range(2)", "--sweep=schedule.num_directions_factors=[(3,2),(1,1)]"]
FACTORS = {0: [1, 1, 3, 3, 2, 2], 1: [1] * ROUNDS, 2: [1, 1, 3, 3, 2, 2], 3: [1] * ROUNDS}
"""Of the directions in each round, by cell."""


def train(workdir: Path, *options: str) -> int:
    return run.main(["run", *TINY, *SCHEDULE, f"--workdir={workdir}", *options])


def words(workdir: Path) -> list[str]:
    return [verdict.word for verdict in replay.verdicts(workdir)]


def tiny_config(**settings: Any) -> Config:
    config = quadratic.get_config()
    config.num_clients, config.cohort_size = CLIENTS, COHORT
    config.algorithm.update(name="decomfl", local_steps=STEPS, num_directions=DIRECTIONS, **settings)
    return config


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Path:
    workdir = tmp_path_factory.mktemp("trained") / "run"
    assert train(workdir, *SWEEP) == 0
    return workdir


def test_every_cell_is_replayed_across_phases(trained: Path) -> None:
    assert words(trained) == ["match"] * 4


def test_a_schedule_is_part_of_the_record(trained: Path) -> None:
    results = xarray.load_dataset(trained / "results.nc")
    assert results["schedule.num_directions_factors"].values.tolist() == ["(3, 2)", "(1, 1)"]
    for cell, factors in FACTORS.items():
        kept = history.load(history.path_of(trained / "history", cell)).history
        np.testing.assert_array_equal(kept.num_directions, DIRECTIONS * np.array(factors))
        rates = np.float32(0.01) * np.array([1, 1, 0.5, 0.5, 0.25, 0.25], np.float32)
        np.testing.assert_array_equal(kept.rate, rates)
        for scalars, count in zip(kept.scalars, kept.num_directions, strict=True):
            assert np.all(scalars[:, :count] != 0)
            assert not np.any(scalars[:, count:])


def test_traffic_is_that_of_the_messages_of_each_round(trained: Path) -> None:
    """Who lags behind a change replays entries of both sizes; cohorts are drawn here again, messages counted singly."""
    results = xarray.load_dataset(trained / "results.nc").stack(cell=("seed", "schedule.num_directions_factors"))
    traced: Any = build.traced_settings(tiny_config())
    algorithm = build.algorithm_of(tiny_config(), lambda params, batch: batch, traced)
    for cell, factors in FACTORS.items():
        seed, last = cell // 2, np.zeros(CLIENTS, int)
        counts = STEPS * DIRECTIONS * np.array(factors)
        up, down, paper = np.zeros((3, ROUNDS + 1), int)
        spanned = set()
        for number in range(ROUNDS):
            cohort = algorithm.sample_cohort(rng.round_keys(rng.seed_key(seed), number), CLIENTS)
            for client in np.asarray(cohort.ids[: cohort.count]):
                replayed = counts[last[client] : number]
                spanned.add(len(set(replayed)))
                entries = sum(messages.work_bytes(1, count) - messages.work_bytes(0, count) for count in replayed)
                up[number + 1] += messages.reply_bytes(counts[number])
                down[number + 1] += messages.work_bytes(0, counts[number]) + entries
                paper[number + 1] += 8 * sum(replayed)
                last[client] = number
        assert 2 in spanned or factors == [1] * ROUNDS
        own = results.isel(cell=cell)
        np.testing.assert_array_equal(own["uplink_bytes"], np.cumsum(up))
        np.testing.assert_array_equal(own["downlink_bytes"], np.cumsum(down))
        np.testing.assert_array_equal(own["downlink_bytes_paper"], np.cumsum(paper))
    assert not [name for name in results.data_vars if str(name).startswith(shared_directions.PHASE_PREFIX)]


@pytest.mark.parametrize(("max_lag", "by_phase", "pulled"), [(-1, [7, 15, 13], 0), (12, [0, 5, 8], 1)])
def test_replayed_rounds_are_counted_in_their_phases(max_lag: int, by_phase: list[int], pulled: int) -> None:
    """Round 25: clients that took part last in rounds 3, 15 and 22 do again; the second of the four does not."""
    config = tiny_config(max_lag=max_lag)
    config.schedule.update(rounds=(10, 20), num_directions_factors=(2, 4))
    traced: Any = build.traced_settings(config)
    algorithm = build.algorithm_of(config, lambda params, batch: batch, traced)
    before, after = (
        State((), Memory(jnp.array(rounds, jnp.int32), ()), jnp.int32(25))
        for rounds in ([3, 8, 15, 22], [25, 8, 25, 25])
    )
    kept = algorithm.record(rng.round_keys(rng.seed_key(0), 25), before, after, jnp.zeros((2, 2)), jnp.bool_(True))
    assert [int(kept.counts[f"{shared_directions.PHASE_PREFIX}{number}"]) for number in range(3)] == by_phase
    assert int(kept.counts["replayed_rounds"]) == sum(by_phase)
    assert int(kept.counts["pulled_models"]) == pulled


def test_a_killed_run_goes_on_in_the_phase_that_it_was_in(
    tmp_path: Path, trained: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Killed after the checkpoint at a boundary, and again after one within a phase: the same files in the end."""
    write = execution.checkpoint.save

    def train_until(round: int, *options: str) -> None:
        def killed(path: Path, kept: Any) -> None:
            if kept.round > round:
                raise KeyboardInterrupt
            write(path, kept)

        with monkeypatch.context() as patch:
            patch.setattr(execution, "CHECKPOINT_SECONDS", 0.0)
            patch.setattr(execution.checkpoint, "save", killed)
            with pytest.raises(KeyboardInterrupt):
                train(tmp_path, *SWEEP, *options)

    train_until(2)
    assert words(tmp_path) == ["match", "match", "not run", "not run"]
    train_until(3, "--resume")
    assert train(tmp_path, *SWEEP, "--resume") == 0
    for name in ("results.nc", *(f"history/cell_{cell:05d}.npz" for cell in range(4))):
        assert (trained / name).read_bytes() == (tmp_path / name).read_bytes()


def test_scalars_beyond_a_phases_directions_are_a_mismatch(trained: Path, tmp_path: Path) -> None:
    shutil.copytree(trained, tmp_path / "run")
    path = history.path_of(tmp_path / "run" / "history", 0)
    file = history.load(path)
    scalars = file.history.scalars.copy()
    scalars[0, 0, -1] = 1.0
    history.save(path, file._replace(history=file.history._replace(scalars=scalars)))
    verdict = next(replay.verdicts(tmp_path / "run"))
    assert verdict.word == "MISMATCH"
    assert "beyond their 2 directions" in verdict.detail


def test_fedzo_follows_it_too(tmp_path: Path) -> None:
    """Until the first change the run is the one without a schedule; a rate that becomes tiny stops the model there."""

    def losses(workdir: Path, *options: str) -> np.ndarray:
        plain = ["--config.algorithm.name=fedzo", "--config.algorithm.local_steps=1"]
        assert run.main(["run", *TINY, *plain, *options, f"--workdir={workdir}"]) == 0
        return xarray.load_dataset(workdir / "results.nc")["train_loss"].values

    without = losses(tmp_path / "without")
    followed = losses(
        tmp_path / "with",
        "--config.schedule.rounds=(2,)",
        "--config.schedule.learning_rate_factors=(1e-9,)",
        "--config.schedule.num_directions_factors=(3,)",
    )
    np.testing.assert_array_equal(followed[:3], without[:3])
    np.testing.assert_allclose(followed[3:], followed[2], rtol=1e-6)
    assert abs(without[3] - without[2]) > 1e-3


def test_the_recorded_runs_optimiser_is_pytorchs() -> None:
    """SGD with momentum b and weight decay w: m <- b m + (g + w x), x <- x - rate m."""
    config = tiny_config(optimizer="trace", momentum=0.9, weight_decay=0.1)
    optimizer = shared_directions.rule_of(config).optimizer
    x, m = np.array([1.0, -2.0]), np.zeros(2)
    params = jnp.asarray(x, jnp.float32)
    model = Model(params, optimizer.init(params))
    step = jax.jit(lambda gradient, model: descend(optimizer, 0.5, gradient, model))
    for gradient in ([1.0, 0.0], [-3.0, 2.0], [0.5, 0.5]):
        m = 0.9 * m + (np.array(gradient) + 0.1 * x)
        x = x - 0.5 * m
        model = step(jnp.asarray(gradient, jnp.float32), model)
        np.testing.assert_allclose(model.params, x, rtol=1e-6)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"rounds": (4, 2)}, "schedule.rounds[1]=2; allowed: an integer from 5 up"),
        ({"rounds": (0, 2)}, "schedule.rounds[0]=0; allowed: an integer from 1 up"),
        ({"rounds": (2,)}, "schedule.learning_rate_factors=(0.5, 0.25) with schedule.rounds=(2,)"),
        ({"learning_rate_factors": (), "num_directions_factors": ()}, "without factors; allowed: ()"),
        ({"learning_rate_factors": (0.5, 0.0)}, "schedule.learning_rate_factors[1]=0.0; allowed: a finite number > 0"),
        ({"num_directions_factors": (2, 1.5)}, "schedule.num_directions_factors[1]=1.5; allowed: an integer"),
        ({"num_directions_factors": (2, 3), "rounds": (4, 7)}, "at round 7; allowed: multiples of eval_every=2"),
    ],
)
def test_schedules_that_cannot_be_are_refused(settings: dict[str, Any], message: str) -> None:
    config = tiny_config()
    config.num_rounds, config.eval_every = 10, 2
    config.schedule.update(rounds=(4, 6), learning_rate_factors=(0.5, 0.25))
    build.check(config)
    config.schedule.update(settings)
    with pytest.raises(ValueError, match=re.escape(message)):
        build.check(config)


@pytest.mark.parametrize(
    ("option", "message"),
    [
        ("--sweep=schedule.rounds=[2,4]", "schedule.rounds has the value 2; allowed: tuple"),
        ("--config.algorithm.weight_decay=-1.0", "algorithm.weight_decay=-1.0"),
        ("--config.schedule.rounds=", "schedule.rounds[0]=''"),
    ],
)
def test_wrong_options_touch_nothing(
    option: str, message: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run.main(["run", *TINY, f"--workdir={tmp_path / 'run'}", option]) == 1
    assert message in capsys.readouterr().err
    assert not (tmp_path / "run").exists()


def test_error_feedback_on_scalars_does_not_fit_the_next_phase() -> None:
    config = tiny_config()
    config.schedule.update(rounds=(10,), num_directions_factors=(2,))
    config.aggregation.update(bits=8, error_feedback=True)
    with pytest.raises(ValueError, match=r"aggregation\.error_feedback=True; allowed: False"):
        build.check(config)
