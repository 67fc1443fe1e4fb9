"""Black boxes: the same results as in JAX, one call per step, exact counts, failures that say so and lose nothing."""

import types
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import xarray
from jax.sharding import Mesh

from experiments import blackbox_tasks, build, queries, run
from experiments.configs import blackbox_digits_attack, blackbox_tuning, fedzo_cifar_attack
from experiments.plot_attack import attack_picture
from tests import tiny
from zofed import ClientData, State, Trace, directions, estimators, fedzo, ledger, rng, simulate
from zofed.attack import adversarial, distortion
from zofed.base import per_client_mean
from zofed.blackbox import BlackBox, blackbox
from zofed.data import load
from zofed.sequential import in_one_batch
from zofed.tasks import Task, TaskData

CLIENTS, ROUNDS, STEPS, NUM_DIRECTIONS, BATCH = len(tiny.SIZES), 3, 2, 3, 2
DATA = tiny.client_data()


def quadratic(points: np.ndarray, target: np.ndarray) -> np.ndarray:
    return 0.5 * np.square(points - target).sum(axis=1)


def jax_quadratic(params: Any, batch: jax.Array) -> jax.Array:
    return 0.5 * jnp.sum(jnp.square(params[None, :] - batch), axis=1)


def play(loss: Any, difference: Any = None, data: ClientData = DATA, **execution: Any) -> tuple[State, Trace]:
    algorithm = fedzo(loss, 0.05, 0.1, STEPS, NUM_DIRECTIONS, BATCH, difference=difference)
    state = algorithm.init(jnp.zeros(tiny.DIM), CLIENTS)
    return jax.block_until_ready(
        jax.jit(lambda state, data: simulate(rng.seed_key(0), algorithm, state, data, ROUNDS, **execution))(state, data)
    )


@pytest.mark.parametrize("difference", ["forward", "central"])
def test_a_black_box_is_the_same_function_in_jax_and_is_called_once_a_step(difference: str) -> None:
    box, make = blackbox(quadratic), estimators.DIFFERENCES[difference]
    state, trace = play(box.loss, make())
    expected, expected_trace = play(jax_quadratic, make())
    np.testing.assert_allclose(state.server.params, expected.server.params, rtol=0, atol=2e-5)
    np.testing.assert_allclose(trace.rounds.local.loss, expected_trace.rounds.local.loss, rtol=1e-5)
    assert box.calls == ROUNDS * STEPS
    assert box.queries == ROUNDS * STEPS * CLIENTS * ledger.queries(BATCH, NUM_DIRECTIONS, difference)
    assert box.nonfinite == 0


@pytest.mark.parametrize("num_directions", [1, 4])
@pytest.mark.parametrize(
    "make", [estimators.forward, estimators.central, lambda: estimators.signed(estimators.forward())]
)
def test_asking_in_one_batch_changes_nothing(num_directions: int, make: Any) -> None:
    batch, params, key = (
        DATA.samples[:3],
        tiny.PARAMS,
        rng.direction_keys(rng.round_keys(rng.seed_key(1), 0).direction, 0),
    )
    results = [
        estimators.estimator(loss, directions.sphere(), num_directions, 0.1, make())(key, params, batch)
        for loss in (tiny.loss, in_one_batch(tiny.loss))
    ]
    for plain, together in zip(*map(jax.tree.leaves, results), strict=True):
        np.testing.assert_allclose(together, plain, rtol=0, atol=2e-4)


def test_derivatives_of_black_boxes_are_refused() -> None:
    with pytest.raises(ValueError, match="difference=jvp of a loss that is asked in one batch"):
        fedzo(blackbox(quadratic).loss, 0.1, 0.1, 1, difference=estimators.jvp())


def test_a_box_inside_of_a_loss_sees_all_points_of_all_maps_at_once() -> None:
    seen = []

    def scores(images: np.ndarray) -> np.ndarray:
        seen.append(images.shape)
        return images @ np.arange(12.0).reshape(6, 2)

    box = blackbox(scores, shape=(2,))
    loss = in_one_batch(lambda x, batch: box(x[None] + batch)[:, 1])
    points = jax.random.normal(jax.random.key(0), (4, 5, 6))
    batch = jax.random.normal(jax.random.key(1), (4, 3, 6))
    found = jax.jit(jax.vmap(jax.vmap(loss, (0, None))))(points, batch)
    assert seen == [(60, 6)]
    expected = (points[:, :, None] + batch[:, None]) @ np.arange(12.0, dtype=np.float32).reshape(6, 2)[:, 1]
    np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-4)


def test_answers_that_are_not_finite_are_left_out_and_counted() -> None:
    owner = np.repeat(np.arange(CLIENTS), tiny.SIZES)
    samples = jnp.where(jnp.asarray(owner == 2)[:, None], jnp.nan, DATA.samples)
    box = blackbox(quadratic)
    state, trace = play(box.loss, data=ClientData(samples, DATA.offsets, DATA.sizes, DATA.max_size))
    assert np.isfinite(state.server.params).all()
    assert trace.rounds.nonfinite.tolist() == [1] * ROUNDS
    assert box.nonfinite == ROUNDS * STEPS * ledger.queries(BATCH, NUM_DIRECTIONS)


