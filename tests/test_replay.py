"""A vmapped sweep's cell, the run alone and the replay of its history are one model, bit for bit."""

import functools
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

from tests import tiny
from zofed import cohorts, replay, rng, simulate
from zofed.algorithms.decomfl import decomfl, rule, start
from zofed.descent import Model, Rule
from zofed.directions import LAWS
from zofed.replay import History

DATA = tiny.client_data()
NUM_ROUNDS = 4


def rate_of(base: jax.Array) -> Any:
    return lambda round: base / (1 + 0.3 * round.astype(jnp.float32))


def played(agreed: Rule, seed: jax.Array, base: jax.Array, **options: Any) -> tuple[Model, History]:
    settings = {"local_steps": 2, "num_directions": 3, "batch_size": 2, **options}
    built = decomfl(
        tiny.loss,
        rate_of(base),
        0.05,
        directions=agreed.directions,
        optimizer=agreed.optimizer,
        sample_cohort=cohorts.uniform(2),
        **settings,
    )
    state = built.init(tiny.PARAMS, DATA.num_clients)
    state, trace = simulate(rng.seed_key(seed), built, state, DATA, NUM_ROUNDS)
    return state.server, trace.rounds.record.history


def rebuilt(agreed: Rule, history: History, model: Model | None = None) -> Model:
    model = start(agreed, tiny.PARAMS) if model is None else model
    return jax.jit(functools.partial(replay.rebuild, agreed))(model, history)


OPTIMIZERS = {
    "sgd": optax.identity(),
    "ema": optax.ema(0.7, debias=False),
    "trace": optax.trace(0.9),
    "adam": optax.scale_by_adam(),
    "sign": optax.scale_by_sign(),
    "clipped_adam": optax.chain(optax.clip_by_global_norm(0.5), optax.scale_by_adam()),
}


@pytest.mark.parametrize(
    ("law", "name"),
    [("gaussian", name) for name in OPTIMIZERS]
    + [pytest.param(*row, marks=pytest.mark.slow) for row in (("sphere", "adam"), ("rademacher", "trace"))],
)
def test_a_vmapped_cell_is_rebuilt_alone_bit_for_bit(law: str, name: str) -> None:
    """Leaves of size 1, 1, 3 and 10, two local steps, another rate in each round."""
    agreed = rule(LAWS[law](), OPTIMIZERS[name])
    seeds, rates = jnp.arange(3), jnp.array([0.01, 0.03, 0.1])
    models, histories = jax.jit(jax.vmap(functools.partial(played, agreed)))(seeds, rates)
    for cell in range(3):
        model, history = jax.tree.map(lambda leaf, cell=cell: leaf[cell], (models, histories))
        assert replay.digest(rebuilt(agreed, history)) == replay.digest(model)
        assert replay.digest(model.params) != replay.digest(tiny.PARAMS)


@pytest.fixture(scope="module")
def run() -> tuple[Rule, Model, History]:
    agreed = rule(optimizer=OPTIMIZERS["ema"])
    model, history = jax.jit(functools.partial(played, agreed))(jnp.int32(1), jnp.float32(0.05))
    return agreed, model, jax.tree.map(np.asarray, history)


def test_a_run_alone_is_rebuilt(run: tuple[Rule, Model, History]) -> None:
    agreed, model, history = run
    assert replay.digest(rebuilt(agreed, history)) == replay.digest(model)


def test_parts_rebuild_what_the_whole_does(run: tuple[Rule, Model, History]) -> None:
    agreed, model, history = run
    half = rebuilt(agreed, replay.rounds_between(history, 0, 2))
    whole = rebuilt(agreed, replay.rounds_between(history, 2, NUM_ROUNDS), half)
    assert replay.digest(whole) == replay.digest(model)


