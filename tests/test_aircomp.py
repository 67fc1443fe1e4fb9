"""AirComp against its signals, (14)-(17) of FedZO in float64, and against its closed forms."""

import chex
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from zofed import aggregation, channels, cohorts, fedzo, rng, simulate, tasks
from zofed.base import Cohort
from zofed.rng import RoundKeys

DIM, SLOTS, H_MIN = 7, 4, 0.8


def keys_of(round: int) -> RoundKeys:
    return rng.round_keys(rng.seed_key(3), round)


def messages_and_gains() -> tuple[np.ndarray, np.ndarray]:
    generator = np.random.default_rng(0)
    messages = generator.normal(size=(SLOTS, DIM)) * np.array([[0.1], [1.0], [0.5], [2.0]])
    gains = (0.8 + generator.exponential(size=SLOTS)) * np.exp(1j * generator.uniform(0, 2 * np.pi, SLOTS))
    return messages, gains


def received(
    air: aggregation.Aggregation, messages: np.ndarray, gains: np.ndarray, keys: RoundKeys
) -> tuple[jax.Array, aggregation.AirCompInfo]:
    """What the server makes of messages sent over these gains."""
    lifted = [air.lift(jnp.float32(m), jnp.complex64(h)) for m, h in zip(messages, gains, strict=True)]
    total = lifted[0]
    for other in lifted[1:]:
        total = air.merge(total, other)
    cohort = Cohort(jnp.arange(SLOTS), SLOTS, jnp.asarray(gains, jnp.complex64), jnp.float32(H_MIN))
    return air.receive(keys, total, jnp.float32(len(messages)), cohort)


@pytest.mark.parametrize("snr_db", [-10.0, 0.0, 20.0])
def test_equals_precoded_signals_superposed_in_the_channel(snr_db: float) -> None:
    messages, gains = messages_and_gains()
    keys = keys_of(5)
    result, info = received(aggregation.aircomp(snr_db), messages, gains, keys)

    noise_power = 0.3  # sigma_w^2: any value gives the same update at a given SNR
    power = noise_power * 10 ** (snr_db / 10)
    delta_max = np.max(np.sum(messages**2, axis=1))
    alpha = H_MIN / gains * np.sqrt(DIM * power / delta_max)  # (15)
    sent = alpha[:, None] * messages
    unit_noise = np.float64(aggregation._unit_noise(keys, jnp.zeros(DIM)))
    noise = np.sqrt(noise_power) * unit_noise  # real, of the whole variance
    signal = np.sum(gains[:, None] * sent, axis=0)
    at_server = signal + noise  # (14)
    update = np.sqrt(delta_max / (DIM * power * H_MIN**2)) / SLOTS * at_server  # (17)
    np.testing.assert_allclose(result, update.real, rtol=0, atol=2e-6 * np.abs(update).max())
    assert np.abs(update.imag).max() < 1e-12

    energy = np.sum(np.abs(sent) ** 2, axis=1) / (DIM * power)
    assert energy.max() <= 1 + 1e-12  # ||alpha_i Delta_i||^2 <= dP
    np.testing.assert_allclose(info.transmit_energy, energy.mean(), rtol=1e-5)
    np.testing.assert_allclose(info.peak_transmit_energy, energy.max(), rtol=1e-5)
    snr_received = np.sum(np.abs(signal) ** 2) / (DIM * noise_power)
    np.testing.assert_allclose(info.received_snr, snr_received, rtol=1e-5)


@pytest.mark.parametrize(("noise", "share"), [("full", 1.0), ("real_part", 0.5)])
def test_noise_energy_is_delta_max_over_count_squared_gamma(noise: str, share: float) -> None:
    messages, gains = messages_and_gains()
    snr_db, repeats = -5.0, 4000
    air = aggregation.aircomp(snr_db, noise)
    exact = messages.mean(axis=0)

    def noise_energy(round: jax.Array) -> jax.Array:
        update, _ = received(air, messages, gains, rng.round_keys(rng.seed_key(0), round))
        return jnp.sum(jnp.square(update - jnp.float32(exact)))

    energies = np.float64(jax.jit(jax.vmap(noise_energy))(jnp.arange(repeats)))
    gamma = 10 ** (snr_db / 10) * H_MIN**2
    expected = share * np.max(np.sum(messages**2, axis=1)) / (SLOTS**2 * gamma)
    five_deviations = 5 * np.sqrt(2 / (DIM * repeats))
    np.testing.assert_allclose(energies.mean(), expected, rtol=five_deviations)


def test_received_snr_counts_the_noise_that_is_added() -> None:
    messages, gains = messages_and_gains()
    full, half, code = (
        received(aggregation.aircomp(0.0, noise, variant), messages, gains, keys_of(1))[1].received_snr
        for noise, variant in (("full", "paper"), ("real_part", "paper"), ("full", "authors_code"))
    )
    np.testing.assert_allclose(half, 2 * full, rtol=1e-5)
    np.testing.assert_allclose(code, full * np.abs(gains).min() / H_MIN**2, rtol=1e-5)


def test_authors_code_has_the_smallest_gain_in_place_of_the_squared_threshold() -> None:
    messages, gains = messages_and_gains()
    keys, exact = keys_of(1), np.float32(messages.mean(axis=0))
    paper = received(aggregation.aircomp(0.0), messages, gains, keys)[0] - exact
    code = received(aggregation.aircomp(0.0, variant="authors_code"), messages, gains, keys)[0] - exact
    expected = np.sqrt(H_MIN**2 / np.abs(gains).min())
    np.testing.assert_allclose(code / paper, expected, rtol=1e-3)


