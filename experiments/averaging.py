"""From a config to the algorithms that average model updates: FedZO and FedAvg, with local and server optimisers."""

from collections.abc import Callable, Mapping
from typing import Any

import optax

from experiments import shared_directions
from experiments.settings import Config
from zofed import checks, ledger
from zofed.algorithms import fedavg, fedzo
from zofed.base import Algorithm, LossFn, Params
from zofed.directions import LAWS
from zofed.estimators import DIFFERENCES
from zofed.ledger import Costs

__all__ = ["NAMES", "WITH_MOMENTUM", "algorithm_of", "costs_of"]

NAMES = ("fedavg", "fedzo")

SERVER_OPTIMIZERS: dict[str, Callable[[float], optax.GradientTransformation]] = {
    "sgd": lambda momentum: optax.identity(),
    "momentum": optax.trace,
    "adam": lambda momentum: optax.scale_by_adam(momentum, 0.99, eps=1e-3),
    "yogi": lambda momentum: optax.scale_by_yogi(momentum, 0.99, eps=1e-3),
    "adagrad": lambda momentum: optax.scale_by_rss(1e-6, eps=1e-6),
}
"""Optimisers of the mean update by the name that configs use, from `server_momentum`, the decay of its mean.

momentum is FedAvgM (Hsu et al. 2019); adam, yogi and adagrad are FedAdam, FedYogi and FedAdagrad (Reddi et al., ICLR
2021) with their decay of squares, 0.99, and tau, 1e-3. As optax has them, the first two correct the bias of their
start, which that paper does not; adagrad has no momentum, as in its experiments, and tau^2 inside of the root.
"""

WITH_MOMENTUM = ("adam", "momentum", "yogi")
"""Those that use `server_momentum`."""


def algorithm_of(
    config: Config, loss: LossFn, traced: Mapping[str, Any], direction_chunk: int | None, common: dict[str, Any]
) -> Algorithm:
    """The algorithm of a config.

    Args:
        config: of the study.
        loss: per-example losses.
        traced: the traced settings.
        direction_chunk: directions held at once.
        common: what it shares with all algorithms, by keyword.

    Raises:
        ValueError: a setting is not allowed.
    """
    settings = config.algorithm
    checks.choice("algorithm.server_optimizer", settings.server_optimizer, SERVER_OPTIMIZERS)
    if not 0 <= settings.server_momentum < 1:
        raise ValueError(f"algorithm.server_momentum={settings.server_momentum}; allowed: from 0 to below 1")
    options = {
        **common,
        "local_optimizer": shared_directions.optimizer_of(config),
        "server_optimizer": SERVER_OPTIMIZERS[settings.server_optimizer](settings.server_momentum),
        "server_learning_rate": traced["algorithm.server_learning_rate"],
    }
    if settings.name == "fedavg":
        return fedavg(loss, **options)
    checks.choice("algorithm.directions", settings.directions, LAWS)
    checks.choice("algorithm.estimator", settings.estimator, DIFFERENCES)
    return fedzo(
        loss,
        smoothing=traced["algorithm.smoothing"],
        num_directions=settings.num_directions,
        directions=LAWS[settings.directions](),
        difference=DIFFERENCES[settings.estimator](),
        per_sample=settings.per_sample,
        direction_chunk=direction_chunk,
        **options,
    )


def costs_of(config: Config, params: Params) -> Costs:
    """What a round's messages come to, before any compression."""
    return {"mean": ledger.model_exchange, "aircomp": ledger.over_the_air}[config.aggregation.name](params)
