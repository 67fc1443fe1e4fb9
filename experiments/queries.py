"""Queries: losses of one example that the participants of a run's rounds ask for, in closed form; and their budget."""

import numpy as np

from experiments import baselines, schedule
from experiments.metrics import Records
from experiments.settings import Config
from zofed import checks, ledger

__all__ = ["affordable", "check", "per_participant", "total"]


def per_participant(config: Config, num_directions: int | None = None) -> int:
    """Of a client in a round; 0 of a first-order algorithm. `num_directions` may be that of a phase.

    Example:
        >>> from experiments.configs import fedzo_cifar_attack
        >>> per_participant(fedzo_cifar_attack.get_config())  # H b1 (b2 + 1)
        2625
    """
    settings = config.algorithm
    if settings.name == "fedavg":
        return 0
    estimates = settings.num_estimates if settings.name in baselines.NAMES else settings.local_steps
    return estimates * ledger.queries(
        settings.batch_size, num_directions or settings.num_directions, settings.estimator
    )


def total(records: Records, config: Config) -> np.ndarray:
    """[cells, evaluations] int64, since the start, from the recorded numbers of participants."""
    nobody = np.zeros(records["train_loss"].shape, np.int64)
    participants = np.asarray(records.get("participants", nobody), np.int64)
    rounds = np.arange(participants.shape[1]) * config.eval_every
    asked = np.zeros_like(participants)
    for phase in schedule.phases(config):
        played = (rounds > phase.first) & (rounds <= phase.end)
        asked += participants * played * per_participant(config, phase.num_directions)
    return np.cumsum(asked, axis=1)


def affordable(records: Records, done: int, config: Config) -> bool:
    """Whether the segment after `done` rounds fits the budget in every cell, whoever takes part in it."""
    if config.query_budget is None:
        return True
    (phase,) = (phase for phase in schedule.phases(config) if phase.first <= done < phase.end)
    segment = config.eval_every * _largest_cohort(config) * per_participant(config, phase.num_directions)
    return int(total(records, config)[:, -1].max()) + segment <= config.query_budget


def check(config: Config) -> None:
    """Raises ValueError unless the budget, if there is one, pays for the first segment."""
    if config.query_budget is None:
        return
    checks.count("query_budget", config.query_budget)
    segment = config.eval_every * _largest_cohort(config) * per_participant(config)
    if segment > config.query_budget:
        raise ValueError(
            f"query_budget={config.query_budget}; allowed: at least {segment}, what the {config.eval_every} rounds to "
            "the first evaluation may ask for"
        )


def _largest_cohort(config: Config) -> int:
    if config.algorithm.name == "zone_s":
        return 1
    whole = config.participation == "gain_threshold" or config.algorithm.name == "dzopa"
    return config.num_clients if whole else config.cohort_size