@pytest.mark.parametrize("mean_square_gain", [1.0, 0.5])
def test_participation_probability_of_a_rayleigh_channel(mean_square_gain: float) -> None:
    sample = cohorts.gain_threshold(H_MIN, channels.rayleigh(mean_square_gain))
    cohort = jax.jit(sample, static_argnums=1)(keys_of(0), 40_000)
    probability = np.exp(-(H_MIN**2) / mean_square_gain)  # 0.527 for CN(0, 1), 0.278 for the authors' code
    deviation = np.sqrt(probability * (1 - probability) / 40_000)
    assert abs(int(cohort.count) / 40_000 - probability) < 5 * deviation
    assert cohort.gain is not None
    count, moduli = int(cohort.count), np.abs(cohort.gain)
    assert moduli[:count].min() >= np.float32(H_MIN) > moduli[count:].max()
    np.testing.assert_array_equal(np.sort(cohort.ids), np.arange(40_000))
    assert (np.diff(cohort.ids[:count]) > 0).all()
    np.testing.assert_allclose(np.mean(moduli**2), mean_square_gain, rtol=0.03)


def test_gains_belong_to_the_client_not_to_the_number_of_clients() -> None:
    few, many = (cohorts.gain_threshold(1e-6)(keys_of(2), n) for n in (3, 30))
    assert few.gain is not None
    assert many.gain is not None
    np.testing.assert_array_equal(few.gain, many.gain[:3])
    other_round = cohorts.gain_threshold(1e-6)(keys_of(3), 3)
    assert other_round.gain is not None
    assert (np.asarray(other_round.gain) != np.asarray(few.gain)).all()


def play(air: aggregation.Aggregation, threshold: float = 1.2, rounds: int = 12):
    task = tasks.quadratic(dim=10, num_clients=6)
    algorithm = fedzo(
        task.loss,
        0.1,
        1e-2,
        local_steps=2,
        num_directions=3,
        batch_size=1,
        sample_cohort=cohorts.gain_threshold(threshold),
        aggregation=air,
    )
    state = algorithm.init(task.init(rng.seed_key(0)), 6)
    run = jax.jit(
        lambda state, clients: simulate(
            rng.seed_key(1), algorithm, state, clients, rounds, lambda params: params, client_chunk=1
        )
    )
    state, trace = run(state, task.data.clients)
    return algorithm.params(state), trace


def test_without_noise_it_is_fedzo_with_the_same_participants_bit_for_bit() -> None:
    params, trace = play(aggregation.aircomp(np.inf))
    expected, expected_trace = play(aggregation.mean())
    np.testing.assert_array_equal(params, expected)
    np.testing.assert_array_equal(trace.rounds.cohort_size, expected_trace.rounds.cohort_size)
    noisy, _ = play(aggregation.aircomp(0.0))
    assert (np.asarray(noisy) != np.asarray(expected)).any()


def test_an_empty_cohort_leaves_the_model_and_is_counted() -> None:
    _, trace = play(aggregation.aircomp(-10.0), threshold=1.6)
    sizes, models = np.asarray(trace.rounds.cohort_size), np.asarray(trace.evaluations)
    empty = np.flatnonzero(sizes[1:] == 0) + 1
    assert 0 < empty.size < sizes.size - 1
    np.testing.assert_array_equal(models[empty], models[empty - 1])
    heard = np.flatnonzero(sizes[1:] > 0) + 1
    assert (models[heard] != models[heard - 1]).any(axis=1).all()
    chex.assert_tree_all_finite(trace.rounds)
    np.testing.assert_array_equal(trace.rounds.link.transmit_energy[empty], 0)


def test_absent_devices_cost_no_forward_passes() -> None:
    calls = []
    task = tasks.quadratic(dim=3, num_clients=8)

    def counted(params, batch):
        jax.debug.callback(lambda: calls.append(1))
        return task.loss(params, batch)

    algorithm = fedzo(counted, 0.1, 1e-2, 1, num_directions=1, batch_size=1, sample_cohort=cohorts.gain_threshold(1.0))
    state = algorithm.init(jnp.zeros(3), 8)
    _, trace = simulate(rng.seed_key(0), algorithm, state, task.data.clients, 4, client_chunk=1)
    jax.effects_barrier()
    participants = int(trace.rounds.cohort_size.sum())
    assert 0 < participants < 4 * 8
    assert len(calls) == 2 * participants  # the base point and one direction


def test_wrong_settings_are_named() -> None:
    with pytest.raises(ValueError, match=r"no channel gains; allowed: sample_cohort=zofed.cohorts.gain_threshold"):
        fedzo(lambda x, batch: x, 0.1, 0.1, 1, aggregation=aggregation.aircomp(0.0))
    with pytest.raises(ValueError, match=r"channel.snr_db=nan; allowed: a finite number or inf"):
        aggregation.aircomp(float("nan"))
    with pytest.raises(ValueError, match=r"channel.noise='white'; allowed: 'full', 'real_part'"):
        aggregation.aircomp(0.0, noise="white")
    with pytest.raises(ValueError, match="gain_threshold=-1; allowed: a finite number > 0"):
        cohorts.gain_threshold(-1)
