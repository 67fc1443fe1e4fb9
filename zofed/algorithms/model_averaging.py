"""Local steps and a mean of model updates: what FedZO and FedAvg share. They differ in the gradient only."""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import optax

from zofed import aggregation as aggregations
from zofed import checks, cohorts, rng
from zofed.aggregation import Aggregation
from zofed.base import Algorithm, Client, Cohort, LocalInfo, Params, State, wide
from zofed.batches import Batching
from zofed.cohorts import SampleCohort
from zofed.descent import Model, descend
from zofed.rng import RoundKeys

__all__ = ["Gradient", "model_averaging"]

Gradient = Callable[[Callable[[jax.Array], jax.Array], Params, Any], tuple[Params, LocalInfo]]
"""`(direction_key, params, batch) -> (gradient, info)`; `direction_key(number)` is the key of a direction."""


def model_averaging(
    gradient: Gradient,
    batching: Batching,
    learning_rate: checks.Rate,
    local_steps: int,
    sample_cohort: SampleCohort | None = None,
    aggregation: Aggregation | None = None,
    local_optimizer: optax.GradientTransformation | None = None,
    server_optimizer: optax.GradientTransformation | None = None,
    server_learning_rate: checks.Rate = 1.0,
) -> Algorithm:
    """FedZO's Algorithm 1 with any gradient: local steps (5)-(6), update Delta_i, mean (13), x + Delta.

    Args:
        gradient: gradient of a batch.
        batching: for instance `zofed.batches.replacement(25)`.
        learning_rate: eta, a number (may be traced) or a schedule round -> number.
        local_steps: H.
        sample_cohort: default `zofed.cohorts.full()`.
        aggregation: default `zofed.aggregation.mean()`; the payload is Delta_i = x_i^(t,H) - x_i^(t,0).
        local_optimizer: an optax transformation without its own rate; starts anew in each round. Default: none.
        server_optimizer: likewise, over -Delta, kept between rounds. Default: none, x + Delta.
        server_learning_rate: rate of the server's step.
    """
    checks.rate("learning_rate", learning_rate)
    checks.rate("server_learning_rate", server_learning_rate)
    local_steps = checks.count("local_steps", local_steps)
    aggregation = aggregations.mean() if aggregation is None else aggregation
    sample_cohort = cohorts.full() if sample_cohort is None else sample_cohort
    aggregations.check_gain(aggregation, sample_cohort)
    local_optimizer = optax.identity() if local_optimizer is None else local_optimizer
    server_optimizer = optax.identity() if server_optimizer is None else server_optimizer

    def init(params: Params, num_clients: int) -> State:
        checks.parameters(params)
        memory = jax.tree.map(lambda leaf: jnp.stack([leaf] * num_clients), aggregation.init(params))
        return State(Model(params, server_optimizer.init(params)), memory, jnp.int32(0))

    def local(keys: RoundKeys, server: Model, memory: Any, client: Client) -> tuple[Any, Any, LocalInfo]:
        rate = checks.rate_at(learning_rate, keys.round)

        def step(model: Model, number: jax.Array) -> tuple[Model, LocalInfo]:
            batch = batching(keys, number, local_steps, client)
            direction_key = rng.direction_keys(keys.direction, number, client.id)
            step_gradient, info = gradient(direction_key, model.params, batch)
            return descend(local_optimizer, rate, step_gradient, model), info

        # A gradient is wider than a low-precision model, and so is what the optimiser keeps of it.
        like_gradient = jax.tree.map(lambda leaf: leaf.astype(wide(leaf.dtype)), server.params)
        start = Model(server.params, local_optimizer.init(like_gradient))
        steps = jnp.arange(local_steps, dtype=jnp.int32)
        end, infos = jax.lax.scan(step, start, steps)
        update = jax.tree.map(jnp.subtract, end.params, server.params)
        message, memory = aggregation.encode(keys, client, update, memory)
        return message, memory, jax.tree.map(jnp.mean, infos)

    def server(keys: RoundKeys, state: State, aggregate: Params, cohort: Cohort) -> Model:
        del cohort
        rate = checks.rate_at(server_learning_rate, keys.round)
        pseudo_gradient = jax.tree.map(jnp.negative, aggregate)
        return descend(server_optimizer, rate, pseudo_gradient, state.server)

    return Algorithm(
        init=init,
        local=local,
        server=server,
        params=lambda state: state.server.params,
        sample_cohort=sample_cohort,
        aggregation=aggregation,
    )
