"""The engine: whole rounds against numpy in float64, resuming, masking, absent clients, memory."""

import functools
from collections.abc import Callable
from typing import Any

import chex
import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from jax.sharding import Mesh

from tests import tiny
from zofed import (
    Algorithm,
    ClientData,
    Cohort,
    LocalInfo,
    State,
    Trace,
    batches,
    cohorts,
    directions,
    estimators,
    fedavg,
    fedzo,
    rng,
    simulate,
)
from zofed import aggregation as aggregations

CLIENTS, MEMBERS = len(tiny.SIZES), 3
RATE, SMOOTHING, STEPS, NUM_DIRECTIONS, BATCH, ROUNDS = 0.05, 0.5, 2, 3, 2, 2


# Whole rounds against numpy.


def local_inputs(seed_key: jax.Array, data: ClientData, round: jax.Array, client_id: jax.Array) -> Any:
    """The batches and directions of a client's round: [step, example, d] and [step, direction, d]."""
    keys, client = rng.round_keys(seed_key, round), data.client(client_id)
    batching, law = batches.replacement(BATCH), directions.sphere()

    def direction(step: jax.Array, number: jax.Array) -> jax.Array:
        key = rng.fold(rng.fold(keys.direction, step, client_id), number)
        drawn = law.sample(key, number, tiny.PARAMS)
        return drawn.factor * tiny.flat(drawn.raw)

    steps, numbers = jnp.arange(STEPS, dtype=jnp.int32), jnp.arange(NUM_DIRECTIONS, dtype=jnp.int32)
    batch = jax.vmap(lambda step: batching(keys, step, STEPS, client))(steps)
    return batch, jax.vmap(lambda step: jax.vmap(lambda number: direction(step, number))(numbers))(steps)


def fedzo_gradient(x: np.ndarray, batch: np.ndarray, rows: np.ndarray) -> np.ndarray:
    """(II-B): d v / mu [F(x + mu v) - F(x)], the mean over examples and directions."""
    total = np.zeros_like(x)
    for v in rows:
        for example in batch:
            above, base = (tiny.loss64(point, example[None])[0] for point in (x + SMOOTHING * v, x))
            total += tiny.DIM * v / SMOOTHING * (above - base)
    return total / (len(rows) * len(batch))


def fedavg_gradient(x: np.ndarray, batch: np.ndarray, rows: np.ndarray) -> np.ndarray:
    return tiny.gradient64(x, batch)


METHODS: dict[str, tuple[Callable[..., Algorithm], Callable[..., np.ndarray]]] = {
    "fedzo": (functools.partial(fedzo, smoothing=SMOOTHING, num_directions=NUM_DIRECTIONS), fedzo_gradient),
    "fedavg": (fedavg, fedavg_gradient),
}


@pytest.mark.parametrize("name", METHODS)
def test_rounds_are_the_papers_in_float64(name: str) -> None:
    """Local steps (5)-(6), updates, mean over the cohort (13), x + Delta, for two rounds."""
    make, gradient = METHODS[name]
    data, key, sample = tiny.client_data(), rng.seed_key(3), cohorts.uniform(MEMBERS)
    algorithm = make(tiny.loss, RATE, local_steps=STEPS, batch_size=BATCH, sample_cohort=sample)
    run = jax.jit(lambda state, data: simulate(key, algorithm, state, data, ROUNDS, evaluate=tiny.flat))
    _, trace = run(algorithm.init(tiny.PARAMS, CLIENTS), data)
    inputs = jax.jit(local_inputs)
    x = tiny.flat64(tiny.PARAMS)
    for round in range(ROUNDS):
        ids, updates = sample(rng.round_keys(key, round), CLIENTS).ids, []
        for client_id in ids:
            batch, rows = (np.asarray(leaf, np.float64) for leaf in inputs(key, data, jnp.int32(round), client_id))
            own = x
            for step in range(STEPS):
                own = own - RATE * gradient(own, batch[step], rows[step])
            updates.append(own - x)
        x = x + np.mean(updates, axis=0)
        np.testing.assert_allclose(trace.evaluations[round], x, rtol=0, atol=1e-5)
    assert np.abs(x - tiny.flat64(tiny.PARAMS)).max() > 0.1


