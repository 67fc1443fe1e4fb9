"""One cell of a sweep as two pure functions: start a run, play its next rounds."""

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax.sharding import Mesh

from zofed import rng
from zofed.base import Algorithm, Params, State
from zofed.simulate import Trace, simulate

__all__ = ["Cell", "Record", "federated", "initial_params"]

Record = dict[str, Any]
"""What is kept of a run at one evaluation: scalars by name; and the rounds' history, where the algorithm keeps one."""

Settings = Mapping[str, jax.Array]
"""The traced settings of a cell by name; `seed` is always among them."""


class Cell(NamedTuple):
    """A run in pieces. Data is an argument, never captured; every number of `settings` may be traced.

    Attributes:
        start: `(settings, data) -> (state, record)`, the initial model and its evaluation.
        advance: `(state, settings, data) -> (state, record)`, some rounds and the evaluation after them.
    """

    start: Callable[[Settings, Any], tuple[State, Record]]
    advance: Callable[[State, Settings, Any], tuple[State, Record]]


def federated(
    init: Callable[[jax.Array], Params],
    evaluate: Callable[[Params, Any], Record],
    algorithm: Callable[[Settings], Algorithm],
    eval_every: int,
    client_chunk: int | None = None,
    mesh: Mesh | None = None,
) -> Cell:
    """A federated run. Its record is what `evaluate` returns and, after the start, the rounds since in short.

    The latter are `participants` and `nonfinite`, summed over the rounds; `empty_rounds` without a participant;
    `lost_rounds`, in which nobody's result was finite; the means over the participants of what they report, such as
    `batch_loss` and `zero_differences`; and the means over the rounds that had a participant of what the link reports.
    Of an algorithm that keeps a `zofed.base.Record`: its counts, summed, and as `history` that of these rounds.

    Args:
        init: `key -> params`, as in `zofed.tasks.Task`.
        evaluate: `(params, data) -> scalars`, as there.
        algorithm: builds the algorithm from the traced settings.
        eval_every: rounds between evaluations.
        client_chunk: as for `zofed.simulate`.
        mesh: as for `zofed.simulate`.
    """

    def start(settings: Settings, data: Any) -> tuple[State, Record]:
        params = initial_params(init, settings["seed"])
        state = algorithm(settings).init(params, data.clients.num_clients)
        return state, evaluate(params, data)

    def advance(state: State, settings: Settings, data: Any) -> tuple[State, Record]:
        state, trace = simulate(
            rng.seed_key(settings["seed"]),
            algorithm(settings),
            state,
            data.clients,
            eval_every,
            lambda params: evaluate(params, data),
            eval_every,
            client_chunk,
            mesh,
        )
        return state, _record(trace)

    return Cell(start, advance)


def initial_params(init: Callable[[jax.Array], Params], seed: jax.Array) -> Params:
    """The model that a run starts from, the same bits in a sweep and alone."""
    return rng.materialise(lambda: init(rng.init_key(rng.seed_key(seed))))


def _record(trace: Trace) -> Record:
    rounds = trace.rounds
    heard = rounds.cohort_size - rounds.nonfinite
    weights = heard.astype(jnp.float32)

    def mean(reported: jax.Array) -> jax.Array:
        return jnp.where(jnp.any(heard > 0), jnp.sum(weights * reported) / jnp.sum(weights), jnp.nan)

    def mean_of_heard(reported: jax.Array) -> jax.Array:
        played = (heard > 0).astype(jnp.float32)
        total = jnp.sum(jnp.where(heard > 0, reported, jnp.zeros_like(reported)))
        return jnp.where(jnp.any(heard > 0), total / jnp.sum(played), jnp.nan)

    local = {name: mean(value) for name, value in rounds.local._asdict().items()}
    local["batch_loss"] = local.pop("loss")
    link = rounds.link._asdict() if rounds.link else {}
    kept = {}
    if rounds.record:
        kept = {name: jnp.sum(values) for name, values in rounds.record.counts.items()}
        kept["history"] = rounds.record.history
    return {
        **kept,
        **{name: values[-1] for name, values in trace.evaluations.items()},
        **local,
        **{name: mean_of_heard(value) for name, value in link.items()},
        "participants": jnp.sum(rounds.cohort_size),
        "empty_rounds": jnp.sum((rounds.cohort_size == 0).astype(jnp.int32)),
        "nonfinite": jnp.sum(rounds.nonfinite),
        "lost_rounds": jnp.sum((heard == 0) & (rounds.cohort_size > 0)).astype(jnp.int32),
    }