def test_devices_that_wait_for_large_arguments_do_not_wait_for_ever() -> None:
    """What jax.pure_callback does on CPUs: its arguments are copied by the threads that its answer blocks."""
    data = ClientData.from_partition(np.zeros(8, np.float32), list(np.arange(8).reshape(4, 2)))
    box = blackbox(lambda x, target: np.square(x - target[:, None]).mean(axis=1))
    algorithm = fedzo(box.loss, 0.1, 0.1, 1, num_directions=4, batch_size=2)
    state = algorithm.init(jnp.ones(30_000), 4)
    mesh = Mesh(np.array(jax.devices()[:2]), ("clients",))
    jax.block_until_ready(
        jax.jit(lambda state, data: simulate(rng.seed_key(0), algorithm, state, data, 2, mesh=mesh))(state, data)
    )
    assert box.queries == 2 * 4 * ledger.queries(2, 4)


def test_wrong_answers_and_exceptions_are_told() -> None:
    box = blackbox(lambda x: x.sum(), name="sum")
    with pytest.raises(jax.errors.JaxRuntimeError, match=r"black box sum returned the shape \(\) for 4 points"):
        jax.block_until_ready(box(jnp.ones((4, 2))))
    assert "allowed: (4,)" in str(box.failure)
    with pytest.raises(jax.errors.JaxRuntimeError, match="returned the shape"):
        jax.block_until_ready(box(jnp.ones((4, 2))))  # it is not called again
    assert box.calls == 1


# Real ones.


def test_the_attack_on_scikit_learns_network_is_that_of_its_probabilities() -> None:
    pytest.importorskip("sklearn")
    config = blackbox_digits_attack.get_config()
    build.check(config)
    task = build.task_of(config)
    batch = jax.tree.map(lambda leaf: leaf[:6], task.data.clients.samples)
    assert set(np.asarray(batch["label"]).tolist()) == {8}
    x = jnp.asarray(np.random.default_rng(0).normal(0, 0.3, (8, 8)), jnp.float32)
    (box,) = task.black_boxes
    answers = np.log(np.asarray(box(adversarial(x, 0.999 * batch["image"])), np.float64))
    margins = answers[:, 8] - np.delete(answers, 8, axis=1).max(axis=1)
    distances = np.asarray(distortion(x, 0.999 * batch["image"]))
    np.testing.assert_allclose(task.loss(x, batch), np.maximum(margins, 0) + distances, rtol=1e-4, atol=1e-5)
    np.testing.assert_allclose(np.exp(answers).sum(axis=1), 1, rtol=1e-5)


def test_tuning_asks_for_validation_errors_of_the_clients_own_folds() -> None:
    kernel_ridge = pytest.importorskip("sklearn.kernel_ridge")
    config = blackbox_tuning.get_config()
    build.check(config)
    task, shares = build.task_of(config), blackbox_tasks._shares(config.data, config.num_clients)
    sample = {"client": jnp.array([3, 0], jnp.int32), "fold": jnp.array([1, 2], jnp.int32)}
    found = np.asarray(task.loss(jnp.array([-1.0, -2.0]), sample))
    digits = load("digits").train
    features, targets = digits["image"].reshape(-1, 64) / 16 - 0.5, np.eye(10)[digits["label"]]
    for loss, client, fold in zip(found, (3, 0), (1, 2), strict=True):
        own = shares[client]
        test, train = own[fold::4], np.delete(own, np.s_[fold::4])
        model = kernel_ridge.KernelRidge(kernel="rbf", alpha=0.1, gamma=0.01).fit(features[train], targets[train])
        errors = np.square(model.predict(features[test]) - targets[test]).sum(axis=1)
        assert float(loss) == pytest.approx(errors.mean(), rel=1e-4)
    labels = digits["label"]
    assert np.ptp([np.bincount(labels[own], minlength=10).max() / len(own) for own in shares]) > 0.1


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"algorithm.name": "fedavg"}, "algorithm.name='fedavg' with data.name='digits_attack', a black box"),
        ({"algorithm.estimator": "jvp"}, "algorithm.estimator='jvp' with"),
        ({"record_gradient": True}, "record_gradient=True with"),
        ({"data.shrink": 1.5}, r"data\.shrink=1\.5; allowed: from above 0 to 1"),
    ],
)
def test_what_a_black_box_cannot_do_is_refused(changes: dict[str, Any], message: str) -> None:
    pytest.importorskip("sklearn")
    config = blackbox_digits_attack.get_config()
    config.update_from_flattened_dict(changes)
    with pytest.raises(ValueError, match=message):
        build.check(config)


def test_the_picture_of_an_attack_is_of_what_was_attacked(tmp_path: Path) -> None:
    """Saturated pixels move where they are shrunk first: with shrink 1 they would be those of the originals."""
    pytest.importorskip("sklearn")
    config = blackbox_digits_attack.get_config()
    task, x = build.task_of(config), jnp.full((8, 8), 8.0)
    black = np.asarray(task.data.clients.samples["image"])[0] == -0.5
    shown = [
        np.asarray(attack_picture(task, x, shrink).axes[2 * 8].images[0].get_array())[black]
        for shrink in (1.0, config.data.shrink)
    ]
    assert (shown[0] == 0).all()
    assert (shown[1] > 0.5).all()


