"""Schedules of the learning rate and of the number of directions, and the phases of a run that they make."""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from experiments.settings import Config
from zofed import checks

__all__ = ["Phase", "check", "learning_rate", "phases"]


class Phase(NamedTuple):
    """Rounds `first` to `end - 1`, which have one number of directions and are one compiled program."""

    first: int
    end: int
    num_directions: int


def check(config: Config) -> None:
    """Raises ValueError unless the settings `schedule` can be followed."""
    settings = config.schedule
    rounds, before = tuple(settings.rounds), 0
    for number, first in enumerate(rounds):
        before = checks.count(f"schedule.rounds[{number}]", first, at_least=before + 1)
    for name in ("learning_rate_factors", "num_directions_factors"):
        if len(settings[name]) not in (0, len(rounds)):
            raise ValueError(
                f"schedule.{name}={tuple(settings[name])} with schedule.rounds={rounds}; allowed: one for each round, "
                "or () where nothing changes"
            )
    if rounds and not (settings.learning_rate_factors or settings.num_directions_factors):
        raise ValueError(f"schedule.rounds={rounds} without factors; allowed: ()")
    for number, factor in enumerate(settings.learning_rate_factors):
        checks.positive(f"schedule.learning_rate_factors[{number}]", factor)
    for number, factor in enumerate(settings.num_directions_factors):
        checks.count(f"schedule.num_directions_factors[{number}]", factor)
    later = phases(config)[1:]
    for phase in later:
        if phase.first % config.eval_every:
            raise ValueError(
                f"schedule.rounds={rounds}: algorithm.num_directions changes at round {phase.first}; "
                f"allowed: multiples of eval_every={config.eval_every}, since each phase is a program of its own"
            )
    # FedZO sends its model's update, of which what is kept fits any phase.
    if later and config.aggregation.error_feedback and config.algorithm.name != "fedzo":
        raise ValueError(
            "schedule.num_directions_factors with aggregation.error_feedback=True; allowed: False, since what is kept "
            "of a phase's scalars does not fit the next one's"
        )


def learning_rate(config: Config, rate: Any) -> checks.Rate:
    """`rate`, which may be traced, times the factor of each round; itself where there are no factors.

    Example:
        >>> from ml_collections import ConfigDict
        >>> schedule = {"rounds": (2, 4), "learning_rate_factors": (0.5, 0.25)}
        >>> rate = learning_rate(ConfigDict({"schedule": schedule}), 1.0)
        >>> [float(checks.rate_at(rate, jnp.int32(round))) for round in range(6)]
        [1.0, 1.0, 0.5, 0.5, 0.25, 0.25]
    """
    settings = config.schedule
    if not settings.learning_rate_factors:
        return rate
    checks.positive("algorithm.learning_rate", rate)
    rounds = np.asarray(settings.rounds, np.int32)
    factors = np.asarray((1.0, *settings.learning_rate_factors), np.float32)

    def scaled(round: jax.Array) -> jax.Array:
        return rate * jnp.asarray(factors)[jnp.sum(round >= rounds)]

    return scaled


def phases(config: Config) -> list[Phase]:
    """The phases of a run, in order. Where no number of directions changes, there is one.

    Example:
        >>> from ml_collections import ConfigDict
        >>> schedule = {"rounds": (10, 20, 90), "num_directions_factors": (2, 4, 8)}
        >>> phases(ConfigDict({"num_rounds": 50, "algorithm": {"num_directions": 25}, "schedule": schedule}))
        [Phase(first=0, end=10, num_directions=25), Phase(first=10, end=20, num_directions=50), \
Phase(first=20, end=50, num_directions=100)]
    """
    settings = config.schedule
    factors = settings.num_directions_factors or (1,) * len(settings.rounds)
    starts = [(0, 1)]
    for first, factor in zip(settings.rounds, factors, strict=True):
        if first < config.num_rounds and factor != starts[-1][1]:
            starts.append((first, factor))
    ends = [first for first, _ in starts[1:]] + [config.num_rounds]
    own = config.algorithm.num_directions
    return [Phase(first, end, own * factor) for (first, factor), end in zip(starts, ends, strict=True)]
