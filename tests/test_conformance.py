"""What every algorithm must do. An algorithm enters by one row of ROWS, and each row passes every test.

A row makes the algorithm from settings that may be traced, for the problem of `tests/tiny.py`. One program per row
plays ROUNDS rounds with everything as an argument (seed, settings, state, data, the order of the cohort), so that most
tests only call it; chunks, devices and the map over cells are programs of their own.
"""

import functools
from collections.abc import Callable
from typing import Any, NamedTuple

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
    State,
    Trace,
    aggregation,
    batches,
    cohorts,
    decomfl,
    directions,
    dzopa,
    estimators,
    fedavg,
    fedzo,
    graphs,
    rng,
    simulate,
    zone_s,
)
from zofed.base import LossFn
from zofed.codecs import compressed, quantize, top_k
from zofed.sequential import one_model_at_a_time

CLIENTS, ROUNDS = len(tiny.SIZES), 2
Settings = dict[str, Any]


class Row(NamedTuple):
    """An algorithm under test.

    Attributes:
        make: settings -> algorithm; settings hold "learning_rate" and "smoothing".
        learning_rate: one at which it converges.
        calls: programs' calls, of ROUNDS rounds each, after which it is near the optimum.
        exact_chunks: whether chunks of clients change no bit of the state. Where clients share a model, their batches
            are one batch, and a chunk decides how large it is; and where they share directions, the gradients of
            their local steps are one product.
    """

    make: Callable[[Settings], Algorithm]
    learning_rate: float
    calls: int = 60
    exact_chunks: bool = True


def zeroth_order(**settings: Any) -> Callable[[Settings], Algorithm]:
    """FedZO with these settings; small counts, for the compiler's sake."""
    counts = {"local_steps": 2, "num_directions": 3, "batch_size": 2}
    return lambda traced: fedzo(tiny.loss, traced["learning_rate"], traced["smoothing"], **{**counts, **settings})


def shared_directions(loss: LossFn = tiny.loss, **settings: Any) -> Callable[[Settings], Algorithm]:
    """DeComFL with these settings."""
    counts = {"local_steps": 2, "num_directions": 3, "batch_size": 2}
    return lambda traced: decomfl(loss, traced["learning_rate"], traced["smoothing"], **{**counts, **settings})


def first_order(**settings: Any) -> Callable[[Settings], Algorithm]:
    return lambda traced: fedavg(tiny.loss, traced["learning_rate"], local_steps=2, batch_size=2, **settings)


def peers(traced: Settings) -> Algorithm:
    rate, ring = traced["learning_rate"], graphs.ring(CLIENTS)
    return dzopa(tiny.loss, rate, traced["smoothing"], 0.2, ring, num_directions=3, batch_size=2)


def primal_dual(traced: Settings) -> Algorithm:
    return zone_s(tiny.loss, 1 / traced["learning_rate"], traced["smoothing"], 2, num_directions=3, batch_size=2)


