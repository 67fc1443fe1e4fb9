"""ZONE-S: primal-dual descent of one client at a time (Hajinezhad, Hong and Garcia, IEEE TAC 2019)."""

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import optax

from zofed import aggregation, checks, cohorts, estimators, rng
from zofed.algorithms.point_estimate import point_estimate
from zofed.base import Algorithm, Client, Cohort, LocalInfo, LossFn, Params, State, wide
from zofed.batches import Batching, replacement
from zofed.descent import Model, descend
from zofed.directions import Directions, gaussian
from zofed.estimators import Difference

__all__ = ["Server", "zone_s"]

_PLAIN = optax.identity()


class Server(NamedTuple):
    """What the server keeps.

    Attributes:
        params: x, on which all clients' copies agree but the chosen one's.
        multiplier: mean of the clients' Lagrange multipliers lambda_i of the constraints x_i = x.
    """

    params: Params
    multiplier: Params


def zone_s(
    loss_fn: LossFn,
    penalty: float | jax.Array,
    smoothing: float | jax.Array,
    num_estimates: int = 1,
    num_directions: int = 1,
    batch_size: int = 25,
    *,
    directions: Directions | None = None,
    difference: Difference | None = None,
    batching: Callable[[int], Batching] = replacement,
    direction_chunk: int | None = None,
) -> Algorithm:
    """ZONE-S with clients chosen uniformly, the law alpha_i = 1/N of FedZO's comparison (V-A).

    In a round one client i estimates G, the gradient of its loss at x, and with alpha = 1/N

        z_i = x - (lambda_i + G) / (alpha rho),   lambda_i <- lambda_i + alpha rho (z_i - x) = -G,
        x <- sum_j (rho z_j + lambda_j) / (N rho),   where z_j = x for j other than i, and lambda_j are those before.

    That is x - (lambda_i + G - mean_j lambda_j) / rho, which is what is computed: the client sends lambda_i + G and
    keeps lambda_i, the server keeps the mean of the lambda_j. It is SAGA with step 1 / rho, whose table is -lambda.

    Args:
        loss_fn: per-example losses; only its values are used.
        penalty: rho; may be traced. 500 in FedZO's comparison.
        smoothing: mu; may be traced.
        num_estimates: J, estimates averaged in G, each of its own batch and directions; in theory it grows with the
            number of rounds. 100 in the code of FedZO's authors.
        num_directions: of each estimate.
        batch_size: examples of each estimate.
        directions: default `zofed.directions.gaussian()`.
        difference: `zofed.estimators.forward()` (default), `central()` or `jvp()`.
        batching: `zofed.batches.replacement` or `epoch`.
        direction_chunk: directions held at once; None holds all.

    Raises:
        ValueError: a setting is out of range.

    Example:
        >>> from zofed import simulate, tasks
        >>> task = tasks.quadratic(dim=10, num_clients=4, heterogeneity=0.0)
        >>> algorithm = zone_s(task.loss, penalty=5.0, smoothing=1e-3, num_directions=10, batch_size=1)
        >>> params = task.init(jax.random.key(0))
        >>> state = algorithm.init(params, task.data.clients.num_clients)
        >>> state, trace = simulate(jax.random.key(0), algorithm, state, task.data.clients, num_rounds=100)
        >>> bool(task.loss_value(algorithm.params(state)) < 0.1 * task.loss_value(params))
        True
    """
    checks.positive("penalty", penalty)
    law = gaussian() if directions is None else directions
    estimate = point_estimate(
        estimators.estimator(loss_fn, law, num_directions, smoothing, difference, chunk=direction_chunk),
        batching(batch_size),
        num_estimates,
    )

    def init(params: Params, num_clients: int) -> State:
        checks.parameters(params)
        zeros = jax.tree.map(lambda leaf: jnp.zeros(leaf.shape, wide(leaf.dtype)), params)
        multipliers = jax.tree.map(lambda leaf: jnp.stack([leaf] * num_clients), zeros)
        return State(Server(params, zeros), multipliers, jnp.int32(0))

    def local(keys: rng.RoundKeys, server: Server, multiplier: Params, client: Client) -> tuple[Any, Any, LocalInfo]:
        gradient, info = estimate(keys, client, server.params)
        return jax.tree.map(jnp.add, multiplier, gradient), jax.tree.map(jnp.negative, gradient), info

    def server(keys: rng.RoundKeys, state: State, change: Params, cohort: Cohort) -> Server:
        del keys, cohort
        num_clients = jax.tree.leaves(state.memory)[0].shape[0]
        old = state.server
        slope = jax.tree.map(jnp.subtract, change, old.multiplier)
        rate = 1 / jnp.asarray(penalty, jnp.float32)
        moved = descend(_PLAIN, rate, slope, Model(old.params, _PLAIN.init(old.params)))
        # lambda_i became -G, by `change` less.
        mean = descend(_PLAIN, 1 / num_clients, change, Model(old.multiplier, _PLAIN.init(old.multiplier)))
        return Server(moved.params, mean.params)

    return Algorithm(
        init=init,
        local=local,
        server=server,
        params=lambda state: state.server.params,
        sample_cohort=cohorts.uniform(1),
        aggregation=aggregation.mean(),
    )