def test_a_schedule_gives_each_round_its_own_rate() -> None:
    """One client whose only sample is 1: each step goes the rate's share of the way, at the client and the server."""
    data = ClientData.from_partition(np.ones(1, np.float32), [[0]])
    local_rate, server_rate = lambda round: 0.5 / (1 + round), optax.exponential_decay(1.0, 1, 0.8)
    loss = lambda x, batch: 0.5 * jnp.square(x - batch)  # noqa: E731
    algorithm = fedavg(loss, local_rate, local_steps=2, batch_size=1, server_learning_rate=server_rate)
    _, trace = simulate(rng.seed_key(0), algorithm, algorithm.init(jnp.float32(0), 1), data, 3, evaluate=lambda x: x)
    x = 0.0
    for round in range(3):
        moved = 1 - (1 - x) * (1 - local_rate(round)) ** 2
        x = x + 0.8**round * (moved - x)
        assert float(trace.evaluations[round]) == pytest.approx(x, abs=1e-6)


# Resuming and seeds.


def adaptive() -> Algorithm:
    """FedZO with all the state there is: a server optimiser, epochs that span rounds, a cohort."""
    return fedzo(
        tiny.loss,
        RATE,
        SMOOTHING,
        local_steps=1,
        num_directions=2,
        batch_size=1,
        batching=batches.epoch,
        sample_cohort=cohorts.uniform(MEMBERS),
        server_optimizer=optax.scale_by_adam(),
        server_learning_rate=0.1,
    )


@functools.cache
def adaptive_program(num_rounds: int) -> Callable[..., tuple[State, Trace]]:
    return jax.jit(
        lambda seed, state, data: simulate(rng.seed_key(seed), adaptive(), state, data, num_rounds, evaluate=tiny.flat)
    )


def adaptive_start() -> State:
    return adaptive().init(jnp.zeros(tiny.DIM), CLIENTS)


def test_two_runs_are_one_of_twice_the_rounds_bit_for_bit() -> None:
    data, seed = tiny.client_data(), np.uint32(0)
    whole, trace = adaptive_program(4)(seed, adaptive_start(), data)
    half, first = adaptive_program(2)(seed, adaptive_start(), data)
    resumed, second = adaptive_program(2)(seed, half, data)
    chex.assert_trees_all_equal(resumed, whole)
    chex.assert_trees_all_equal(jax.tree.map(lambda *parts: jnp.concatenate(parts), first, second), trace)
    assert int(whole.round) == 4


def test_equal_seeds_are_equal_and_others_differ() -> None:
    data, play = tiny.client_data(), adaptive_program(2)
    zero, again, one = (play(np.uint32(seed), adaptive_start(), data) for seed in (0, 0, 1))
    chex.assert_trees_all_equal(zero, again)
    assert np.abs(zero[0].server.params - one[0].server.params).max() > 1e-3


def test_a_round_that_nobody_is_heard_in_leaves_the_server_as_it_is() -> None:
    """The optimiser's state too, and the next round goes on."""
    data, seed = tiny.client_data(), np.uint32(0)
    silent = ClientData(jnp.full_like(data.samples, jnp.nan), data.offsets, data.sizes, data.max_size)
    before, _ = adaptive_program(2)(seed, adaptive_start(), data)
    after, trace = adaptive_program(2)(seed, before, silent)
    chex.assert_trees_all_equal(after.server, before.server)
    assert int(after.round) == 4
    assert trace.rounds.nonfinite.tolist() == trace.rounds.cohort_size.tolist() == [MEMBERS, MEMBERS]
    assert trace.rounds.local.loss.tolist() == [0, 0]


# The engine alone, with an algorithm that shows what it is given.


