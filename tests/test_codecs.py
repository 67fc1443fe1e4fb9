"""Codecs against what they promise: unbiased, exact on the grid, the largest entries, nothing lost with feedback."""

import functools
from typing import Any

import chex
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from tests import tiny
from zofed import aggregation, codecs, cohorts, decomfl, ledger, rng, simulate
from zofed.base import dimension
from zofed.codecs import Codec, compressed, quantize, top_k

PAYLOAD: Any = {
    "a": jnp.asarray(np.random.default_rng(0).standard_normal((4, 7)), jnp.float32),
    "b": [jnp.float32(0.3), jnp.full(3, -2.0), jnp.asarray(np.random.default_rng(1).standard_normal(50) * 1e-3)],
}
DIM = dimension(PAYLOAD)
CLIENT = tiny.client_data().client(jnp.int32(3))


def everything(values: Any) -> Any:
    return jax.tree.map(lambda leaf: jnp.ones(leaf.shape, bool), values)


def encoded(codec: Codec, values: Any, seed: int = 0) -> Any:
    return _encode(codec)(seed, values)


@functools.cache
def _encode(codec: Codec) -> Any:
    return jax.jit(lambda seed, values: codec.encode(rng.seed_key(seed), values, everything(values))[0])


def steps(values: Any, bits: int) -> Any:
    """The step of each leaf's grid, float64."""
    width = jax.tree.map(lambda leaf: float(np.max(leaf)) - float(np.min(leaf)), values)
    return jax.tree.map(lambda own: own / (2**bits - 1), width)


@pytest.mark.parametrize("bits", [1, 3, 8])
def test_stochastic_rounding_is_unbiased(bits: int) -> None:
    """The mean of 4,000 draws within five of its standard deviations, f (1 - f) step^2 / 4,000, entry by entry."""
    draws = 4000
    keys = jax.vmap(lambda number: rng.fold(rng.seed_key(0), number))(jnp.arange(draws, dtype=jnp.uint32))
    drawn = jax.jit(jax.vmap(lambda key: quantize(bits).encode(key, PAYLOAD, everything(PAYLOAD))[0]))(keys)
    for leaf, own, step in zip(*map(jax.tree.leaves, (PAYLOAD, drawn, steps(PAYLOAD, bits))), strict=True):
        exact, mean = np.asarray(leaf, np.float64), np.asarray(own, np.float64).mean(axis=0)
        share = np.mod((exact - exact.min()) / step, 1) if step else np.zeros_like(exact)
        deviation = np.sqrt(share * (1 - share) / draws) * step
        # Where 4,000 draws hardly ever go to the other neighbour, one that does is many deviations.
        assert (np.abs(mean - exact) <= 5 * deviation + 5 * step / draws + 1e-6 * np.abs(exact).max()).all()


@pytest.mark.parametrize("bits", [1, 2, 8, 16])
@pytest.mark.parametrize("stochastic", [True, False])
def test_what_lies_on_the_grid_stays_bit_for_bit(bits: int, stochastic: bool) -> None:
    levels = np.linspace(0, 2**bits - 1, min(2**bits, 512)).round()
    grid = {"up": jnp.float32(0.25 * levels), "down": jnp.float32(-levels[::-1]), "constant": jnp.full(3, 0.1)}
    codec = quantize(bits, stochastic)
    for seed in range(5):
        chex.assert_trees_all_equal(encoded(codec, grid, seed), grid)


@pytest.mark.parametrize("bits", [1, 5, 8])
def test_rounding_goes_to_a_neighbour_and_without_chance_to_the_nearest(bits: int) -> None:
    """Against float64, up to round-off: 1e-6 of the leaf's largest entry."""
    chance, nearest = encoded(quantize(bits), PAYLOAD), encoded(quantize(bits, stochastic=False), PAYLOAD)
    for leaf, near, drawn, step in zip(
        *map(jax.tree.leaves, (PAYLOAD, nearest, chance, steps(PAYLOAD, bits))), strict=True
    ):
        exact, tolerance = np.asarray(leaf, np.float64), 1e-6 * np.abs(leaf).max()
        assert (np.abs(drawn - exact) <= step + tolerance).all()
        expected = exact.min() + np.round((exact - exact.min()) / (step or 1)) * step
        np.testing.assert_allclose(near, expected, rtol=0, atol=tolerance)


