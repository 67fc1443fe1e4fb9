"""DeComFL: clients share directions, so only scalars travel (Li et al., ICLR 2025, Algorithms 3 and 4)."""

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import optax

from zofed import aggregation as aggregations
from zofed import checks, cohorts, estimators, rng
from zofed.aggregation import Aggregation
from zofed.base import Algorithm, Client, Cohort, LocalInfo, LossFn, Params, Record, State, wide
from zofed.batches import Batching, replacement
from zofed.cohorts import SampleCohort
from zofed.descent import Model, Rule, apply, descend
from zofed.directions import Directions, gaussian
from zofed.estimators import Difference
from zofed.replay import History
from zofed.rng import RoundKeys

__all__ = ["Memory", "decomfl", "rule", "start"]


class Memory(NamedTuple):
    """What is kept of a client between rounds; of its model, only which one it is.

    Attributes:
        last_round: t_i, the round it took part in last and whose model, from before that round, it holds; 0 at first.
        codec: what the aggregation's `encode` keeps.
    """

    last_round: jax.Array
    codec: Any


def rule(directions: Directions | None = None, optimizer: optax.GradientTransformation | None = None) -> Rule:
    """What server, clients and replay of a run agree on: by default Gaussian directions and plain descent."""
    directions = gaussian() if directions is None else directions
    return Rule(directions, optax.identity() if optimizer is None else optimizer)


def start(rule: Rule, params: Params) -> Model:
    """The model that a run starts from. A gradient is wider than a low-precision model, and so is the optimiser."""
    return Model(params, rule.optimizer.init(jax.tree.map(lambda leaf: leaf.astype(wide(leaf.dtype)), params)))


