"""DZOPA: peers on a graph, no server (Yi, Zhang, Yang and Johansson, Automatica 142, 2022, second algorithm)."""

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import optax
from jax.core import Tracer

from zofed import aggregation as aggregations
from zofed import checks, cohorts, estimators, graphs, rng
from zofed.aggregation import Aggregation
from zofed.algorithms.point_estimate import point_estimate
from zofed.base import Algorithm, Client, Cohort, LocalInfo, LossFn, Params, State, wide
from zofed.batches import Batching, replacement
from zofed.descent import Model, descend
from zofed.directions import Directions, sphere
from zofed.estimators import Difference

__all__ = ["Peers", "dzopa"]

_PLAIN = optax.identity()


class Peers(NamedTuple):
    """What the graph mixes; no server holds it, a simulation does.

    Attributes:
        params: mean of the peers' models, where the run is evaluated.
        models: every peer's model x_i, with a leading axis of peers.
    """

    params: Params
    models: Params


class _Rows(NamedTuple):
    """Models by peer, zero where none was heard, and which were: 1 or 0. A message has one row."""

    models: Params
    heard: jax.Array


def dzopa(
    loss_fn: LossFn,
    learning_rate: checks.Rate,
    smoothing: float | jax.Array,
    consensus_rate: float | jax.Array = 0.01,
    laplacian: np.ndarray | None = None,
    num_estimates: int = 1,
    num_directions: int = 20,
    batch_size: int = 25,
    *,
    directions: Directions | None = None,
    difference: Difference | None = None,
    batching: Callable[[int], Batching] = replacement,
    direction_chunk: int | None = None,
) -> Algorithm:
    """x_i <- x_i - gamma sum_j L_ij x_j - eta g_i, with g_i the mini-batch estimate (II-B) of FedZO at x_i.

    Args:
        loss_fn: per-example losses; only its values are used.
        learning_rate: eta, a number (may be traced) or a schedule round -> number; 0.005 in FedZO's comparison.
        smoothing: mu.
        consensus_rate: gamma; the peers agree only if gamma times the largest eigenvalue of L is below 2. 0.01 in the
            code of FedZO's authors.
        laplacian: L of the graph, [num_clients, num_clients], see `zofed.graphs`. None: all are linked to all.
        num_estimates: estimates averaged in g_i, each of its own batch and directions; 5 in that code.
        num_directions: b2; 1 in DZOPA's paper, which has two-point estimates.
        batch_size: b1.
        directions: default the unit sphere.
        difference: `zofed.estimators.forward()` (default), `central()` or `jvp()`.
        batching: `zofed.batches.replacement` or `epoch`.
        direction_chunk: directions held at once; None holds all.

    Raises:
        ValueError: a setting is out of range, or the graph is not what it must be (`zofed.graphs.check_laplacian`).

    Example:
        >>> from zofed import graphs, simulate, tasks
        >>> task = tasks.quadratic(dim=10, num_clients=4, heterogeneity=0.0)
        >>> algorithm = dzopa(task.loss, 0.1, 1e-3, 0.2, graphs.ring(4), num_directions=10, batch_size=1)
        >>> params = task.init(jax.random.key(0))
        >>> state = algorithm.init(params, task.data.clients.num_clients)
        >>> state, trace = simulate(jax.random.key(0), algorithm, state, task.data.clients, num_rounds=80)
        >>> bool(task.loss_value(algorithm.params(state)) < 0.1 * task.loss_value(params))
        True
        >>> state.server.models.shape
        (4, 10)
    """
    checks.rate("learning_rate", learning_rate)
    checks.positive("consensus_rate", consensus_rate)
    if laplacian is not None:
        _check_stable(consensus_rate, laplacian)
    estimate = point_estimate(
        estimators.estimator(
            loss_fn,
            sphere() if directions is None else directions,
            num_directions,
            smoothing,
            difference,
            chunk=direction_chunk,
        ),
        batching(batch_size),
        num_estimates,
    )

    def graph(num_clients: int) -> np.ndarray:
        return graphs.complete(num_clients) if laplacian is None else np.asarray(laplacian)

    def init(params: Params, num_clients: int) -> State:
        checks.parameters(params)
        if graph(num_clients).shape[0] != num_clients:
            raise ValueError(
                f"laplacian of {graph(num_clients).shape[0]} clients; allowed: num_clients={num_clients} of them"
            )
        _check_stable(consensus_rate, graph(num_clients))
        models = jax.tree.map(lambda leaf: jnp.stack([leaf] * num_clients), params)
        return State(Peers(params, models), (), jnp.int32(0))

    def local(keys: rng.RoundKeys, peers: Peers, memory: Any, client: Client) -> tuple[Any, Any, LocalInfo]:
        own = jax.tree.map(lambda leaf: leaf[client.id], peers.models)
        gradient, info = estimate(keys, client, own)
        num_clients = jax.tree.leaves(peers.models)[0].shape[0]
        links = jnp.asarray(graph(num_clients), jnp.float32)[client.id]
        apart = _weighted_sum(links, peers.models)
        agreed = descend(_PLAIN, consensus_rate, apart, Model(own, _PLAIN.init(own)))
        moved = descend(_PLAIN, checks.rate_at(learning_rate, keys.round), gradient, agreed)
        row = lambda leaf, new: jnp.zeros_like(leaf).at[client.id].set(new)  # noqa: E731
        heard = (jnp.arange(num_clients) == client.id).astype(jnp.int32)
        return _Rows(jax.tree.map(row, peers.models, moved.params), heard), memory, info

    def server(keys: rng.RoundKeys, state: State, rows: _Rows, cohort: Cohort) -> Peers:
        del keys, cohort
        num_clients = rows.heard.shape[0]

        def kept(new: jax.Array, old: jax.Array) -> jax.Array:
            return jnp.where(rows.heard.reshape(-1, *[1] * (new.ndim - 1)) > 0, new, old)

        models = jax.tree.map(kept, rows.models, state.server.models)
        mean = _weighted_sum(jnp.full(num_clients, 1 / num_clients, jnp.float32), models)
        return Peers(jax.tree.map(lambda leaf, like: leaf.astype(like.dtype), mean, state.server.params), models)

    return Algorithm(
        init=init,
        local=local,
        server=server,
        params=lambda state: state.server.params,
        sample_cohort=cohorts.full(),
        aggregation=_as_sent(),
    )


