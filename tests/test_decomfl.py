"""DeComFL's fast form against the paper's algorithms written out in numpy, and its relatives."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

from tests import tiny
from zofed import aggregation, cohorts, rng, simulate
from zofed.algorithms import baffle, decomfl, mezo
from zofed.base import ClientData, State
from zofed.batches import replacement
from zofed.directions import gaussian, private
from zofed.estimators import central, forward, jvp, signed
from zofed.models.cnn import fashion_cnn
from zofed.sequential import one_model_at_a_time

STEPS, DIRECTIONS, SMOOTHING = 3, 4, 0.05
DATA = tiny.client_data()


def rate(round: jax.Array) -> jax.Array:
    return 0.05 / (1 + 0.5 * round.astype(jnp.float32))


def algorithm(**options: Any) -> Any:
    settings = {"local_steps": STEPS, "num_directions": DIRECTIONS, "batch_size": 2, **options}
    return decomfl(tiny.loss, settings.pop("learning_rate", rate), SMOOTHING, **settings)


def play(built: Any, num_rounds: int = 4, state: Any = None, **options: Any) -> tuple[State, Any]:
    start = built.init(tiny.PARAMS, DATA.num_clients) if state is None else state
    run = jax.jit(lambda start: simulate(rng.seed_key(3), built, start, DATA, num_rounds, **options))
    return run(start)


SAMPLE = cohorts.uniform(2)


@jax.jit
def drawn(round: jax.Array) -> tuple[jax.Array, jax.Array, jax.Array]:
    """Directions [step, number, dim], all clients' batches [client, step, example, dim], and the cohort of a round."""
    keys = rng.round_keys(rng.seed_key(3), round)
    steps, numbers = jnp.arange(STEPS, dtype=jnp.int32), jnp.arange(DIRECTIONS, dtype=jnp.int32)

    def direction(step: jax.Array, number: jax.Array) -> jax.Array:
        return tiny.flat(gaussian().sample(rng.direction_keys(keys.direction, step)(number), number, tiny.PARAMS).raw)

    def batch(id: jax.Array, step: jax.Array) -> jax.Array:
        return replacement(2)(keys, step, STEPS, DATA.client(id))

    z = jax.vmap(jax.vmap(direction, (None, 0)), (0, None))(steps, numbers)
    ids = jnp.arange(DATA.num_clients, dtype=jnp.int32)
    batches = jax.vmap(jax.vmap(batch, (None, 0)), (0, None))(ids, steps)
    return z, batches, SAMPLE(keys, DATA.num_clients).ids[:2]


def paper(num_rounds: int, decay: float) -> tuple[np.ndarray, np.ndarray]:
    """Algorithms 3 and 4 with momentum (8)-(9), in float64: the last model and all rounds' scalars."""
    x, momentum = tiny.flat64(tiny.PARAMS), np.zeros(tiny.DIM)
    history = []
    for r in range(num_rounds):
        eta = 0.05 / (1 + 0.5 * r)
        z, batches, cohort = (np.asarray(values, np.float64) for values in drawn(r))
        sent = []
        for client in cohort.astype(int):
            local, m = x.copy(), momentum.copy()
            scalars = np.zeros((STEPS, DIRECTIONS))
            for k in range(STEPS):
                batch = batches[client, k]
                base = tiny.loss64(local, batch)
                for p in range(DIRECTIONS):
                    scalars[k, p] = np.mean(tiny.loss64(local + SMOOTHING * z[k, p], batch) - base) / SMOOTHING
                m = decay * m + (1 - decay) * scalars[k] @ z[k] / DIRECTIONS
                local = local - eta * m
            sent.append(scalars)
        received = np.mean(sent, axis=0)
        for k in range(STEPS):
            momentum = decay * momentum + (1 - decay) * received[k] @ z[k] / DIRECTIONS
            x = x - eta * momentum
        history.append(received)
    return x, np.array(history)


@pytest.mark.parametrize("decay", [0.0, 0.6])
def test_rounds_are_the_papers_algorithms(decay: float) -> None:
    optimizer = optax.ema(decay, debias=False) if decay else None
    state, trace = play(algorithm(sample_cohort=SAMPLE, optimizer=optimizer))
    expected, scalars = paper(4, decay)
    history = trace.rounds.record.history
    np.testing.assert_allclose(history.scalars, scalars, atol=2e-4)
    np.testing.assert_allclose(tiny.flat(state.server.params), expected, atol=2e-5)
    np.testing.assert_allclose(history.rate, [0.05 / (1 + 0.5 * r) for r in range(4)], rtol=1e-6)
    assert history.round.tolist() == [0, 1, 2, 3]
    assert history.num_directions.tolist() == [DIRECTIONS] * 4