def decomfl(
    loss_fn: LossFn,
    learning_rate: checks.Rate,
    smoothing: float | jax.Array,
    local_steps: int = 1,
    num_directions: int = 5,
    batch_size: int = 32,
    *,
    directions: Directions | None = None,
    difference: Difference | None = None,
    optimizer: optax.GradientTransformation | None = None,
    sample_cohort: SampleCohort | None = None,
    aggregation: Aggregation | None = None,
    batching: Callable[[int], Batching] = replacement,
    direction_chunk: int | None = None,
    max_lag: int | jax.Array | None = None,
) -> Algorithm:
    """DeComFL in its fast form: one global model, which is what every client would hold after rebuilding.

    `zofed.protocol` is the form with a model per client and messages; given the same keys and scalars both hold the
    same bits. num_directions may change between calls of `simulate`: the state does not depend on it, so a schedule is
    one call per phase (the alternative, masking a static maximum, would pay for it in every round).

    Args:
        loss_fn: per-example losses; only its values are used, unless difference is `jvp()`.
        learning_rate: eta, a number (may be traced) or a schedule round -> number; used and recorded in float32.
        smoothing: mu.
        local_steps: K.
        num_directions: P.
        batch_size: examples per local step.
        directions: default `zofed.directions.gaussian()`.
        difference: `zofed.estimators.forward()` (default, the paper), `central()` or `jvp()` (Algorithm 5).
        optimizer: an optax transformation without its own rate, such as `optax.ema(0.5, debias=False)`, which is
            (8)-(9). Local steps start from the server's state of it and are reverted with it.
        sample_cohort: default `zofed.cohorts.full()`.
        aggregation: default `zofed.aggregation.mean()`; the payload is the scalars, [local_steps, num_directions].
        batching: `zofed.batches.replacement` or `epoch`.
        direction_chunk: directions that a local step holds at once; None holds all, 1 keeps memory at O(dim).
        max_lag: a client that missed more rounds pulls the model instead of their scalars (B.3). None: nobody does.
            It changes what travels, not the model.

    Raises:
        ValueError: a setting is out of range.

    Example:
        >>> from zofed import simulate, tasks
        >>> task = tasks.quadratic(dim=10, num_clients=4, heterogeneity=0.0)
        >>> algorithm = decomfl(task.loss, 0.1, 1e-3, num_directions=10, batch_size=1)
        >>> params = task.init(jax.random.key(0))
        >>> state = algorithm.init(params, task.data.clients.num_clients)
        >>> state, trace = simulate(jax.random.key(0), algorithm, state, task.data.clients, num_rounds=60)
        >>> bool(task.loss_value(algorithm.params(state)) < 0.1 * task.loss_value(params))
        True
        >>> trace.rounds.record.history.scalars.shape  # all that is needed to rebuild the model
        (60, 1, 10)
    """
    checks.rate("learning_rate", learning_rate)
    local_steps = checks.count("local_steps", local_steps)
    num_directions = checks.count("num_directions", num_directions)
    agreed = rule(directions, optimizer)
    estimate = estimators.estimator(
        loss_fn, agreed.directions, num_directions, smoothing, difference, chunk=direction_chunk
    )
    aggregation = aggregations.mean() if aggregation is None else aggregation
    sample_cohort = cohorts.full() if sample_cohort is None else sample_cohort
    aggregations.check_gain(aggregation, sample_cohort)
    draw_batch = batching(batch_size)

    def rate_of(keys: RoundKeys) -> jax.Array:
        return jnp.asarray(checks.rate_at(learning_rate, keys.round), jnp.float32)

    def init(params: Params, num_clients: int) -> State:
        scalars = jnp.zeros((local_steps, num_directions), _scalar_dtype(params))
        codec = jax.tree.map(lambda leaf: jnp.stack([leaf] * num_clients), aggregation.init(scalars))
        return State(start(agreed, params), Memory(jnp.zeros(num_clients, jnp.int32), codec), jnp.int32(0))

    def local(keys: RoundKeys, server: Model, memory: Memory, client: Client) -> tuple[Any, Memory, LocalInfo]:
        def measure(step: int | jax.Array, params: Params) -> tuple[Params, tuple[jax.Array, LocalInfo]]:
            batch = draw_batch(keys, jnp.asarray(step, jnp.int32), local_steps, client)
            result = estimate(rng.direction_keys(keys.direction, step), params, batch)
            zeros = jnp.mean((result.scalars == 0).astype(jnp.float32))
            return result.gradient, (result.scalars, LocalInfo(result.loss, zeros))

        def step(carry: tuple[Model, Params], number: jax.Array) -> Any:
            model, gradient = carry
            model = descend(agreed.optimizer, rate_of(keys), gradient, model)
            gradient, measured = measure(number, model.params)
            return (model, gradient), measured

        # The first step stands outside of the scan: all clients hold one model there, so that a vmap over them draws
        # each direction once and makes one batch of theirs. The last step moves no model: it would be reverted.
        gradient, first = measure(0, server.params)
        measured = jax.tree.map(lambda leaf: leaf[None], first)
        if local_steps > 1:
            later_steps = jnp.arange(1, local_steps, dtype=jnp.int32)
            _, later = jax.lax.scan(step, (server, gradient), later_steps)
            measured = jax.tree.map(lambda head, tail: jnp.concatenate([head, tail]), measured, later)
        scalars, infos = measured
        message, codec = aggregation.encode(keys, client, scalars, memory.codec)
        return message, Memory(keys.round, codec), jax.tree.map(jnp.mean, infos)

    def server(keys: RoundKeys, state: State, aggregate: jax.Array, cohort: Cohort) -> Model:
        del cohort
        return apply(agreed, keys.direction, aggregate, jnp.int32(num_directions), rate_of(keys), state.server)

    def record(keys: RoundKeys, state: State, next_state: State, aggregate: jax.Array, heard: jax.Array) -> Record:
        lags = next_state.memory.last_round - state.memory.last_round
        pulls = jnp.zeros(lags.shape, bool) if max_lag is None else lags > max_lag
        counts = {"replayed_rounds": jnp.sum(jnp.where(pulls, 0, lags)), "pulled_models": jnp.sum(pulls)}
        directions = jnp.where(heard, num_directions, 0)
        key = jax.random.key_data(keys.direction)
        return Record(counts, History(keys.round, key, aggregate, directions, rate_of(keys)))

    return Algorithm(
        init=init,
        local=local,
        server=server,
        params=lambda state: state.server.params,
        sample_cohort=sample_cohort,
        aggregation=aggregation,
        record=record,
    )


def _scalar_dtype(params: Params) -> Any:
    return jnp.result_type(*(wide(leaf.dtype) for leaf in jax.tree.leaves(params)))
