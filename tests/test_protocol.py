"""Clients that rebuild from messages hold the server's model, whoever takes part when; the ledger counts bytes."""

import functools
from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests import tiny
from zofed import aggregation, cohorts, ledger, replay, rng, simulate
from zofed.algorithms.decomfl import decomfl, rule
from zofed.descent import Model
from zofed.directions import Directions, gaussian, private
from zofed.estimators import forward, signed
from zofed.messages import Reply, Request, Work
from zofed.protocol import Client, CompensatingClient, Plan, Server, play_round
from zofed.sequential import one_model_at_a_time

DATA = tiny.client_data()
NUM_CLIENTS, STEPS = DATA.num_clients, 2
SEED = rng.seed_key(7)
OPTIMIZERS = {"sgd": optax.identity(), "ema": optax.ema(0.6, debias=False), "adam": optax.scale_by_adam()}
ONE_BIT: dict[str, Any] = {"difference": signed(forward())}


@functools.cache
def law_of(secret: int | None) -> Directions:
    return gaussian() if secret is None else private(gaussian(), rng.seed_key(secret))


@functools.cache
def plan_of(name: str, bits: int = 32, secret: int | None = None, sequential: bool = False) -> Plan:
    law = law_of(secret)  # equal rules share their programs
    agreed = rule(law, OPTIMIZERS[name])

    def build(rate: Any, num_directions: int) -> Any:
        return decomfl(
            one_model_at_a_time(tiny.loss) if sequential else tiny.loss,
            rate,
            0.05,
            STEPS,
            num_directions,
            2,
            directions=law,
            optimizer=agreed.optimizer,
            **(ONE_BIT if bits == 1 else {}),
        )

    return Plan(build, agreed, tiny.PARAMS, STEPS, bits)