def test_chunks_of_clients_and_directions_change_only_round_off() -> None:
    _, whole = play(algorithm(), num_rounds=2)
    _, pieces = play(algorithm(direction_chunk=3), num_rounds=2, client_chunk=1)
    np.testing.assert_allclose(
        pieces.rounds.record.history.scalars, whole.rounds.record.history.scalars, rtol=1e-4, atol=1e-3
    )


def test_clients_share_the_draws_of_their_steps() -> None:
    """Under a map over clients no normal draw has the clients' axis: each direction is drawn once."""
    built = algorithm(local_steps=2)
    state = built.init(tiny.PARAMS, DATA.num_clients)
    keys = rng.round_keys(rng.seed_key(0), 0)

    def one(id: jax.Array) -> Any:
        memory = jax.tree.map(lambda leaf: leaf[id], state.memory)
        return built.local(keys, state.server, memory, DATA.client(id))[0]

    text = str(jax.make_jaxpr(jax.vmap(one))(jnp.arange(5, dtype=jnp.int32)))
    draws = [line.split("=")[0] for line in text.splitlines() if "erf_inv" in line]
    assert draws
    # [directions, leaf], and never with a leading 5 for the clients.
    assert all(f"f32[{DIRECTIONS}" in line and "f32[5" not in line for line in draws)


def test_memory_holds_each_clients_last_round_and_the_record_counts_the_lags() -> None:
    state, trace = play(algorithm(sample_cohort=cohorts.uniform(2)), num_rounds=6)
    last, lags = np.zeros(DATA.num_clients, int), []
    for r in range(6):
        ids = np.asarray(cohorts.uniform(2)(rng.round_keys(rng.seed_key(3), r), DATA.num_clients).ids)
        lags.append(sum(r - last[ids]))
        last[ids] = r
    assert state.memory.last_round.tolist() == last.tolist()
    assert trace.rounds.record.counts["replayed_rounds"].tolist() == lags
    assert trace.rounds.record.counts["pulled_models"].tolist() == [0] * 6


def test_long_lags_pull_the_model_and_change_nothing_else() -> None:
    sample = cohorts.uniform(1)
    state, trace = play(algorithm(sample_cohort=sample, local_steps=1), num_rounds=8)
    pulled, counted = play(algorithm(sample_cohort=sample, local_steps=1, max_lag=2), num_rounds=8)
    assert (tiny.flat(pulled.server.params) == tiny.flat(state.server.params)).all()
    lags = np.asarray(trace.rounds.record.counts["replayed_rounds"])
    assert (lags > 2).any()
    assert counted.rounds.record.counts["pulled_models"].tolist() == (lags > 2).astype(int).tolist()
    assert counted.rounds.record.counts["replayed_rounds"].tolist() == np.where(lags > 2, 0, lags).tolist()


def test_a_round_without_participants_leaves_model_and_optimiser() -> None:
    built = algorithm(
        local_steps=1,
        optimizer=optax.trace(0.9),
        sample_cohort=cohorts.gain_threshold(50.0),
        aggregation=aggregation.aircomp(0.0),
    )
    state, trace = play(built, num_rounds=2)
    assert (tiny.flat(state.server.params) == tiny.flat(tiny.PARAMS)).all()
    assert trace.rounds.record.history.num_directions.tolist() == [0, 0]


@pytest.mark.parametrize("num_directions", [1, 3])
def test_scalars_over_the_air_have_the_derived_noise(num_directions: int) -> None:
    """Variance Gamma_max / (m^2 K P gamma) per scalar, Gamma_max the largest sum of a client's squared scalars."""
    threshold, snr_db, steps = 0.8, 3.0, 2
    air, exact = aggregation.aircomp(snr_db), aggregation.mean()
    cohort = cohorts.gain_threshold(threshold)(rng.round_keys(rng.seed_key(5), 0), 12)
    count = int(cohort.count)
    scalars = 3 * jax.random.normal(jax.random.key(1), (count, steps, num_directions))

    def received(link: Any, keys: Any) -> jax.Array:
        lifted = [link.lift(scalars[i], None if cohort.gain is None else cohort.gain[i]) for i in range(count)]
        total = lifted[0]
        for other in lifted[1:]:
            total = link.merge(total, other)
        return link.receive(keys, total, jnp.float32(count), cohort)[0]

    plain = received(exact, rng.round_keys(rng.seed_key(5), 0))
    noisy = jax.vmap(lambda r: received(air, rng.round_keys(rng.seed_key(5), r)))(jnp.arange(4000))
    noise = np.asarray(noisy) - np.asarray(plain)
    largest = float(jnp.max(jnp.sum(jnp.square(scalars), axis=(1, 2))))
    gamma = 10 ** (snr_db / 10) * threshold**2
    expected = largest / (count**2 * steps * num_directions * gamma)
    assert abs(noise.mean()) < 4 * np.sqrt(expected / noise.size)
    assert noise.var() == pytest.approx(expected, rel=0.08)


