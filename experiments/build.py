"""From a config to a task, an algorithm and a cell; settings are checked before anything compiles."""

import functools
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import jax
import numpy as np
from jax.sharding import Mesh
from ml_collections import FrozenConfigDict

from experiments import (
    attack_tasks,
    averaging,
    baselines,
    blackbox_tasks,
    compression,
    image_tasks,
    queries,
    schedule,
    shared_directions,
)
from experiments.settings import Config, flatten
from zofed import aggregation, batches, channels, checks, cohorts, ledger, sweep, tasks, theory
from zofed.base import Algorithm, LossFn, Params, dimension
from zofed.data import partitions
from zofed.data.datasets import NAMES, Dataset, load
from zofed.ledger import Costs
from zofed.tasks import Task, TaskData

__all__ = [
    "ALGORITHMS",
    "TRACED",
    "algorithm_of",
    "as_traced",
    "cell_of",
    "check",
    "check_axes",
    "costs_of",
    "dimension_of",
    "paper_costs_of",
    "task_of",
    "traced_settings",
]

TRACED: dict[str, type[np.generic]] = {
    "seed": np.uint32,
    "algorithm.learning_rate": np.float32,
    "algorithm.smoothing": np.float32,
    "algorithm.server_learning_rate": np.float32,
    "algorithm.penalty": np.float32,
    "channel.snr_db": np.float32,
    "channel.gain_threshold": np.float32,
}
"""Settings that `algorithm_of` takes as traced numbers: a sweep over them is one program. Others shape it."""

ALGORITHMS = (*averaging.NAMES, *baselines.NAMES, *shared_directions.NAMES)
AGGREGATIONS = ("aircomp", "majority", "mean")
PARTICIPATIONS = ("gain_threshold", "uniform")
_OTHERS: dict[str, Any] = {name: module for module in (attack_tasks, blackbox_tasks) for name in module.NAMES}
"""Modules of tasks that are neither quadratics nor classification, by the data's name."""

PARTITIONS = ("dirichlet", "dirichlet_prior", "iid", "shards")


def traced_settings(config: Config) -> dict[str, np.generic]:
    """The config's values of the traced settings, as numpy scalars of the dtype that the program takes.

    Raises:
        ValueError: that dtype has no such number.
    """
    flat = flatten(config)
    return {name: as_traced(name, flat[name]) for name in TRACED}


def as_traced(name: str, value: Any) -> np.generic:
    """The value of a traced setting in the program's dtype.

    Raises:
        ValueError: that dtype makes infinity or 0 of it.

    Example:
        >>> as_traced("algorithm.learning_rate", 1e300)
        Traceback (most recent call last):
        ValueError: algorithm.learning_rate=1e+300; allowed: a number within float32
    """
    with np.errstate(over="ignore", under="ignore"):
        number = TRACED[name](value)
    if (np.isinf(number) and not np.isinf(value)) or (number == 0 and value != 0):
        raise ValueError(f"{name}={value}; allowed: a number within {number.dtype}")
    return number


def algorithm_of(
    config: Config, loss: LossFn, traced: Mapping[str, Any], direction_chunk: int | None = None
) -> Algorithm:
    """The algorithm of a config, with the numbers in `traced` in the places of its own.

    Raises:
        ValueError: a setting is out of range.
    """
    settings = config.algorithm
    checks.choice("algorithm.name", settings.name, ALGORITHMS)
    checks.choice("aggregation.name", config.aggregation.name, AGGREGATIONS)
    checks.choice("data.batching", config.data.batching, batches.BATCHINGS)
    if settings.name in baselines.NAMES:
        return baselines.algorithm_of(config, loss, traced, direction_chunk)
    common = {
        "learning_rate": schedule.learning_rate(config, traced["algorithm.learning_rate"]),
        "local_steps": settings.local_steps,
        "batch_size": settings.batch_size,
        "batching": batches.BATCHINGS[config.data.batching],
        "aggregation": compression.compress(config, _aggregation(config, traced)),
        "sample_cohort": _sample_cohort(config, traced),
    }
    if settings.name in shared_directions.NAMES:
        smoothing = traced["algorithm.smoothing"]
        return shared_directions.algorithm_of(config, loss, smoothing, direction_chunk, common)
    return averaging.algorithm_of(config, loss, traced, direction_chunk, common)