def showing(cohort: Callable[[], Cohort], calls: list[int] | None = None, bad: int = -1) -> Algorithm:
    """Client i sends i + 1 and counts its rounds in its memory; client `bad` sends nan. The server adds the mean."""

    def note(id: Any) -> None:
        assert calls is not None
        calls.append(int(id))

    def local(keys: rng.RoundKeys, server: Any, memory: jax.Array, client: Any) -> tuple[Any, Any, LocalInfo]:
        if calls is not None:
            jax.debug.callback(note, client.id)
        value = jnp.where(client.id == bad, jnp.nan, 1.0 + client.id.astype(jnp.float32))
        return value, memory + 1, LocalInfo(value, jnp.float32(0))

    return Algorithm(
        init=lambda params, num_clients: State(params, jnp.zeros(num_clients, jnp.int32), jnp.int32(0)),
        local=local,
        server=lambda keys, state, aggregate, cohort: state.server + aggregate,
        params=lambda state: state.server,
        sample_cohort=lambda keys, num_clients: cohort(),
        aggregation=aggregations.mean(),
    )


def show(algorithm: Algorithm, num_rounds: int = 1, **settings: Any) -> tuple[State, Trace]:
    data = ClientData.from_partition(np.zeros(5), [[i] for i in range(5)])
    state = algorithm.init(jnp.float32(0), 5)
    run = jax.jit(lambda state, data: simulate(rng.seed_key(0), algorithm, state, data, num_rounds, **settings))
    result = jax.block_until_ready(run(state, data))
    jax.effects_barrier()
    return result


def some_present(traced: bool) -> Cohort:
    """Clients 3, 0 and 4; what follows them is to be ignored, whatever it says."""
    return Cohort(jnp.array([3, 0, 4, 1, 77], jnp.int32), jnp.int32(3) if traced else 3)


@pytest.mark.parametrize("traced", [False, True], ids=["static count", "traced count"])
@pytest.mark.parametrize(("chunk", "played"), [(1, 3), (2, 4), (None, 5)])
def test_absent_clients_are_not_played_but_to_fill_a_chunk(chunk: int | None, played: int, traced: bool) -> None:
    calls: list[int] = []
    state, trace = show(showing(lambda: some_present(traced), calls), client_chunk=chunk)
    assert set(calls) >= {3, 0, 4}
    assert len(calls) == played
    assert state.server == pytest.approx((4 + 1 + 5) / 3)
    assert state.memory.tolist() == [1, 0, 0, 1, 1]
    assert trace.rounds.cohort_size.tolist() == [3]
    assert trace.rounds.local.loss[0] == pytest.approx(10 / 3)


@pytest.mark.parametrize("num_devices", [1, 2, 4])
@pytest.mark.parametrize("chunk", [1, None])
def test_devices_share_a_cohort(num_devices: int, chunk: int | None) -> None:
    mesh = Mesh(np.array(jax.devices()[:num_devices]), ("clients",))
    state, trace = show(showing(lambda: some_present(True), bad=4), num_rounds=2, client_chunk=chunk, mesh=mesh)
    assert state.server == 2 * (4 + 1) / 2
    assert state.memory.tolist() == [2, 0, 0, 2, 0]
    assert trace.rounds.nonfinite.tolist() == [1, 1]


def test_meshes_of_explicit_axes_do_too() -> None:
    state, _ = show(showing(lambda: some_present(True)), mesh=jax.make_mesh((2,), ("clients",)))
    assert state.server == pytest.approx(10 / 3)


@pytest.mark.parametrize("chunk", [1, 2, None])
def test_a_result_that_is_not_finite_is_left_out_and_counted(chunk: int | None) -> None:
    everybody = lambda: Cohort(jnp.arange(5, dtype=jnp.int32), 5)  # noqa: E731
    state, trace = show(showing(everybody, bad=2), num_rounds=3, client_chunk=chunk)
    assert state.server == 3 * (1 + 2 + 4 + 5) / 4
    assert state.memory.tolist() == [3, 3, 0, 3, 3]
    assert trace.rounds.nonfinite.tolist() == [1, 1, 1]
    assert trace.rounds.cohort_size.tolist() == [5, 5, 5]
    assert trace.rounds.local.loss.tolist() == [3, 3, 3]