def rate_at(round: int) -> np.float32:
    return np.float32(0.05) / np.float32(1 + round // 3)


def directions_at(round: int) -> int:
    """A schedule: the number of directions doubles after four rounds."""
    return 2 if round < 4 else 4


def play(
    cohort_ids: Sequence[Sequence[int]],
    name: str = "ema",
    client_type: Any = Client,
    bits: int = 32,
    sequential: bool = False,
    directions: Callable[[int], int] = directions_at,
    **options: Any,
) -> tuple[Server, list[Any], list[Any]]:
    plan = plan_of(name, bits, sequential=sequential)
    link = aggregation.majority() if bits == 1 else aggregation.mean()
    server = Server(plan, link, **{"num_clients": NUM_CLIENTS, **options})
    clients = [client_type(id, DATA, SEED, plan) for id in range(NUM_CLIENTS)]
    traffic = []
    for round, ids in enumerate(cohort_ids):
        key = rng.round_keys(SEED, round).direction
        traffic.append(play_round(server, clients, ids, key, directions(round), rate_at(round)))
    return server, clients, traffic


def caught_up(server: Server, client: Any) -> Model:
    """The client's model after the messages it would get now."""
    request = client.request() if server.last_rounds is None else b""
    return client.catch_up(Work.from_bytes(server.work(client.id, np.zeros(2, np.uint32), 1, np.float32(1), request)))


def distance(model: Any, other: Any) -> float:
    return float(jnp.max(jnp.abs(tiny.flat(model.params) - tiny.flat(other.params))))


PATTERNS = st.lists(st.sets(st.integers(0, NUM_CLIENTS - 1), min_size=1).map(sorted), min_size=1, max_size=7)


@settings(max_examples=12)
@given(PATTERNS, st.sampled_from(sorted(OPTIMIZERS)), st.booleans())
def test_every_client_rebuilds_the_servers_model(pattern: list[list[int]], name: str, stateless: bool) -> None:
    """Bit for bit, optimiser state included, from its own last round on and from bytes alone."""
    directions = directions_at if name == "ema" else lambda _: 2  # one number is half of the programs
    server, clients, _ = play(pattern, name, directions=directions, num_clients=None if stateless else NUM_CLIENTS)
    wanted = replay.digest(server.model)
    for client in clients:
        assert replay.digest(caught_up(server, client)) == wanted


LONG = [[0, 1], [2], [1, 3], [4], [2, 3], [0], [1, 2]]
"""Lags of 0 to 5 rounds, over a change of rate and of the number of directions."""


class ReplaysLater(Server):
    """A mutant: from t_i + 1 on."""

    def first_round(self, client: int, request: bytes) -> int:
        return min(super().first_round(client, request) + (self.round > 0), self.round)


class KeepsTheOptimiser(Client):
    """A mutant: reverts the model and forgets the optimiser's state."""

    def revert(self, model: Model, work: Work, scalars: np.ndarray) -> Model:
        key = jax.random.wrap_key_data(jnp.asarray(work.key), impl="threefry2x32")
        after = self.plan.apply(key, scalars, jnp.int32(work.num_directions), work.rate, model)
        return Model(model.params, after.optimizer)


class IgnoresRates(Client):
    """A mutant: replays every round with the current round's rate (pitfall 17)."""

    def catch_up(self, work: Work) -> Model:
        rates = np.full_like(work.history.rate, work.rate)
        return super().catch_up(work._replace(history=work.history._replace(rate=rates)))


@pytest.mark.parametrize("mutant", [ReplaysLater, KeepsTheOptimiser, IgnoresRates])
def test_mutants_die(mutant: Any) -> None:
    sound, clients, _ = play(LONG)
    assert max(distance(caught_up(sound, client), sound.model) for client in clients) == 0.0

    plan = plan_of("ema")
    server_type, client_type = (mutant, Client) if issubclass(mutant, Server) else (Server, mutant)
    server = server_type(plan, aggregation.mean(), NUM_CLIENTS)
    clients = [client_type(id, DATA, SEED, plan) for id in range(NUM_CLIENTS)]
    for round, ids in enumerate(LONG):
        play_round(server, clients, ids, rng.round_keys(SEED, round).direction, directions_at(round), rate_at(round))
    assert max(distance(caught_up(server, client), server.model) for client in clients) > 1e-3


@pytest.mark.parametrize("sequential", [True, pytest.param(False, marks=pytest.mark.slow)])
def test_a_whole_run_is_the_fast_forms(sequential: bool) -> None:
    """Bit for bit, client by client, where models are evaluated one after another, and so in the same shapes.

    Else the two forms measure losses in programs whose sums XLA may order differently: eps |F| / smoothing =
    6e-8 * 10 / 0.05 in a scalar, and that is what each form steps along.
    """
    plan, sample = plan_of("ema", sequential=sequential), cohorts.uniform(2)

    def fast(num_directions: int, num_rounds: int, state: Any = None) -> Any:
        built = decomfl(
            one_model_at_a_time(tiny.loss) if sequential else tiny.loss,
            lambda round: jnp.asarray([rate_at(r) for r in range(8)])[round],
            0.05,
            STEPS,
            num_directions,
            2,
            optimizer=plan.rule.optimizer,
            sample_cohort=sample,
        )
        state = built.init(tiny.PARAMS, NUM_CLIENTS) if state is None else state
        return jax.jit(lambda state: simulate(SEED, built, state, DATA, num_rounds, client_chunk=1))(state)

    state, first = fast(2, 4)
    state, second = fast(4, 4, state)
    ids = [np.asarray(sample(rng.round_keys(SEED, r), NUM_CLIENTS).ids[:2]).tolist() for r in range(8)]
    server, _, _ = play(ids, sequential=sequential, num_clients=None)
    whole = replay.concatenate([first.rounds.record.history, second.rounds.record.history])
    if sequential:
        np.testing.assert_array_equal(server.history.scalars, whole.scalars)
        assert replay.digest(server.model) == replay.digest(state.server)
    np.testing.assert_allclose(server.history.scalars, whole.scalars, rtol=0, atol=2e-4)
    assert distance(server.model, state.server) < 1e-3
    for name in ("round", "key", "num_directions", "rate"):
        np.testing.assert_array_equal(getattr(server.history, name), getattr(whole, name), err_msg=name)


def test_the_server_needs_no_model() -> None:
    with_model, clients, _ = play(LONG)
    without, others, _ = play(LONG, holds_model=False)
    assert without.model is None
    digests = {replay.digest(caught_up(without, client)) for client in others}
    assert digests == {replay.digest(with_model.model)}


def test_the_history_is_bounded_by_the_client_that_lags_most() -> None:
    server, clients, _ = play(LONG)
    oldest = min(client.last_round for client in clients)
    assert oldest == 3
    assert server.history.round.tolist() == [3, 4, 5, 6]
    stateless, _, _ = play(LONG, num_clients=None)
    assert stateless.history.round.tolist() == list(range(7))


def test_a_client_that_lags_too_far_pulls_the_model() -> None:
    server, clients, _ = play(LONG, max_lag=3)
    work = Work.from_bytes(server.work(4, np.zeros(2, np.uint32), 1, np.float32(1)))
    assert work.model is not None
    assert len(work.history.round) == 0
    assert len(server.history.round) <= 3
    for client in clients:
        assert replay.digest(caught_up(server, client)) == replay.digest(server.model)
    with pytest.raises(ValueError, match="no model to pull"):
        Server(plan_of("ema"), aggregation.mean(), max_lag=3, holds_model=False)


def test_a_private_key_shift_hides_the_model_from_the_server_only() -> None:
    shifted, plain = plan_of("sgd", secret=5), plan_of("sgd")
    server = Server(plain, aggregation.mean(), NUM_CLIENTS)
    clients = [Client(id, DATA, SEED, shifted) for id in range(NUM_CLIENTS)]
    for round, ids in enumerate(LONG):
        play_round(server, clients, ids, rng.round_keys(SEED, round).direction, 2, rate_at(round))
    models = [caught_up(server, client) for client in clients]
    assert len({replay.digest(model) for model in models}) == 1
    assert distance(models[0], server.model) > 0.1
    assert tiny.objective64(models[0].params, DATA) < tiny.objective64(server.model.params, DATA)  # type: ignore[union-attr]


def test_clients_without_snapshots_drift_by_round_off_only() -> None:
    pattern = [[round % NUM_CLIENTS, (round + 1) % NUM_CLIENTS] for round in range(30)]
    server, clients, _ = play(pattern, "sgd", CompensatingClient)
    drifts = [distance(caught_up(server, client), server.model) for client in clients]
    assert 0 < max(drifts) < 1e-5
    with pytest.raises(ValueError, match="has a state"):
        CompensatingClient(0, DATA, SEED, plan_of("ema"))


def test_one_bit_scalars_rebuild_the_same_model() -> None:
    server, clients, traffic = play(LONG[:4], "sgd", bits=1)
    assert set(np.unique(server.history.scalars)) <= {-1.0, 1.0}
    for client in clients:
        assert replay.digest(caught_up(server, client)) == replay.digest(server.model)
    costs = ledger.shared_directions(tiny.PARAMS, STEPS, 2, bits=1)
    assert traffic[0].uplink == 2 * costs.per_participant.uplink_bytes


@settings(max_examples=10)
@given(PATTERNS.map(lambda pattern: pattern[:4]), st.sampled_from([None, 0, 2]))
def test_the_wire_ledger_counts_the_bytes_of_the_messages(pattern: list[list[int]], max_lag: int | None) -> None:
    server, _, traffic = play(pattern, max_lag=max_lag)
    costs = ledger.shared_directions(server.plan.start, STEPS, 2)
    last, lags = np.zeros(NUM_CLIENTS, int), []
    for round, ids in enumerate(pattern):
        lags.append(round - last[ids])
        last[ids] = round
    pulls = [[max_lag is not None and lag > max_lag for lag in own] for own in lags]
    replayed = [sum(lag for lag, pull in zip(*pair, strict=True) if not pull) for pair in zip(lags, pulls, strict=True)]
    counted = costs.over([len(ids) for ids in pattern], [1] * len(pattern), replayed, [sum(own) for own in pulls])
    np.testing.assert_array_equal(counted.uplink_bytes, np.cumsum([sent.uplink for sent in traffic]))
    np.testing.assert_array_equal(counted.downlink_bytes, np.cumsum([sent.downlink for sent in traffic]))


def work(count: int = 2, **changes: Any) -> Work:
    server, _, _ = play(LONG[:count], num_clients=None)
    message = Work.from_bytes(server.work(0, np.array([1, 2**32 - 1]), 3, np.float32(0.1), Request(0, 0).to_bytes()))
    return message._replace(**changes)


def test_messages_survive_their_bytes() -> None:
    sent = work(model=b"abc")
    received = Work.from_bytes(sent.to_bytes())
    assert received.key.tolist() == [1, 2**32 - 1]
    assert (received.round, received.num_directions, received.rate, received.model) == (2, 3, np.float32(0.1), b"abc")
    assert replay.digest(received.history) == replay.digest(sent.history)
    reply = Reply(5, 3, np.array([[1.5, -2.0]], np.float32))
    assert replay.digest(Reply.from_bytes(reply.to_bytes())) == replay.digest(reply)
    assert Request.from_bytes(Request(3, 9).to_bytes()) == (3, 9)


@pytest.mark.parametrize("cut", [lambda data: data[:-1], lambda data: data + b"x", lambda data: data[:7]])
def test_cut_messages_are_refused(cut: Any) -> None:
    messages = [work(), Reply(5, 3, np.ones((1, 2), np.float32)), Request(3, 9)]
    for message in messages:
        with pytest.raises(ValueError, match=f"a {type(message).__name__} of .* bytes"):
            type(message).from_bytes(cut(message.to_bytes()))


def test_scalars_that_do_not_fit_their_bits_are_refused() -> None:
    with pytest.raises(ValueError, match="all are signs"):
        Reply(0, 0, np.array([[0.5]], np.float32), bits=1).to_bytes()
    with pytest.raises(ValueError, match="allowed: float32"):
        Reply(0, 0, np.array([[0.5]]), bits=32).to_bytes()