# Each feature is in some row; few rows hold them all, as each row is a dozen programs.
ROWS = {
    "fedzo server momentum": Row(
        zeroth_order(sample_cohort=cohorts.uniform(4), server_optimizer=optax.trace(0.9)), 0.005
    ),
    "fedzo gaussian central local adam": Row(
        zeroth_order(
            directions=directions.gaussian(),
            difference=estimators.central(),
            local_optimizer=optax.scale_by_adam(),
            direction_chunk=2,
        ),
        0.03,
        120,
    ),
    "fedzo per sample epoch": Row(
        zeroth_order(per_sample=True, directions=directions.rademacher(), batching=batches.epoch), 0.03
    ),
    "fedzo aircomp": Row(
        zeroth_order(aggregation=aggregation.aircomp(20.0), sample_cohort=cohorts.gain_threshold(0.5)), 0.03
    ),
    "decomfl momentum": Row(
        shared_directions(sample_cohort=cohorts.uniform(4), optimizer=optax.ema(0.5, debias=False)),
        0.05,
        exact_chunks=False,
    ),
    "dzopa ring": Row(peers, 0.05),
    "zone_s": Row(primal_dual, 0.05, 200),
    "decomfl adam aircomp sequential": Row(
        shared_directions(
            one_model_at_a_time(tiny.loss),
            aggregation=aggregation.aircomp(20.0),
            sample_cohort=cohorts.gain_threshold(0.5),
            optimizer=optax.scale_by_adam(),
        ),
        0.05,
        120,
        exact_chunks=False,
    ),
    "fedavg": Row(first_order(), 0.1),
    "fedavg local momentum quantized server adam": Row(
        first_order(
            local_optimizer=optax.trace(0.9),
            aggregation=compressed(aggregation.mean(), quantize(8)),
            server_optimizer=optax.scale_by_adam(),
        ),
        0.05,
        120,
    ),
    "fedavg top-k quantized error feedback server yogi": Row(
        first_order(
            aggregation=compressed(aggregation.mean(), top_k(0.3), quantize(8), error_feedback=True),
            sample_cohort=cohorts.uniform(4),
            server_optimizer=optax.scale_by_yogi(0.9, 0.99),
            server_learning_rate=0.05,
        ),
        0.1,
        120,
    ),
    "fedavg top-k over the air server adagrad": Row(
        first_order(
            aggregation=compressed(aggregation.aircomp(20.0), top_k(0.5), error_feedback=True),
            sample_cohort=cohorts.gain_threshold(0.5),
            server_optimizer=optax.scale_by_rss(1e-6, 1e-3),
            server_learning_rate=0.3,
        ),
        0.1,
        120,
    ),
}
every_row = pytest.mark.parametrize("name", ROWS)


def settings_of(name: str, **changes: float) -> Settings:
    """A row's settings, as arrays: they are arguments of the program."""
    values = {"learning_rate": ROWS[name].learning_rate, "smoothing": 0.1, **changes}
    return {name: np.float32(value) for name, value in values.items()}


def reordered(algorithm: Algorithm, backwards: Any) -> Algorithm:
    """The algorithm with each round's participants in the opposite order, if `backwards`."""

    def sample(keys: rng.RoundKeys, num_clients: int) -> Cohort:
        cohort = algorithm.sample_cohort(keys, num_clients)
        places = jnp.arange(cohort.ids.shape[0], dtype=jnp.int32)
        places = jnp.where(backwards & (places < cohort.count), cohort.count - 1 - places, places)
        return cohort._replace(ids=cohort.ids[places], gain=None if cohort.gain is None else cohort.gain[places])

    return algorithm._replace(sample_cohort=sample)


def play(
    name: str, seed: Any, settings: Settings, state: State, data: ClientData, backwards: Any = False, **execution: Any
) -> tuple[State, Trace]:
    algorithm = reordered(ROWS[name].make(settings), backwards)
    return simulate(rng.seed_key(seed), algorithm, state, data, ROUNDS, evaluate=lambda params: params, **execution)


@functools.cache
def program(name: str, **execution: Any) -> Any:
    """`play` of a row, compiled: `(seed, settings, state, data, backwards) -> (state, trace)`."""
    return jax.jit(functools.partial(play, name, **execution))


def start(name: str, params: Any = tiny.PARAMS) -> State:
    return ROWS[name].make(settings_of(name)).init(params, CLIENTS)


DATA = tiny.client_data()
SEED = 0


@functools.cache
def usual(name: str, **execution: Any) -> tuple[State, Trace]:
    """The run that others are compared with."""
    return program(name, **execution)(SEED, settings_of(name), start(name), DATA, False)