@pytest.mark.parametrize(
    "mutate",
    [
        lambda history: history._replace(rate=np.full_like(history.rate, history.rate[0])),
        lambda history: replay.rounds_between(history, 1, NUM_ROUNDS),
        lambda history: history._replace(scalars=history.scalars[:, ::-1]),
        lambda history: history._replace(key=history.key[::-1]),
        lambda history: history._replace(num_directions=history.num_directions - 1),
    ],
    ids=["one rate for all", "a round later", "steps swapped", "keys swapped", "another 1/P"],
)
def test_another_history_makes_another_model(mutate: Any, run: tuple[Rule, Model, History]) -> None:
    agreed, model, history = run
    other = tiny.flat(rebuilt(agreed, mutate(history)).params)
    assert float(jnp.max(jnp.abs(other - tiny.flat(model.params)))) > 1e-4


def test_an_optimiser_that_starts_anew_makes_another_model(run: tuple[Rule, Model, History]) -> None:
    agreed, model, history = run
    half = rebuilt(agreed, replay.rounds_between(history, 0, 2))
    fresh = Model(half.params, start(agreed, tiny.PARAMS).optimizer)
    other = rebuilt(agreed, replay.rounds_between(history, 2, NUM_ROUNDS), fresh)
    assert float(jnp.max(jnp.abs(tiny.flat(other.params) - tiny.flat(model.params)))) > 1e-4


def test_a_round_in_which_nobody_was_heard_is_replayed_as_nothing(run: tuple[Rule, Model, History]) -> None:
    agreed, model, history = run
    empty = jax.tree.map(np.zeros_like, replay.rounds_between(history, 3, 4))
    longer = replay.concatenate([history, empty._replace(round=np.array([NUM_ROUNDS], np.int32))])
    assert replay.digest(rebuilt(agreed, longer)) == replay.digest(model)


def test_phases_of_a_num_directions_schedule_are_one_history() -> None:
    """P doubles after two rounds: two calls, and one padded history that rebuilds what they made."""
    agreed = rule()

    def phases() -> tuple[Model, History, History]:
        options = {"local_steps": 1, "batch_size": 2, "directions": agreed.directions}
        state, histories = None, []
        for num_directions in (2, 4):
            built = decomfl(tiny.loss, 0.05, 0.05, num_directions=num_directions, **options)
            state = built.init(tiny.PARAMS, DATA.num_clients) if state is None else state
            state, trace = simulate(rng.seed_key(0), built, state, DATA, 2)
            histories.append(trace.rounds.record.history)
        assert state is not None
        return state.server, histories[0], histories[1]

    model, first, second = jax.jit(phases)()
    history = replay.concatenate([first, second])
    assert history.num_directions.tolist() == [2, 2, 4, 4]
    assert history.round.tolist() == [0, 1, 2, 3]
    assert history.scalars.shape == (4, 1, 4)
    assert replay.digest(rebuilt(agreed, history)) == replay.digest(model)


def test_rounds_that_are_not_held_are_refused(run: tuple[Rule, Model, History]) -> None:
    _, _, history = run
    held = replay.rounds_between(history, 1, NUM_ROUNDS)
    assert replay.rounds_between(held, 3, 3).scalars.shape == (0, 2, 3)
    with pytest.raises(ValueError, match="rounds 0 to 2 are wanted; the history holds rounds 1 to 3"):
        replay.rounds_between(held, 0, 3)
    with pytest.raises(ValueError, match="the history holds no round"):
        replay.rounds_between(replay.rounds_between(held, 2, 2), 1, 3)


def test_digests_tell_values_shapes_dtypes_and_names_apart() -> None:
    trees = [
        {"a": np.zeros(2, np.float32)},
        {"b": np.zeros(2, np.float32)},
        {"a": np.zeros((1, 2), np.float32)},
        {"a": np.zeros(2, np.int32)},
        {"a": np.array([0, -0.0], np.float32)},
    ]
    assert len({replay.digest(tree) for tree in trees}) == len(trees)
