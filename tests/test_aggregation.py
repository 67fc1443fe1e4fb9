"""Aggregations: what each must be, one row each, and the mean against its closed form."""

from collections.abc import Callable
from typing import Any

import chex
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from zofed import ClientData, aggregation, cohorts, fedavg, rng, simulate
from zofed.aggregation import Aggregation
from zofed.base import Cohort

KEYS = rng.round_keys(rng.seed_key(0), 2)
ROWS: dict[str, Callable[[], Aggregation]] = {
    "mean": aggregation.mean,
    # Over a channel of no noise: the mean again.
    "aircomp": lambda: aggregation.aircomp(jnp.inf),
}


def messages(count: int) -> list[Any]:
    generator = np.random.default_rng(count)
    return [
        {"a": jnp.float32(generator.standard_normal()), "b": [jnp.float32(generator.standard_normal((2, 3)))]}
        for _ in range(count)
    ]


def received(rule: Aggregation, sent: list[Any], order: Any = None) -> Any:
    """What the server gets of these messages, each over the gain of its place."""
    order = range(len(sent)) if order is None else order
    gains = [jnp.complex64(1 + 1j * place) for place in range(len(sent))]
    total = jax.tree.map(jnp.zeros_like, rule.lift(sent[0], gains[0]))
    for place in order:
        total = rule.merge(total, rule.lift(sent[place], gains[place]))
    cohort = Cohort(jnp.arange(len(sent), dtype=jnp.int32), len(sent), jnp.stack(gains), jnp.float32(1))
    aggregate, _ = rule.receive(KEYS, total, jnp.float32(len(sent)), cohort)
    return aggregate


@pytest.mark.parametrize("name", ROWS)
def test_equal_messages_come_through(name: str) -> None:
    (message,) = messages(1)
    chex.assert_trees_all_close(received(ROWS[name](), [message] * 3), message, rtol=1e-6)


@pytest.mark.parametrize("name", ROWS)
def test_every_message_weighs_the_same_in_any_order(name: str) -> None:
    sent = messages(4)
    expected = jax.tree.map(lambda *leaves: np.mean(np.asarray(leaves, np.float64), axis=0), *sent)
    for order in ([0, 1, 2, 3], [2, 0, 3, 1]):
        chex.assert_trees_all_close(
            jax.tree.map(np.float64, received(ROWS[name](), sent, order)), expected, atol=1e-6, rtol=0
        )


@pytest.mark.parametrize("name", ROWS)
def test_shapes_and_dtypes_come_through(name: str) -> None:
    sent = [{"a": jnp.ones((), jnp.bfloat16), "b": jnp.ones(3, jnp.float16), "c": jnp.ones((2, 2))}] * 2
    chex.assert_trees_all_equal_shapes_and_dtypes(received(ROWS[name](), sent), sent[0])


@pytest.mark.parametrize("name", ROWS)
def test_a_map_over_runs_is_each_run(name: str) -> None:
    pairs = [messages(2), messages(3)[:2]]
    stacked = jax.tree.map(lambda *leaves: jnp.stack(leaves), *pairs)
    mapped = jax.vmap(lambda sent: received(ROWS[name](), sent))(stacked)
    for lane, pair in enumerate(pairs):
        own = jax.tree.map(lambda leaf, lane=lane: leaf[lane], mapped)
        chex.assert_trees_all_close(own, received(ROWS[name](), pair), atol=1e-6)


CENTRES, SIZES, RATE, START = np.array([1.0, 2.0, -4.0]), (1, 2, 9), 0.25, 0.5


def one_step(sample_cohort: cohorts.SampleCohort | None, num_rounds: int = 1) -> np.ndarray:
    """FedAvg with one local step; a client's samples are all equal, so its step is exact: rate (centre - x)."""
    owner = np.repeat(np.arange(3), SIZES)
    data = ClientData.from_partition(np.float32(CENTRES[owner]), [np.flatnonzero(owner == i) for i in range(3)])
    loss = lambda x, batch: 0.5 * jnp.square(x - batch)  # noqa: E731
    algorithm = fedavg(loss, RATE, local_steps=1, batch_size=2, sample_cohort=sample_cohort)
    run = jax.jit(lambda state: simulate(rng.seed_key(1), algorithm, state, data, num_rounds, lambda x: x))
    return np.asarray(run(algorithm.init(jnp.float32(START), 3))[1].evaluations)


def test_mean_of_all_clients_ignores_their_sizes() -> None:
    expected = START + RATE * (CENTRES.mean() - START)
    by_size = START + RATE * (np.average(CENTRES, weights=SIZES) - START)
    assert abs(expected - by_size) > 0.5
    assert one_step(None) == pytest.approx(expected, abs=1e-6)


def test_mean_of_a_uniform_cohort_weighs_its_members_equally() -> None:
    """x' = x + rate (mean of the cohort's centres - x), each round with the cohort that was drawn."""
    rounds, sample = 6, cohorts.uniform(2)
    trajectory, x = one_step(sample, rounds), START
    for round in range(rounds):
        ids = np.asarray(sample(rng.round_keys(rng.seed_key(1), round), 3).ids)
        x = x + RATE * (CENTRES[ids].mean() - x)
        assert trajectory[round] == pytest.approx(x, abs=1e-6)