def _aggregation(config: Config, traced: Mapping[str, Any]) -> aggregation.Aggregation:
    if config.aggregation.name == "mean":
        return aggregation.mean()
    if config.aggregation.name == "majority":
        if config.algorithm.name != "decomfl":
            raise ValueError(f"aggregation.name='majority' with algorithm.name={config.algorithm.name!r}; only decomfl")
        return aggregation.majority()
    if config.participation != "gain_threshold":
        raise ValueError(
            f"participation={config.participation!r} with aggregation.name='aircomp'; allowed: 'gain_threshold', "
            "whose clients have channels"
        )
    return aggregation.aircomp(traced["channel.snr_db"], config.channel.noise, config.channel.variant)


def _sample_cohort(config: Config, traced: Mapping[str, Any]) -> cohorts.SampleCohort:
    checks.choice("participation", config.participation, PARTICIPATIONS)
    num_clients = checks.count("num_clients", config.num_clients)
    if config.participation == "gain_threshold":
        channel = channels.rayleigh(config.channel.mean_square_gain)
        return cohorts.gain_threshold(traced["channel.gain_threshold"], channel)
    cohort_size = checks.count("cohort_size", config.cohort_size, at_most=num_clients, limit="num_clients")
    return cohorts.full() if cohort_size == num_clients else cohorts.uniform(cohort_size)


def check(config: Config) -> None:
    """Raises ValueError, naming the setting, its value and what is allowed, unless the config can run."""
    seed = config.seed
    if isinstance(seed, bool) or not isinstance(seed, int) or not 0 <= seed < 2**32:
        raise ValueError(f"seed={seed!r}; allowed: an integer from 0 to {2**32 - 1}")
    checks.count("num_rounds", config.num_rounds)
    checks.count("eval_every", config.eval_every, at_most=config.num_rounds, limit="num_rounds")
    if config.num_rounds % config.eval_every:
        raise ValueError(f"eval_every={config.eval_every}; allowed: a divisor of num_rounds={config.num_rounds}")
    for name in ("cell_chunk", "client_chunk", "direction_chunk", "num_devices"):
        if config.execution[name] is not None:
            checks.count(f"execution.{name}", config.execution[name])
    schedule.check(config)
    queries.check(config)
    traced_settings(config)
    _check_data(config)
    _check_derivatives(config)
    same_but_seed = config.copy_and_resolve_references()
    same_but_seed.seed = 0
    _check_algorithm(FrozenConfigDict(same_but_seed))


@functools.lru_cache(maxsize=4096)
def _check_algorithm(config: Config) -> None:
    """What depends on anything but the seed: a sweep has many seeds, and over the air a check takes 0.1 s."""
    traced: Any = traced_settings(config)
    channel = config.channel
    cohorts.gain_threshold(traced["channel.gain_threshold"], channels.rayleigh(channel.mean_square_gain))
    aggregation.aircomp(traced["channel.snr_db"], channel.noise, channel.variant)
    algorithm_of(config, lambda params, batch: batch, traced)


def _check_derivatives(config: Config) -> None:
    """What JAX cannot see into it cannot differentiate."""
    if config.data.name not in blackbox_tasks.NAMES:
        return
    for name, value, wrong in (
        ("algorithm.name", config.algorithm.name, "fedavg"),
        ("algorithm.estimator", config.algorithm.estimator, "jvp"),
        ("record_gradient", config.record_gradient, True),
    ):
        if value == wrong:
            raise ValueError(f"{name}={value!r} with data.name={config.data.name!r}, a black box: no derivatives")


