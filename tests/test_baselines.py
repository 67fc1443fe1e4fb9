"""DZOPA and ZONE-S against their definitions in numpy and float64, their graphs, refusals and costs."""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from tests import tiny
from zofed import Algorithm, ClientData, batches, directions, dzopa, graphs, ledger, rng, simulate, zone_s
from zofed.directions import Directions

CLIENTS, ROUNDS = len(tiny.SIZES), 6
SMOOTHING, ESTIMATES, NUM_DIRECTIONS, BATCH = 0.5, 2, 3, 2
COUNTS: dict[str, Any] = {"num_estimates": ESTIMATES, "num_directions": NUM_DIRECTIONS, "batch_size": BATCH}
DATA, KEY = tiny.client_data(), rng.seed_key(3)


def estimates(law: Directions) -> Callable[[int, int, np.ndarray], np.ndarray]:
    """`(round, client, x) -> gradient`: the mean of two-point estimates with the run's own batches and directions."""

    @jax.jit
    def inputs(round: jax.Array, client_id: jax.Array) -> Any:
        keys, client = rng.round_keys(KEY, round), DATA.client(client_id)
        draw = lambda step: batches.replacement(BATCH)(keys, step, ESTIMATES, client)  # noqa: E731

        def direction(step: jax.Array, number: jax.Array) -> jax.Array:
            drawn = law.sample(rng.direction_keys(keys.direction, step, client_id)(number), number, tiny.PARAMS)
            return drawn.factor * tiny.flat(drawn.raw)

        steps, numbers = jnp.arange(ESTIMATES, dtype=jnp.int32), jnp.arange(NUM_DIRECTIONS, dtype=jnp.int32)
        rows = jax.vmap(lambda step: jax.vmap(lambda number: direction(step, number))(numbers))(steps)
        return jax.vmap(draw)(steps), rows

    def gradient(round: int, client_id: int, x: np.ndarray) -> np.ndarray:
        batch, rows = (np.asarray(leaf, np.float64) for leaf in inputs(jnp.int32(round), jnp.int32(client_id)))
        terms = []
        for step in range(ESTIMATES):
            for v in rows[step]:
                above, base = (tiny.loss64(point, batch[step]).mean() for point in (x + SMOOTHING * v, x))
                terms.append(law.scale(tiny.DIM) * (above - base) / SMOOTHING * v)
        return np.mean(terms, axis=0)

    return gradient


def play(algorithm: Algorithm, data: ClientData = DATA) -> tuple[Any, np.ndarray]:
    """The last state and [ROUNDS, d], the models after each round."""
    run = jax.jit(lambda state, data: simulate(KEY, algorithm, state, data, ROUNDS, evaluate=tiny.flat))
    state, trace = run(algorithm.init(tiny.PARAMS, CLIENTS), data)
    return state, np.asarray(trace.evaluations)


def test_zone_s_is_the_papers_and_saga_with_step_one_over_rho() -> None:
    rho, gradient = 8.0, estimates(directions.gaussian())
    algorithm = zone_s(tiny.loss, rho, SMOOTHING, **COUNTS)
    _, models = play(algorithm)
    chosen = [int(algorithm.sample_cohort(rng.round_keys(KEY, round), CLIENTS).ids[0]) for round in range(ROUNDS)]
    assert len(set(chosen)) < ROUNDS  # a client that comes again has a multiplier

    x = saga = tiny.flat64(tiny.PARAMS)
    multipliers, table, alpha = np.zeros((CLIENTS, tiny.DIM)), np.zeros((CLIENTS, tiny.DIM)), 1 / CLIENTS
    for round, client in enumerate(chosen):
        estimate = gradient(round, client, x)
        z, old = np.tile(x, (CLIENTS, 1)), multipliers.copy()
        z[client] = x - (multipliers[client] + estimate) / (alpha * rho)
        multipliers[client] += alpha * rho * (z[client] - x)
        x = (rho * z + old).sum(axis=0) / (CLIENTS * rho)

        estimate = gradient(round, client, saga)
        saga = saga - (estimate - table[client] + table.mean(axis=0)) / rho
        table[client] = estimate
        np.testing.assert_allclose(saga, x, rtol=0, atol=1e-12)
        np.testing.assert_allclose(models[round], x, rtol=0, atol=1e-5)
    assert np.abs(x - tiny.flat64(tiny.PARAMS)).max() > 0.1