def test_draws_are_the_codec_streams_own_for_each_round_and_client() -> None:
    rule = compressed(aggregation.mean(), quantize(2))

    def sent(round: int, client: int) -> np.ndarray:
        return tiny.flat64(_encode_all(rule)(PAYLOAD, (), round, jnp.int32(client))[0])

    np.testing.assert_array_equal(sent(2, 1), sent(2, 1))
    assert (sent(2, 1) != sent(2, 0)).sum() > 5
    assert (sent(2, 1) != sent(1, 1)).sum() > 5


@pytest.mark.parametrize("fraction", [1e-9, 0.1, 0.5, 1.0])
def test_the_largest_magnitudes_of_all_leaves_are_sent(fraction: float) -> None:
    """As a stable sort has them: of equal ones, three -2.0, the first; a whole number of entries, rounded up."""
    exact = tiny.flat64(PAYLOAD)
    count = max(1, int(np.ceil(fraction * DIM)))
    largest = np.argsort(-np.abs(exact), kind="stable")[:count]
    expected = np.zeros(DIM)
    expected[largest] = exact[largest]
    np.testing.assert_array_equal(tiny.flat64(encoded(top_k(fraction), PAYLOAD)), expected)


def test_ties_are_broken_by_place() -> None:
    ties = [jnp.array([1.0, -2.0, 0.0]), jnp.array([[2.0, -2.0], [1.0, 2.0]])]
    sent = encoded(top_k(3 / 7), ties)
    chex.assert_trees_all_equal(sent, [jnp.array([0.0, -2.0, 0.0]), jnp.array([[2.0, -2.0], [0.0, 0.0]])])
    assert [codecs.num_kept(share, 10) for share in (0.3, 0.31, 1e-3)] == [3, 4, 1]


def test_a_grid_after_top_k_is_of_the_kept_entries() -> None:
    values = jnp.array([0.1, 5.0, -0.2, 9.0, 6.9, 0.3])
    sent = encode_all(compressed(aggregation.mean(), top_k(0.5), quantize(1, stochastic=False)), values, ())[0]
    np.testing.assert_array_equal(sent, [0, 5, 0, 9, 5, 0])


def encode_all(rule: aggregation.Aggregation, payload: Any, memory: Any, round: int = 0) -> Any:
    return _encode_all(rule)(payload, memory, round, CLIENT.id)


@functools.cache
def _encode_all(rule: aggregation.Aggregation) -> Any:
    def encode(payload: Any, memory: Any, round: Any, client: Any) -> Any:
        return rule.encode(rng.round_keys(rng.seed_key(0), round), CLIENT._replace(id=client), payload, memory)

    return jax.jit(encode)


@pytest.mark.parametrize("names", [("top_k",), ("quantize",), ("top_k", "quantize")])
def test_error_feedback_loses_nothing(names: tuple[str, ...]) -> None:
    """Each round, sent + kept = payload + kept before: exactly for top-k, else within a rounding of each entry."""
    made = {"top_k": top_k(0.1), "quantize": quantize(4)}
    rule = compressed(aggregation.mean(), *(made[name] for name in names), error_feedback=True)
    memory, total, sent_total = rule.init(PAYLOAD), np.zeros(DIM), np.zeros(DIM)
    for round in range(12):
        payload = jax.tree.map(lambda leaf, round=round: leaf * np.float32(1 + round), PAYLOAD)
        message, kept = encode_all(rule, payload, memory, round)
        whole = tiny.flat64(jax.tree.map(jnp.add, payload, memory))
        error = np.abs(tiny.flat64(message) + tiny.flat64(kept) - whole)
        assert (error == 0).all() if names == ("top_k",) else (error <= 2**-23 * np.abs(whole).max()).all()
        total, sent_total, memory = total + tiny.flat64(payload), sent_total + tiny.flat64(message), kept
    # Twelve roundings of sums of up to 12 times 13 / 2 of an entry.
    np.testing.assert_allclose(sent_total + tiny.flat64(memory), total, rtol=0, atol=12 * 2**-24 * np.abs(total).max())
    assert np.abs(sent_total).max() > 0


