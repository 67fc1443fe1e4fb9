"""From a config to a task, an algorithm and a cell; settings are checked before anything compiles."""

import functools
from collections.abc import Mapping
from typing import Any

import jax
import numpy as np
from ml_collections import FrozenConfigDict

from experiments.settings import Config, flatten
from zofed import aggregation, batches, channels, checks, cohorts, estimators, ledger, sweep, tasks
from zofed.algorithms import fedavg, fedzo
from zofed.base import Algorithm, LossFn, dimension
from zofed.data import partitions
from zofed.data.datasets import Dataset, load
from zofed.directions import LAWS
from zofed.ledger import Costs
from zofed.tasks import Task

__all__ = [
    "ALGORITHMS",
    "TRACED",
    "algorithm_of",
    "cell_of",
    "check",
    "costs_of",
    "dimension_of",
    "task_of",
    "traced_settings",
]

TRACED: dict[str, type[np.generic]] = {
    "seed": np.uint32,
    "algorithm.learning_rate": np.float32,
    "algorithm.smoothing": np.float32,
    "channel.snr_db": np.float32,
    "channel.gain_threshold": np.float32,
}
"""Settings that `algorithm_of` takes as traced numbers: a sweep over them is one program. Others shape it."""

ALGORITHMS = ("fedavg", "fedzo")
AGGREGATIONS = ("aircomp", "mean")
PARTICIPATIONS = ("gain_threshold", "uniform")
PARTITIONS = ("dirichlet", "dirichlet_prior", "iid", "shards")


def traced_settings(config: Config) -> dict[str, np.generic]:
    """The config's values of the traced settings, as numpy scalars of the dtype that the program takes."""
    flat = flatten(config)
    return {name: dtype(flat[name]) for name, dtype in TRACED.items()}


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
    common = {
        "learning_rate": traced["algorithm.learning_rate"],
        "local_steps": settings.local_steps,
        "batch_size": settings.batch_size,
        "batching": batches.BATCHINGS[config.data.batching],
        "aggregation": _aggregation(config, traced),
        "sample_cohort": _sample_cohort(config, traced),
    }
    if settings.name == "fedavg":
        return fedavg(loss, **common)
    checks.choice("algorithm.directions", settings.directions, LAWS)
    checks.choice("algorithm.estimator", settings.estimator, estimators.DIFFERENCES)
    return fedzo(
        loss,
        smoothing=traced["algorithm.smoothing"],
        num_directions=settings.num_directions,
        directions=LAWS[settings.directions](),
        difference=estimators.DIFFERENCES[settings.estimator](),
        per_sample=settings.per_sample,
        direction_chunk=direction_chunk,
        **common,
    )


def _aggregation(config: Config, traced: Mapping[str, Any]) -> aggregation.Aggregation:
    if config.aggregation.name == "mean":
        return aggregation.mean()
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
    flat = flatten(config)
    algorithm_of(config, lambda params, batch: batch, {name: flat[name] for name in TRACED})
    if config.data.name != "quadratic":
        _partition(_frozen_data(config), config.num_clients)


def cell_of(config: Config, task: Task, client_chunk: int | None, direction_chunk: int | None) -> sweep.Cell:
    """One cell, ready to be vectorised: everything but the traced settings comes from the config."""
    return sweep.federated(
        task.init,
        task.evaluate,
        lambda traced: algorithm_of(config, task.loss, traced, direction_chunk),
        config.eval_every,
        client_chunk,
    )


def dimension_of(task: Task) -> int:
    """Number of entries of the task's model."""
    return dimension(jax.eval_shape(task.init, jax.random.key(0)))


def costs_of(config: Config, task: Task) -> Costs:
    """What a round costs in communication. Both algorithms exchange models."""
    checks.choice("algorithm.name", config.algorithm.name, ALGORITHMS)
    count = {"mean": ledger.model_exchange, "aircomp": ledger.over_the_air}[config.aggregation.name]
    return count(jax.eval_shape(task.init, jax.random.key(0)))


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
        )
    return tasks.softmax_regression(_dataset(data.name, data.directory), _partition(data, num_clients))


@functools.lru_cache(maxsize=2)
def _dataset(name: str, directory: str | None) -> Dataset:
    return load(name, directory)


@functools.lru_cache(maxsize=64)
def _partition(data: Config, num_clients: int) -> list[np.ndarray]:
    checks.choice("data.partition", data.partition, PARTITIONS)
    labels = _dataset(data.name, data.directory).train["label"]
    if data.partition == "iid":
        return partitions.iid(len(labels), num_clients, data.seed)
    if data.partition == "shards":
        return partitions.label_shards(labels, num_clients, data.shards_per_client, seed=data.seed)
    law = partitions.dirichlet if data.partition == "dirichlet" else partitions.dirichlet_prior
    return law(labels, num_clients, data.dirichlet_alpha, data.seed)