def _check_data(config: Config) -> None:
    checks.choice("data.name", config.data.name, ("quadratic", *NAMES, *_OTHERS))
    needed = {"quadratic": "dim", **{name: module.needed(name) for name, module in _OTHERS.items()}}
    needed = needed.get(config.data.name, "model")
    if needed not in config.data:
        raise ValueError(
            f"data.name={config.data.name!r} needs settings that this config has not, such as data.{needed}; "
            "start from a config file made for it"
        )
    if config.data.name == "quadratic":
        task_of(config)
    elif config.data.name in _OTHERS:
        _OTHERS[config.data.name].check(_frozen_data(config), checks.count("num_clients", config.num_clients))
    else:
        image_tasks.check(config.data, _dataset(config.data))
        _partition(_frozen_data(config), config.num_clients)


_USED_IF: dict[str, Callable[[Config], bool]] = {
    "channel.snr_db": lambda config: config.aggregation.name == "aircomp",
    "channel.noise": lambda config: config.aggregation.name == "aircomp",
    "channel.variant": lambda config: config.aggregation.name == "aircomp",
    "channel.gain_threshold": lambda config: config.participation == "gain_threshold",
    "channel.mean_square_gain": lambda config: config.participation == "gain_threshold",
    "cohort_size": lambda config: config.participation == "uniform" and config.algorithm.name not in baselines.NAMES,
    "algorithm.local_steps": lambda config: config.algorithm.name not in baselines.NAMES,
    "algorithm.learning_rate": lambda config: config.algorithm.name != "zone_s",
    "algorithm.penalty": lambda config: config.algorithm.name == "zone_s",
    "algorithm.num_estimates": lambda config: config.algorithm.name in baselines.NAMES,
    "algorithm.consensus_rate": lambda config: config.algorithm.name == "dzopa",
    "algorithm.graph": lambda config: config.algorithm.name == "dzopa",
    "aggregation.stochastic": lambda config: config.aggregation.bits != compression.AS_IT_IS,
    "aggregation.error_feedback": compression.is_compressed,
    "algorithm.server_optimizer": lambda config: config.algorithm.name in averaging.NAMES,
    "algorithm.server_learning_rate": lambda config: config.algorithm.name in averaging.NAMES,
    "algorithm.server_momentum": lambda config: (
        config.algorithm.name in averaging.NAMES and config.algorithm.server_optimizer in averaging.WITH_MOMENTUM
    ),
    "algorithm.smoothing": lambda config: config.algorithm.name != "fedavg" and config.algorithm.estimator != "jvp",
    "algorithm.num_directions": lambda config: config.algorithm.name != "fedavg",
    "algorithm.directions": lambda config: config.algorithm.name != "fedavg",
    "algorithm.estimator": lambda config: config.algorithm.name != "fedavg",
    "algorithm.per_sample": lambda config: config.algorithm.name == "fedzo",
    "algorithm.optimizer": lambda config: config.algorithm.name not in baselines.NAMES,
    "algorithm.momentum": lambda config: (
        config.algorithm.name not in baselines.NAMES and config.algorithm.optimizer in shared_directions.WITH_MOMENTUM
    ),
    "algorithm.weight_decay": lambda config: config.algorithm.name not in baselines.NAMES,
    "schedule.learning_rate_factors": lambda config: config.algorithm.name != "zone_s",
    "schedule.num_directions_factors": lambda config: config.algorithm.name != "fedavg",
    "algorithm.max_lag": lambda config: config.algorithm.name == "decomfl",
    "data.shards_per_client": lambda config: config.data.partition == "shards",
    "data.dirichlet_alpha": lambda config: config.data.partition in ("dirichlet", "dirichlet_prior"),
}
"""Settings that some configs do not use, and whether one does."""


def check_axes(configs: Sequence[Config], names: Sequence[str]) -> None:
    """Raises ValueError if a swept setting changes nothing in any of the study's cells."""
    for name in names:
        uses = _USED_IF.get(name)
        if uses is not None and not any(uses(config) for config in configs):
            raise ValueError(f"--sweep: {name} changes nothing here: no cell of this study uses it")