def test_decomfl_over_the_air_descends() -> None:
    built = algorithm(
        sample_cohort=cohorts.gain_threshold(0.5), aggregation=aggregation.aircomp(10.0), learning_rate=0.05
    )
    state, trace = play(built, num_rounds=30)
    assert tiny.objective64(state.server.params, DATA) < 0.7 * tiny.objective64(tiny.PARAMS, DATA)
    assert np.asarray(trace.rounds.link.received_snr).shape == (30,)


@pytest.mark.parametrize(
    ("options", "rounds", "factor"),
    [
        ({"difference": central(), "learning_rate": 0.05}, 25, 0.7),
        ({"difference": jvp(), "learning_rate": 0.05}, 25, 0.7),
        ({"optimizer": optax.scale_by_adam(), "learning_rate": 0.05}, 25, 0.7),
        ({"optimizer": optax.scale_by_sign(), "learning_rate": 0.02}, 40, 0.8),
        ({"difference": signed(forward()), "aggregation": aggregation.majority(), "learning_rate": 0.03}, 40, 0.8),
        ({"directions": private(gaussian(), rng.seed_key(99)), "learning_rate": 0.05}, 25, 0.7),
    ],
    ids=["central", "jvp", "adam", "sign", "one_bit", "private"],
)
def test_variants_descend(options: dict[str, Any], rounds: int, factor: float) -> None:
    state, trace = play(algorithm(**options), num_rounds=rounds)
    assert tiny.objective64(state.server.params, DATA) < factor * tiny.objective64(tiny.PARAMS, DATA)
    if "aggregation" in options:
        assert set(np.unique(trace.rounds.record.history.scalars)) == {-1.0, 1.0}


def test_private_directions_are_others() -> None:
    key = rng.seed_key(1)
    plain = gaussian().sample(key, jnp.int32(0), tiny.PARAMS).raw
    shifted = private(gaussian(), rng.seed_key(99)).sample(key, jnp.int32(0), tiny.PARAMS).raw
    assert not np.isclose(tiny.flat(plain), tiny.flat(shifted), atol=1e-3).any()


def test_mezo_is_one_agent_and_descends() -> None:
    built = mezo(tiny.loss, 0.02, 1e-2, num_directions=2, batch_size=2)
    with pytest.raises(ValueError, match=r"num_clients=5.*one agent"):
        built.init(tiny.PARAMS, 5)
    one = tiny.client_data((6,))
    state, _ = simulate(rng.seed_key(0), built, built.init(tiny.PARAMS, 1), one, 60)
    assert tiny.objective64(state.server.params, one) < 0.5 * tiny.objective64(tiny.PARAMS, one)


def test_baffle_descends_with_its_own_optimiser() -> None:
    built = baffle(tiny.loss, 5e-2, 1e-2, num_directions=8, batch_size=2)
    state, trace = play(built, num_rounds=30)
    assert tiny.objective64(state.server.params, DATA) < 0.7 * tiny.objective64(tiny.PARAMS, DATA)
    assert trace.rounds.record.history.scalars.shape == (30, 1, 8)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"num_directions": 0}, "num_directions=0"),
        ({"local_steps": 0}, "local_steps=0"),
        ({"learning_rate": -1.0}, "learning_rate=-1.0"),
        ({"aggregation": aggregation.aircomp(0.0)}, "no channel gains"),
    ],
)
def test_wrong_settings_are_refused(settings: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        algorithm(**settings)


@pytest.mark.slow
def test_many_directions_of_a_large_model_fit() -> None:
    """The Fashion CNN with 200 directions and 10 clients in a round: memory of a few models per client, whatever P."""
    model, images = fashion_cnn(), {"image": np.zeros((20, 28, 28), np.float32), "label": np.zeros(20, np.int32)}
    data = ClientData.from_partition(images, list(np.arange(20).reshape(10, 2)))

    def loss(params: Any, batch: Any) -> jax.Array:
        return jax.nn.logsumexp(model.apply(params, batch["image"]), axis=-1)

    def temporaries(num_directions: int) -> int:
        built = decomfl(one_model_at_a_time(loss), 1e-3, 1e-3, 5, num_directions, 32, direction_chunk=1)
        state = built.init(model.init(jax.random.key(0)), 10)
        play = jax.jit(lambda state, data: simulate(rng.seed_key(0), built, state, data, 1)[0])
        analysis = play.lower(state, data).compile().memory_analysis()
        assert analysis is not None
        return analysis.temp_size_in_bytes

    few, many = temporaries(5), temporaries(200)
    assert many - few < 2**20
    assert many < 0.5 * 2**30