def assert_close(result: tuple[State, Trace], expected: tuple[State, Trace], tolerance: float) -> None:
    """Everything but diagnostics of the link, which may be as large as an SNR."""
    strip = lambda pair: (pair[0], pair[1]._replace(rounds=pair[1].rounds._replace(link=())))  # noqa: E731
    chex.assert_trees_all_close(strip(result), strip(expected), rtol=0, atol=tolerance)


ROUND_OFF = 2e-5
"""Of scalars: eps |F| / smoothing = 6e-8 * 10 / 0.1, times sqrt(d) for a step's length, times the rate and steps."""


@every_row
def test_without_jit(name: str) -> None:
    """One round, op by op, of a model of one leaf. XLA fuses, and so rounds, in another way: close up to round-off."""
    state = start(name, jnp.zeros(tiny.DIM))

    def round_of(settings: Settings, state: State, data: ClientData) -> tuple[State, Trace]:
        return simulate(rng.seed_key(0), ROWS[name].make(settings), state, data, 1)

    with jax.disable_jit():
        result = round_of(settings_of(name), state, DATA)
    assert_close(result, jax.jit(round_of)(settings_of(name), state, DATA), ROUND_OFF)


@every_row
def test_one_trace_serves_all_values(name: str) -> None:
    run = program(name)
    results = [
        run(seed, settings_of(name, learning_rate=rate, smoothing=smoothing), start(name), DATA, False)[0]
        for seed, rate, smoothing in [(0, 0.01, 0.1), (1, 0.01, 0.1), (0, 0.02, 0.1), (0, 0.01, 0.3)]
    ]
    assert run._cache_size() == 1
    models = [tiny.flat64(result.server.params) for result in results]
    differ = [not np.array_equal(models[0], other) for other in models[1:]]
    assert differ == [True, True, not name.startswith("fedavg")]


@every_row
def test_dtypes_and_shapes_are_kept(name: str) -> None:
    """Of leaves without an axis, of size 1 ..., in any precision, in the model and in all that goes with it."""
    dtypes = iter([jnp.bfloat16, jnp.float32, jnp.float16, jnp.float32])
    params = jax.tree.map(lambda leaf: leaf.astype(next(dtypes)), tiny.PARAMS)
    state = start(name, params)
    after, trace = jax.eval_shape(functools.partial(play, name), SEED, settings_of(name), state, DATA)
    chex.assert_trees_all_equal_shapes_and_dtypes(after, jax.eval_shape(lambda: state))
    shape_of = lambda leaf: jax.ShapeDtypeStruct((ROUNDS, *leaf.shape), leaf.dtype)  # noqa: E731
    chex.assert_trees_all_equal_shapes_and_dtypes(trace.evaluations, jax.tree.map(shape_of, params))
    assert {leaf.dtype for leaf in jax.tree.leaves(trace.rounds.local)} == {jnp.dtype(jnp.float32)}


@every_row
def test_results_are_finite(name: str) -> None:
    chex.assert_tree_all_finite(usual(name))


@every_row
def test_where_clients_data_lies_does_not_matter(name: str) -> None:
    """Bit for bit: client i's samples may stand anywhere in the flat arrays."""
    order = np.array([3, 1, 4, 0, 2])
    sizes = np.asarray(DATA.sizes)
    offsets = np.zeros(CLIENTS, np.int32)
    offsets[order] = np.concatenate([[0], np.cumsum(sizes[order])[:-1]])
    samples = np.concatenate([DATA.samples[DATA.offsets[i] : DATA.offsets[i] + sizes[i]] for i in order])
    moved = ClientData(jnp.asarray(samples), jnp.asarray(offsets), DATA.sizes, DATA.max_size)
    chex.assert_trees_all_equal(program(name)(SEED, settings_of(name), start(name), moved, False), usual(name))


@every_row
def test_order_of_the_cohort_does_not_matter(name: str) -> None:
    """Up to the order of additions."""
    assert_close(program(name)(SEED, settings_of(name), start(name), DATA, True), usual(name), ROUND_OFF)