def cell_of(
    config: Config, task: Task, client_chunk: int | None, direction_chunk: int | None, mesh: Mesh | None = None
) -> sweep.Cell:
    """One cell, ready to be vectorised: everything but the traced settings comes from the config."""

    def evaluate(params: Params, data: TaskData) -> dict[str, jax.Array]:
        record = task.evaluate(params, data)
        if config.record_gradient:
            record["squared_gradient_norm"] = theory.gradient_norm(task.loss, data.clients, params)
        return record

    return sweep.federated(
        task.init,
        evaluate,
        lambda traced: algorithm_of(config, task.loss, traced, direction_chunk),
        config.eval_every,
        client_chunk,
        mesh,
    )


def dimension_of(task: Task) -> int:
    """Number of entries of the task's model."""
    return dimension(jax.eval_shape(task.init, jax.random.key(0)))


def costs_of(config: Config, task: Task) -> Costs:
    """What a round costs in communication, as the messages serialise."""
    checks.choice("algorithm.name", config.algorithm.name, ALGORITHMS)
    params = jax.eval_shape(task.init, jax.random.key(0))
    if config.algorithm.name in shared_directions.NAMES:
        return shared_directions.costs_of(config, params)
    if config.algorithm.name in baselines.NAMES:
        return baselines.costs_of(config, params)
    return compression.costs_of(config, averaging.costs_of(config, params), params)


def paper_costs_of(config: Config, task: Task) -> Costs:
    """The same as DeComFL's paper counts it: where nothing is compressed, others exchange 4-byte numbers either way."""
    if config.algorithm.name == "decomfl":
        return shared_directions.paper_costs_of(config)
    if config.algorithm.name in averaging.NAMES:
        params = jax.eval_shape(task.init, jax.random.key(0))
        return compression.costs_of(config, averaging.costs_of(config, params), params, ledger.compressed_paper)
    return costs_of(config, task)


def task_of(config: Config) -> Task:
    """The task of a config. Tasks of equal settings are one object, so that its data is held once.

    Raises:
        ValueError: a setting is out of range.
        zofed.data.MissingDataError: the data set is not on this machine; the message says how to get it.
    """
    return _task(_frozen_data(config), config.num_clients)


def _frozen_data(config: Config) -> Config:
    return FrozenConfigDict(config.data)


@functools.lru_cache(maxsize=4)
def _task(data: Config, num_clients: int) -> Task:
    if data.name == "quadratic":
        return tasks.quadratic(
            dim=data.dim,
            num_clients=num_clients,
            samples_per_client=data.samples_per_client,
            condition=data.condition,
            heterogeneity=data.heterogeneity,
            noise=data.noise,
            seed=data.seed,
            effective_rank=data.effective_rank,
            ripple=data.ripple,
        )
    if data.name in _OTHERS:
        return _OTHERS[data.name].task_of(data, num_clients)
    return image_tasks.task_of(data, _dataset(data), _partition(data, num_clients))


def _dataset(data: Config) -> Dataset:
    every = checks.count("data.keep_every", data.keep_every)
    whole = _whole_dataset(data.name, data.directory)
    thinned = [{name: values[::every] for name, values in split.items()} for split in (whole.train, whole.test)]
    return whole._replace(train=thinned[0], test=thinned[1])


@functools.lru_cache(maxsize=2)
def _whole_dataset(name: str, directory: str | None) -> Dataset:
    return load(name, directory)


@functools.lru_cache(maxsize=64)
def _partition(data: Config, num_clients: int) -> list[np.ndarray]:
    checks.choice("data.partition", data.partition, PARTITIONS)
    labels = _dataset(data).train["label"]
    if data.partition == "iid":
        return partitions.iid(len(labels), num_clients, data.seed)
    if data.partition == "shards":
        return partitions.label_shards(labels, num_clients, data.shards_per_client, seed=data.seed)
    law = partitions.dirichlet if data.partition == "dirichlet" else partitions.dirichlet_prior
    return law(labels, num_clients, data.dirichlet_alpha, data.seed)
