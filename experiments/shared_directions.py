"""From a config to the algorithms whose clients share directions: DeComFL, MeZO and BAFFLE."""

import functools
import itertools
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax

from experiments import compression, schedule
from experiments.settings import Config
from zofed import checks, ledger
from zofed.algorithms import baffle, decomfl, mezo
from zofed.algorithms.decomfl import rule, start
from zofed.base import Algorithm, LossFn, Params, Record, State
from zofed.descent import Rule
from zofed.directions import LAWS
from zofed.estimators import DIFFERENCES, signed
from zofed.ledger import Costs

__all__ = [
    "NAMES",
    "PHASE_PREFIX",
    "WITH_MOMENTUM",
    "algorithm_of",
    "costs_of",
    "optimizer_of",
    "paper_costs_of",
    "rule_of",
]

NAMES = ("baffle", "decomfl", "mezo")

PHASE_PREFIX = "replayed_rounds_"
"""And the number of a phase: how many of its rounds participants replayed, recorded where there are several phases."""

OPTIMIZERS: dict[str, Callable[[float], optax.GradientTransformation]] = {
    "sgd": lambda momentum: optax.identity(),
    "momentum": lambda momentum: optax.ema(momentum, debias=False),
    "trace": optax.trace,
    "adam": lambda momentum: optax.scale_by_adam(),
    "sign": lambda momentum: optax.scale_by_sign(),
}
"""Optimisers of the shared gradient by the name that configs use.

`momentum` is (8)-(9) of DeComFL, m <- b m + (1 - b) g; `trace` is that of PyTorch, m <- b m + g, which its code has.
"""

WITH_MOMENTUM = ("momentum", "trace")
"""Those that use `algorithm.momentum`."""


def rule_of(config: Config) -> Rule:
    """What replay must know.

    Raises:
        ValueError: a setting is not allowed.
    """
    settings = config.algorithm
    checks.choice("algorithm.directions", settings.directions, LAWS)
    return rule(LAWS[settings.directions](), optimizer_of(config))


def optimizer_of(config: Config) -> optax.GradientTransformation:
    """The optimiser of a config's gradients, without a rate: the shared one of these algorithms, others' local one.

    Raises:
        ValueError: a setting is not allowed.
    """
    settings = config.algorithm
    checks.choice("algorithm.optimizer", settings.optimizer, OPTIMIZERS)
    if not 0 <= settings.momentum < 1:
        raise ValueError(f"algorithm.momentum={settings.momentum}; allowed: from 0 to below 1")
    checks.nonnegative("algorithm.weight_decay", settings.weight_decay)
    optimizer = OPTIMIZERS[settings.optimizer](settings.momentum)
    if settings.weight_decay:
        # Before the optimiser, as in PyTorch.
        optimizer = optax.chain(optax.add_decayed_weights(settings.weight_decay), optimizer)
    return optimizer


def algorithm_of(
    config: Config, loss: LossFn, smoothing: Any, direction_chunk: int | None, common: dict[str, Any]
) -> Algorithm:
    """The algorithm of a config.

    Args:
        config: of the study.
        loss: per-example losses.
        smoothing: may be traced.
        direction_chunk: directions held at once.
        common: what it shares with all algorithms, by keyword.

    Raises:
        ValueError: a setting is not allowed.
    """
    settings = config.algorithm
    if settings.per_sample:
        raise ValueError(f"algorithm.per_sample=True with algorithm.name={settings.name!r}; allowed: False")
    if settings.server_optimizer != "sgd":
        raise ValueError(
            f"algorithm.server_optimizer={settings.server_optimizer!r} with algorithm.name={settings.name!r}; allowed: "
            "'sgd', since clients and server share algorithm.optimizer"
        )
    if settings.name != "decomfl" and config.aggregation.name == "aircomp":
        raise ValueError(f"aggregation.name='aircomp' with algorithm.name={settings.name!r}; allowed: 'mean'")
    agreed = rule_of(config)
    checks.choice("algorithm.estimator", settings.estimator, DIFFERENCES)
    difference = DIFFERENCES[settings.estimator]()
    options = {
        **common,
        "smoothing": smoothing,
        "num_directions": settings.num_directions,
        "directions": agreed.directions,
        "difference": signed(difference) if config.aggregation.name == "majority" else difference,
        "optimizer": agreed.optimizer,
        "direction_chunk": direction_chunk,
    }
    if settings.name == "decomfl":
        max_lag = checks.count("algorithm.max_lag", settings.max_lag, at_least=-1)
        algorithm = decomfl(loss, max_lag=None if max_lag < 0 else max_lag, **options)
        return _counting_by_phase(config, algorithm)
    checks.count("algorithm.local_steps", options.pop("local_steps"), at_most=1, limit=settings.name)
    if settings.name == "baffle":
        return baffle(loss, **options)
    checks.count("num_clients", config.num_clients, at_most=1, limit="MeZO has one agent")
    return mezo(loss, **options)


def _counting_by_phase(config: Config, algorithm: Algorithm) -> Algorithm:
    """Counts replayed rounds by the phase that they were played in, too: there a round's entry has another size."""
    starts = [phase.first for phase in schedule.phases(config)]
    if len(starts) == 1:
        return algorithm

    def record(keys: Any, state: State, next_state: State, aggregate: Any, heard: jax.Array) -> Record:
        kept = algorithm.record(keys, state, next_state, aggregate, heard)
        before, after = state.memory.last_round, next_state.memory.last_round
        pulls = after - before > config.algorithm.max_lag if config.algorithm.max_lag >= 0 else jnp.bool_(False)
        for number, (first, end) in enumerate(itertools.pairwise([*starts, np.iinfo(np.int32).max])):
            own = jnp.clip(after, first, end) - jnp.clip(before, first, end)
            kept.counts[f"{PHASE_PREFIX}{number}"] = jnp.sum(jnp.where(pulls, 0, own))
        return kept

    return algorithm._replace(record=record)


def costs_of(config: Config, params: Params) -> Costs:
    """What a round's messages come to.

    Args:
        config: of the study.
        params: the model's shapes.
    """
    settings = config.algorithm
    counts = settings.local_steps, settings.num_directions
    if settings.name == "mezo":
        return ledger.one_agent()
    scalars = jax.ShapeDtypeStruct(counts, np.float32)
    if settings.name == "baffle":
        return compression.costs_of(config, ledger.scalars_up_model_down(params, settings.num_directions), scalars)
    # Who pulls the model needs the optimiser's state with it.
    model = jax.eval_shape(functools.partial(start, rule_of(config)), params)
    if config.aggregation.name == "aircomp":
        return ledger.shared_directions_over_the_air(model, *counts)
    bits = 1 if config.aggregation.name == "majority" else 32
    return compression.costs_of(config, ledger.shared_directions(model, *counts, bits=bits), scalars)


def paper_costs_of(config: Config) -> Costs:
    """DeComFL as its paper counts."""
    counts = config.algorithm.local_steps, config.algorithm.num_directions
    scalars = jax.ShapeDtypeStruct(counts, np.float32)
    return compression.costs_of(config, ledger.shared_directions_paper(*counts), scalars, ledger.compressed_paper)