# In the apps.

LIMIT = 100
OPTIONS = [
    f"--config={Path(run.__file__).parent / 'configs' / 'blackbox_tuning.py'}",
    "--config.num_rounds=6",
    "--config.eval_every=2",
    "--config.num_clients=4",
    "--config.cohort_size=2",
    "--config.algorithm.local_steps=1",
    "--config.algorithm.num_directions=3",
    "--config.algorithm.batch_size=2",
    "--config.algorithm.estimator=forward",
    "--noprogress",
]
SEGMENT = 2 * 2 * 2 * (3 + 1)  # rounds, clients, examples, points
EVALUATION = 8


@pytest.fixture
def limited(monkeypatch: pytest.MonkeyPatch) -> Any:
    """Stands a numpy quadratic that raises at the query number `limit` in for the tuning task; yields its setter."""
    build._task.cache_clear()
    limit: list[float] = [np.inf]
    made: list[BlackBox] = []

    def task_of(data: Any, num_clients: int) -> Task:
        del data

        def function(points: np.ndarray, target: np.ndarray) -> np.ndarray:
            if made[-1].queries >= limit[0]:
                raise ConnectionError("the service is gone")
            return quadratic(points, target[:, None])

        box = blackbox(function, name="service")
        made.append(box)
        clients = ClientData.from_partition(np.arange(8, dtype=np.float32), list(np.arange(8).reshape(num_clients, -1)))

        def evaluate(params: Any, own: TaskData) -> dict[str, jax.Array]:
            return {"train_loss": per_client_mean(box.loss(params, own.clients.samples), own.clients)}

        return Task(lambda key: jnp.zeros(2), box.loss, evaluate, TaskData(clients, ()), (box,))

    module = types.SimpleNamespace(task_of=task_of, check=lambda data, num_clients: None, needed=lambda name: "folds")
    monkeypatch.setitem(build._OTHERS, "digits_tuning", module)

    def set_limit(number: float) -> list[BlackBox]:
        limit[0] = number
        build._task.cache_clear()
        return made

    yield set_limit
    build._task.cache_clear()


pytestmark = pytest.mark.filterwarnings("ignore:the load_module:DeprecationWarning")  # of ml_collections


def command(workdir: Path, *options: str) -> int:
    return run.main(["run", *OPTIONS, f"--workdir={workdir}", *options])


def losses(workdir: Path) -> np.ndarray:
    return xarray.load_dataset(workdir / "results.nc")["train_loss"].values


def test_a_box_that_raises_ends_the_run_with_an_error_and_its_results(
    limited: Any, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """At the hundredth query, in the third segment; once it works again, --resume goes on as if nothing had been."""
    made = limited(np.inf)
    assert command(tmp_path / "whole") == 0
    assert made[-1].queries == 3 * SEGMENT + 4 * EVALUATION
    limited(LIMIT)
    capsys.readouterr()
    assert command(tmp_path / "cut") == 1
    error = capsys.readouterr().err
    assert error.startswith("error: black box service raised at call ")
    assert "ConnectionError: the service is gone; the rounds before it are saved" in error
    whole, cut = losses(tmp_path / "whole"), losses(tmp_path / "cut")
    played = np.isfinite(cut).sum()
    assert 0 < played < len(whole)
    np.testing.assert_array_equal(cut[:played], whole[:played])
    limited(np.inf)
    assert command(tmp_path / "cut", "--resume") == 0
    np.testing.assert_array_equal(losses(tmp_path / "cut"), whole)


def test_a_box_that_raises_at_once_is_an_error(
    limited: Any, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    limited(1)
    assert command(tmp_path) == 1
    assert "error: black box service raised at call 1, queries 1 to 8: ConnectionError" in capsys.readouterr().err


def test_a_budget_of_queries_ends_a_run(limited: Any, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    limited(np.inf)
    assert command(tmp_path / "some", f"--config.query_budget={2 * SEGMENT + 1}") == 0
    results = xarray.load_dataset(tmp_path / "some" / "results.nc")
    assert results["queries"].values[:3].tolist() == [0, SEGMENT, 2 * SEGMENT]
    assert int(results["rounds_played"]) == 4
    capsys.readouterr()
    assert command(tmp_path / "none", f"--config.query_budget={SEGMENT - 1}") == 1
    assert f"query_budget={SEGMENT - 1}; allowed: at least {SEGMENT}" in capsys.readouterr().err


def test_queries_of_every_algorithm() -> None:
    config = fedzo_cifar_attack.get_config()
    expected = {"fedzo": 5 * 25 * 21, "decomfl": 5 * 25 * 21, "fedavg": 0, "dzopa": 3 * 25 * 21, "zone_s": 3 * 25 * 21}
    config.algorithm.num_estimates = 3
    for name, number in expected.items():
        config.algorithm.name = name
        assert queries.per_participant(config) == number