@every_row
@pytest.mark.parametrize("chunk", [1, 3])
def test_chunks_of_clients(name: str, chunk: int) -> None:
    """The state, bit for bit; losses, which are sums in another order, up to round-off."""
    result, expected = usual(name, client_chunk=chunk), usual(name)
    if ROWS[name].exact_chunks:
        chex.assert_trees_all_equal(result[0], expected[0])
        chex.assert_trees_all_equal(result[1].evaluations, expected[1].evaluations)
    assert_close(result, expected, ROUND_OFF)


@every_row
@pytest.mark.parametrize("num_devices", [2, *(pytest.param(count, marks=pytest.mark.slow) for count in (1, 4))])
def test_devices(name: str, num_devices: int) -> None:
    """Up to the order of additions, and what of it finite differences enlarge."""
    mesh = Mesh(np.array(jax.devices()[:num_devices]), ("clients",))
    assert_close(usual(name, mesh=mesh), usual(name), ROUND_OFF)


@every_row
def test_a_cell_of_many_is_the_run_alone(name: str) -> None:
    """Bit for bit, in a map over seeds and settings."""
    cells = [(5, settings_of(name, learning_rate=0.01)), (0, settings_of(name)), (2, settings_of(name, smoothing=0.3))]
    seeds = np.array([seed for seed, _ in cells])
    settings = jax.tree.map(lambda *values: np.stack(values), *[own for _, own in cells])
    over_cells = jax.vmap(functools.partial(play, name), in_axes=(0, 0, None, None))
    swept = jax.jit(over_cells)(seeds, settings, start(name), DATA)
    for place, (seed, own) in enumerate(cells):
        alone = program(name)(seed, own, start(name), DATA, False)
        cell = jax.tree.map(lambda leaf, place=place: leaf[place], swept)
        chex.assert_trees_all_equal(cell[0], alone[0])
        chex.assert_trees_all_equal(cell[1].evaluations, alone[1].evaluations)
        assert_close(cell, alone, ROUND_OFF)


@every_row
def test_results_that_are_not_finite_are_left_out_and_counted(name: str) -> None:
    """Client 2's losses are nan: it counts as a participant that was not heard, whenever it takes part."""
    owner = np.repeat(np.arange(CLIENTS), tiny.SIZES)
    samples = jnp.where(jnp.asarray(owner == 2)[:, None], jnp.nan, DATA.samples)
    poisoned = ClientData(samples, DATA.offsets, DATA.sizes, DATA.max_size)
    state, trace = program(name)(SEED, settings_of(name), start(name), poisoned, False)
    chex.assert_tree_all_finite((state, trace))
    sample = ROWS[name].make(settings_of(name)).sample_cohort
    for round in range(ROUNDS):
        cohort = sample(rng.round_keys(rng.seed_key(SEED), round), CLIENTS)
        present = np.asarray(cohort.ids)[: int(cohort.count)]
        assert int(trace.rounds.cohort_size[round]) == len(present)
        assert int(trace.rounds.nonfinite[round]) == int(2 in present)
    assert np.abs(tiny.flat64(state.server.params) - tiny.flat64(tiny.PARAMS)).max() > 1e-4


@every_row
def test_descends_and_converges(name: str) -> None:
    """On a quadratic whose clients agree but for a little: from 1 to 2% of the start's distance to the optimum."""
    data = tiny.client_data(spread=0.0, apart=0.05)
    state, run, losses = start(name), program(name), [tiny.objective64(tiny.PARAMS, data)]
    for _ in range(ROWS[name].calls):
        state, _ = run(SEED, settings_of(name, smoothing=0.01), state, data, False)
        losses.append(tiny.objective64(state.server.params, data))
    excess = (np.array(losses) - tiny.optimum64(data)) / (losses[0] - tiny.optimum64(data))
    assert excess[5] < 0.97
    assert np.median(excess[-10:]) < 0.02