def test_an_empty_cohort_changes_nothing_but_the_round() -> None:
    calls: list[int] = []
    state, trace = show(showing(lambda: Cohort(jnp.arange(5, dtype=jnp.int32), jnp.int32(0)), calls), num_rounds=2)
    assert calls == []
    assert (state.server, state.memory.tolist(), int(state.round)) == (0, [0] * 5, 2)
    assert trace.rounds.cohort_size.tolist() == [0, 0]
    assert np.isfinite(trace.rounds.local.loss).all()


def test_evaluation_comes_after_every_interval() -> None:
    everybody = lambda: Cohort(jnp.arange(5, dtype=jnp.int32), 5)  # noqa: E731
    _, trace = show(showing(everybody), num_rounds=6, evaluate=lambda x: {"x": x}, eval_every=3)
    assert trace.evaluations["x"].tolist() == [9, 18]
    assert trace.rounds.cohort_size.shape == (6,)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"num_rounds": 0}, "num_rounds=0; allowed: an integer from 1 up"),
        ({"num_rounds": 4, "eval_every": 3}, "eval_every=3; allowed: a divisor of num_rounds=4"),
        ({"num_rounds": 4, "eval_every": 5}, "eval_every=5; allowed: an integer from 1 to 4"),
        ({"client_chunk": 0}, "client_chunk=0; allowed: an integer from 1 up"),
        ({"mesh": Mesh(np.array(jax.devices()[:1]), ("cells",))}, r"axes \('cells',\); allowed: .* 'clients'"),
    ],
)
def test_bad_settings_are_named(settings: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        show(showing(lambda: some_present(False)), **settings)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"learning_rate": -0.1}, "learning_rate=-0.1; allowed: a finite number > 0"),
        ({"learning_rate": float("nan")}, "learning_rate=nan"),
        ({"smoothing": 0}, "smoothing=0"),
        ({"local_steps": 0}, "local_steps=0"),
        ({"num_directions": 0}, "num_directions=0"),
        ({"batch_size": 0}, "batch_size=0"),
        ({"direction_chunk": 0}, "direction chunk=0"),
        ({"server_learning_rate": float("inf")}, "server_learning_rate=inf"),
    ],
)
def test_bad_settings_of_fedzo_are_named(settings: dict[str, Any], message: str) -> None:
    allowed = {"learning_rate": RATE, "smoothing": SMOOTHING, "local_steps": STEPS}
    with pytest.raises(ValueError, match=message):
        fedzo(tiny.loss, **{**allowed, **settings})


# What a program holds.


def test_data_is_an_argument_and_no_constant() -> None:
    data, state = tiny.client_data((30, 30, 30, 30)), adaptive().init(jnp.zeros(tiny.DIM), 4)
    program = jax.make_jaxpr(adaptive_program(2))(np.uint32(0), state, data)
    assert max((np.size(constant) for constant in program.consts), default=0) <= tiny.DIM < data.samples.size


def temporary_bytes(num_directions: int, members: int, dim: int) -> int:
    algorithm = fedzo(
        lambda x, batch: jnp.sum(jnp.square(x)) + batch,
        RATE,
        SMOOTHING,
        STEPS,
        num_directions,
        BATCH,
        directions=directions.rademacher(),
        difference=estimators.central(),
        direction_chunk=1,
        sample_cohort=cohorts.uniform(members),
    )
    data = ClientData.from_partition(np.zeros(16), [[i] for i in range(16)])
    run = jax.jit(lambda state: simulate(rng.seed_key(0), algorithm, state, data, ROUNDS, client_chunk=1))
    analysis = run.lower(algorithm.init(jnp.zeros(dim), 16)).compile().memory_analysis()
    assert analysis is not None
    return analysis.temp_size_in_bytes


def test_memory_one_by_one_grows_neither_with_directions_nor_with_the_cohort() -> None:
    dim = 50_000
    few, many = temporary_bytes(2, 2, dim), temporary_bytes(32, 16, dim)
    assert many < few + dim  # a quarter of one vector
    assert few < 20 * 4 * dim