@pytest.mark.parametrize("graph", ["complete", "ring"])
def test_dzopa_mixes_the_models_of_its_graph(graph: str) -> None:
    rate, consensus_rate, gradient = 0.05, 0.15, estimates(directions.sphere())
    laplacian = graphs.GRAPHS[graph](CLIENTS)
    given = None if graph == "complete" else laplacian
    algorithm = dzopa(tiny.loss, rate, SMOOTHING, consensus_rate, given, **COUNTS)
    state, means = play(algorithm)
    models = np.tile(tiny.flat64(tiny.PARAMS), (CLIENTS, 1))
    for round in range(ROUNDS):
        estimate = np.stack([gradient(round, client, models[client]) for client in range(CLIENTS)])
        models = models - consensus_rate * laplacian @ models - rate * estimate
        np.testing.assert_allclose(means[round], models.mean(axis=0), rtol=0, atol=1e-5)
    np.testing.assert_allclose(jax.vmap(tiny.flat)(state.server.models), models, rtol=0, atol=1e-5)
    assert np.ptp(models, axis=0).max() > 0.1


def test_a_peer_that_is_not_heard_keeps_its_model() -> None:
    owner = np.repeat(np.arange(CLIENTS), tiny.SIZES)
    samples = jnp.where(jnp.asarray(owner == 2)[:, None], jnp.nan, DATA.samples)
    poisoned = ClientData(samples, DATA.offsets, DATA.sizes, DATA.max_size)
    state, _ = play(dzopa(tiny.loss, 0.05, SMOOTHING, 0.15, **COUNTS), poisoned)
    moved = np.abs(np.asarray(jax.vmap(tiny.flat)(state.server.models)) - tiny.flat64(tiny.PARAMS)).max(axis=1)
    assert (moved > 0.01).tolist() == [True, True, False, True, True]


def test_eigenvalues_of_graphs() -> None:
    assert graphs.check_laplacian(graphs.complete(7)) == pytest.approx(7)
    assert graphs.check_laplacian(graphs.ring(8)) == pytest.approx(4)
    assert graphs.check_laplacian(graphs.ring(2)) == graphs.check_laplacian(graphs.complete(2)) == pytest.approx(2)


PATH = np.array([[1.0, -1.0, 0.0], [-1.0, 2.0, -1.0], [0.0, -1.0, 1.0]])


@pytest.mark.parametrize(
    ("laplacian", "message"),
    [
        (np.zeros((2, 3)), r"shape \(2, 3\)"),
        (PATH * np.nan, "not finite"),
        (np.triu(PATH), "not symmetric"),
        (PATH + np.eye(3), "do not sum to 0"),
        (-PATH, "positive entries off its diagonal"),
        (np.kron(np.eye(2), graphs.complete(2)), "not connected"),
        (PATH * 200, "consensus_rate=0.01; allowed: below 0.00333333"),
    ],
)
def test_bad_graphs_are_named(laplacian: np.ndarray, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        dzopa(tiny.loss, 0.1, 0.1, laplacian=laplacian)


def test_a_graph_must_fit_the_clients() -> None:
    with pytest.raises(ValueError, match="laplacian of 3 clients; allowed: num_clients=5"):
        dzopa(tiny.loss, 0.1, 0.1, laplacian=PATH).init(tiny.PARAMS, 5)
    with pytest.raises(ValueError, match=r"consensus_rate=0\.4; allowed: below 0\.4,"):
        dzopa(tiny.loss, 0.1, 0.1, 0.4).init(tiny.PARAMS, 5)
    with pytest.raises(ValueError, match="penalty=0; allowed: a finite number > 0"):
        zone_s(tiny.loss, 0, 0.1)


def test_peers_send_their_models_along_every_link_both_ways() -> None:
    dim = tiny.DIM
    complete = ledger.peer_to_peer(tiny.PARAMS, graphs.complete(CLIENTS)).over([0, CLIENTS], [0, 1])
    assert complete.uplink_scalars[-1] == complete.downlink_scalars[-1] == CLIENTS * (CLIENTS - 1) * dim
    assert complete.uplink_bytes[-1] == 4 * CLIENTS * (CLIENTS - 1) * dim
    assert complete.uplink_channel_uses[-1] == CLIENTS * dim  # a broadcast reaches all neighbours
    ring = ledger.peer_to_peer(tiny.PARAMS, graphs.ring(CLIENTS)).over([CLIENTS] * 3, [1] * 3)
    assert ring.downlink_scalars.tolist() == [2 * CLIENTS * dim, 4 * CLIENTS * dim, 6 * CLIENTS * dim]