def test_memory_is_wider_than_a_low_precision_payload() -> None:
    rule = compressed(aggregation.mean(), quantize(8), error_feedback=True)
    payload = {"low": jnp.linspace(0, 1, 9, dtype=jnp.bfloat16)}
    message, kept = encode_all(rule, payload, rule.init(payload))
    assert (message["low"].dtype, kept["low"].dtype) == (jnp.bfloat16, jnp.float32)
    np.testing.assert_array_equal(tiny.flat64(message) + tiny.flat64(kept), tiny.flat64(payload))


@pytest.mark.parametrize("codec", [top_k(1e-9), quantize(8), quantize(1, stochastic=False)])
@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
def test_a_number_that_is_not_finite_is_sent(codec: Codec, value: float) -> None:
    """So that the client is masked out, and its memory left, by `simulate`: it never stays behind in memory."""
    for count in (1, 20):
        bad = {**PAYLOAD, "a": PAYLOAD["a"].ravel().at[:count].set(value)}
        assert not np.isfinite(tiny.flat64(encoded(codec, bad))).all()


def serialised(values: np.ndarray, sizes: list[int], fraction: float, bits: int) -> bytes:
    """What the ledger counts, written out: places, then grids and levels, or numbers as they are."""
    places = np.sort(np.argsort(-np.abs(values), kind="stable")[: codecs.num_kept(fraction, len(values))])
    taken = np.zeros(len(values), bool)
    taken[places] = True
    parts = []
    if fraction < 1:
        parts.append(min((places.astype("<u4").tobytes(), np.packbits(taken).tobytes()), key=len))
    if bits == 32:
        return b"".join([*parts, values[taken].astype("<f4").tobytes()])
    numbers = []
    for leaf, own in zip(np.split(values, np.cumsum(sizes)[:-1]), np.split(taken, np.cumsum(sizes)[:-1]), strict=True):
        least, most = (leaf[own].min(), leaf[own].max()) if own.any() else (0.0, 0.0)
        step = (most - least) / (2**bits - 1)
        parts.append(np.array([least, step], "<f4").tobytes())
        numbers.append(np.round((leaf[own] - least) / (step or 1)).astype(np.uint32))
    binary = (np.concatenate(numbers)[:, None] >> np.arange(bits)) & 1
    return b"".join([*parts, np.packbits(binary.astype(np.uint8).ravel()).tobytes()])


@pytest.mark.parametrize("fraction", [1.0, 0.25, 0.02])
@pytest.mark.parametrize("bits", [32, 8, 3])
def test_the_ledger_counts_what_a_message_serialises_to(fraction: float, bits: int) -> None:
    sizes = [leaf.size for leaf in jax.tree.leaves(PAYLOAD)]
    written = serialised(tiny.flat64(PAYLOAD), sizes, fraction, bits)
    full = ledger.model_exchange(PAYLOAD)
    own = ledger.compressed(full, PAYLOAD, fraction, bits).per_participant
    assert own.uplink_bytes == len(written)
    assert (own.downlink_bytes, own.uplink_scalars) == (4 * DIM, codecs.num_kept(fraction, DIM))
    paper = ledger.compressed_paper(full, PAYLOAD, fraction, bits).per_participant
    assert paper.uplink_bytes == int(np.ceil(codecs.num_kept(fraction, DIM) * bits / 8))


