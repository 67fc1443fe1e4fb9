"""From a config to the zeroth-order baselines of FedZO's paper: DZOPA, of peers, and ZONE-S, of one client a round."""

from collections.abc import Mapping
from typing import Any

from experiments import schedule
from experiments.compression import AS_IT_IS
from experiments.settings import Config
from zofed import batches, checks, graphs, ledger
from zofed.algorithms import dzopa, zone_s
from zofed.base import Algorithm, LossFn, Params
from zofed.directions import LAWS
from zofed.estimators import DIFFERENCES
from zofed.ledger import Costs

__all__ = ["NAMES", "algorithm_of", "costs_of"]

NAMES = ("dzopa", "zone_s")


def algorithm_of(config: Config, loss: LossFn, traced: Mapping[str, Any], direction_chunk: int | None) -> Algorithm:
    """The algorithm of a config: who takes part, and the link, are its own.

    Raises:
        ValueError: a setting is not allowed.
    """
    settings = config.algorithm
    for name, value, allowed in (
        ("participation", config.participation, "uniform"),
        ("aggregation.name", config.aggregation.name, "mean"),
        ("aggregation.fraction", config.aggregation.fraction, 1.0),
        ("aggregation.bits", config.aggregation.bits, AS_IT_IS),
        ("algorithm.per_sample", settings.per_sample, False),
        ("algorithm.optimizer", settings.optimizer, "sgd"),
        ("algorithm.weight_decay", settings.weight_decay, 0.0),
        ("algorithm.server_optimizer", settings.server_optimizer, "sgd"),
    ):
        if value != allowed:
            raise ValueError(f"{name}={value!r} with algorithm.name={settings.name!r}; allowed: {allowed!r}")
    checks.choice("algorithm.directions", settings.directions, LAWS)
    checks.choice("algorithm.estimator", settings.estimator, DIFFERENCES)
    options: dict[str, Any] = {
        "smoothing": traced["algorithm.smoothing"],
        "num_estimates": settings.num_estimates,
        "num_directions": settings.num_directions,
        "batch_size": settings.batch_size,
        "directions": LAWS[settings.directions](),
        "difference": DIFFERENCES[settings.estimator](),
        "batching": batches.BATCHINGS[config.data.batching],
        "direction_chunk": direction_chunk,
    }
    if settings.name == "zone_s":
        if config.schedule.learning_rate_factors:
            raise ValueError(
                f"schedule.learning_rate_factors={tuple(config.schedule.learning_rate_factors)} with "
                "algorithm.name='zone_s', which has a penalty in the place of a learning rate; allowed: ()"
            )
        return zone_s(loss, traced["algorithm.penalty"], **options)
    laplacian = graphs.GRAPHS[checks.choice("algorithm.graph", settings.graph, graphs.GRAPHS)](config.num_clients)
    rate = schedule.learning_rate(config, traced["algorithm.learning_rate"])
    return dzopa(loss, rate, consensus_rate=settings.consensus_rate, laplacian=laplacian, **options)


def costs_of(config: Config, params: Params) -> Costs:
    """What a round's messages come to."""
    if config.algorithm.name == "zone_s":
        return ledger.model_exchange(params)
    return ledger.peer_to_peer(params, graphs.GRAPHS[config.algorithm.graph](config.num_clients))