def _check_stable(consensus_rate: Any, laplacian: np.ndarray) -> None:
    largest = graphs.check_laplacian(laplacian)
    if not isinstance(consensus_rate, Tracer) and largest > 0 and not consensus_rate * largest < 2:
        raise ValueError(
            f"consensus_rate={consensus_rate}; allowed: below {2 / largest:.6g}, which is 2 over the largest "
            "eigenvalue of the graph's Laplacian: the peers would drift apart"
        )


def _weighted_sum(weights: jax.Array, models: Params) -> Params:
    """sum_j weights[j] models[j] in float32 or wider, in one order of additions: the same bits in every program."""

    def plus(total: Params, term: tuple[jax.Array, Params]) -> tuple[Params, None]:
        weight, model = term

        def added(rounded: Callable[[jax.Array], jax.Array]) -> Params:
            step = lambda sum_, leaf: sum_ + rounded(weight.astype(sum_.dtype) * leaf.astype(sum_.dtype))  # noqa: E731
            return jax.tree.map(step, total, model)

        return rng.materialise_rounded(added), None

    zeros = jax.tree.map(lambda leaf: jnp.zeros(leaf.shape[1:], wide(leaf.dtype)), models)
    return jax.lax.scan(plus, zeros, (weights, models))[0]


def _as_sent() -> Aggregation:
    """The sum of what the peers send: rows of one table."""

    def receive(keys: rng.RoundKeys, total: _Rows, count: jax.Array, cohort: Cohort) -> tuple[_Rows, Any]:
        del keys, count, cohort
        return total, ()

    return aggregations.mean()._replace(receive=receive)