def test_the_papers_account_of_figures_3_and_6() -> None:
    """FedCom sends 0.25 d and the largest 10% are 0.1 d, in numbers of 4 bytes."""
    model = {"all": np.zeros(1_206_590, np.float32)}
    full = ledger.model_exchange(model)
    for fraction, bits, share in ((1.0, 8, 0.25), (0.1, 32, 0.1), (0.01, 32, 0.01)):
        sent = ledger.compressed_paper(full, model, fraction, bits).per_participant.uplink_bytes / 4
        assert sent == pytest.approx(share * 1_206_590, abs=1)


def test_scalars_of_shared_directions_are_a_payload_too() -> None:
    """DeComFL of one client: of 16 scalars the history has 4, on a grid of 4 levels, and the model descends."""
    rule = compressed(aggregation.mean(), top_k(0.25), quantize(2), error_feedback=True)
    algorithm = decomfl(tiny.loss, 0.02, 0.1, local_steps=2, num_directions=8, batch_size=3, aggregation=rule)
    data = tiny.client_data(sizes=(3,), apart=0.0)
    run = jax.jit(lambda state: simulate(rng.seed_key(0), algorithm, state, data, 60))
    state, trace = run(algorithm.init(tiny.PARAMS, 1))
    scalars = np.asarray(trace.rounds.record.history.scalars)
    assert ((scalars != 0).sum(axis=(1, 2)) == 4).all()
    assert state.memory.codec.shape == (1, 2, 8)
    assert np.abs(state.memory.codec).max() > 0
    assert tiny.objective64(state.server.params, data) < 0.5 * tiny.objective64(tiny.PARAMS, data)
    shape = jax.ShapeDtypeStruct((2, 8), jnp.float32)
    costs = ledger.shared_directions(tiny.PARAMS, 2, 8)
    assert costs.per_participant.uplink_bytes - 16 * 4 + 2 + 8 + 1 == (
        ledger.compressed(costs, shape, 0.25, 2).per_participant.uplink_bytes
    )


def test_top_k_over_the_air_is_aircomp_of_what_is_kept() -> None:
    link = aggregation.aircomp(jnp.inf)
    rule = compressed(link, top_k(0.1))
    message, _ = encode_all(rule, PAYLOAD, ())
    assert (np.count_nonzero(tiny.flat64(message)), rule.needs_gain) == (codecs.num_kept(0.1, DIM), True)

    @jax.jit
    def through(message: Any) -> Any:
        keys = rng.round_keys(rng.seed_key(0), 0)
        cohort = cohorts.gain_threshold(0.5)(keys, 5)
        return rule.receive(keys, rule.lift(message, jnp.complex64(1)), jnp.float32(1), cohort)[0]

    chex.assert_trees_all_close(through(message), message)


def traced_fraction() -> Any:
    return jax.jit(lambda fraction: encoded(top_k(fraction), PAYLOAD))(0.1)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: quantize(0), "aggregation.bits=0; allowed: an integer from 1 to 16"),
        (lambda: quantize(17), "aggregation.bits=17"),
        (lambda: top_k(0.0), "aggregation.fraction=0.0"),
        (lambda: top_k(1.5), "aggregation.fraction=1.5; allowed: above 0, at most 1"),
        (traced_fraction, "aggregation.fraction is traced"),
        (lambda: compressed(aggregation.mean()), "compressed without a codec"),
        (lambda: compressed(compressed(aggregation.mean(), top_k(0.1)), quantize()), "compresses already"),
        (
            lambda: compressed(aggregation.aircomp(0.0), top_k(0.1), quantize(8)),
            "aggregation.name='aircomp' with aggregation.bits=8",
        ),
        (
            lambda: compressed(aggregation.majority(), quantize(1), top_k(0.5), error_feedback=True),
            "aggregation.name='majority' with aggregation.fraction=0.5: an entry that nobody sends",
        ),
    ],
)
def test_what_has_no_meaning_is_refused(make: Any, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        make()
