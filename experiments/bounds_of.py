"""From a config to the bounds that cover it, and to the constants of its task."""

import functools
import math
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from experiments import build
from experiments.settings import Config
from zofed import sweep, tasks, theory
from zofed.tasks import Task
from zofed.theory import Bound, Constants, Setting, closed_forms

__all__ = ["Covering", "Known", "as_numbers", "bounds_of", "constants_of", "initial_model", "setting_of"]

DESCENT_POINTS = 10
"""Points of gradient descent at which constants are estimated where they are not known in closed form."""


class Covering(NamedTuple):
    """A bound that covers a config.

    Attributes:
        name: for files.
        title: with its status: derived, corrected or printed.
        of: `(constants, setting) -> bound`.
        every_client: whether it assumes noise and dissimilarity of every client, rather than in the mean.
    """

    name: str
    title: str
    of: Callable[[Constants, Setting], Bound]
    every_client: bool = False


class Known(NamedTuple):
    """Constants, and where they come from."""

    mean: Constants
    every_client: Constants
    source: str


def bounds_of(config: Config) -> list[Covering]:
    """The bounds that cover a config.

    Raises:
        ValueError: none does; the message names the setting.
    """
    algorithm = config.algorithm
    _need("algorithm.name", algorithm.name, ("decomfl", "fedzo"))
    _need("data.batching", config.data.batching, ("replacement",))
    _need("aggregation.bits", config.aggregation.bits, (32,))
    _need("aggregation.fraction", config.aggregation.fraction, (1.0,))
    _need("algorithm.optimizer", algorithm.optimizer, ("sgd",))
    _need("algorithm.weight_decay", algorithm.weight_decay, (0.0,))
    _need("schedule.rounds", tuple(config.schedule.rounds), ((),))
    _need("query_budget", config.query_budget, (None,))  # what it leaves out of a run is no part of the mean
    if algorithm.name == "fedzo":
        return _of_fedzo(config)
    _need("aggregation.name", config.aggregation.name, ("mean",))
    _need("participation", config.participation, ("uniform",))
    _need("algorithm.directions", algorithm.directions, ("gaussian", "sphere_sqrt_dim"))
    found = []
    if algorithm.directions == "gaussian":
        found += [
            Covering("decomfl", "DeComFL's Theorem 1, corrected", theory.decomfl),
            Covering("decomfl_printed", "DeComFL's Theorem 1, as printed", theory.decomfl_printed, True),
        ]
    if algorithm.local_steps == 1:
        of = functools.partial(theory.decomfl_low_rank, directions=algorithm.directions)
        found.append(Covering("decomfl_low_rank", "low effective rank: DeComFL's Theorem 2, corrected", of))
        if algorithm.directions == "sphere_sqrt_dim":
            printed = theory.decomfl_low_rank_printed
            found.append(Covering("decomfl_low_rank_printed", "DeComFL's Theorem 2, as printed", printed, True))
    if not found:
        raise ValueError(
            f"algorithm.local_steps={algorithm.local_steps} with algorithm.directions='sphere_sqrt_dim'; the bounds of "
            "low effective rank allow: 1"
        )
    return found


def _of_fedzo(config: Config) -> list[Covering]:
    _need("algorithm.directions", config.algorithm.directions, ("sphere", "sphere_sqrt_dim"))
    _need("algorithm.server_optimizer", config.algorithm.server_optimizer, ("sgd",))
    _need("algorithm.server_learning_rate", config.algorithm.server_learning_rate, (1.0,))
    _need("aggregation.name", config.aggregation.name, ("aircomp", "mean"))
    own = config.algorithm.per_sample
    if config.participation == "uniform":
        found = [Covering("fedzo", "FedZO, some clients (derived)", functools.partial(theory.fedzo, per_sample=own))]
        if config.cohort_size == config.num_clients:
            of = functools.partial(theory.fedzo_full, per_sample=own)
            found.insert(0, Covering("fedzo_full", "FedZO, all clients (derived)", of))
        return found
    channel = config.channel
    _need("channel.variant", channel.variant, ("paper",))
    probability = math.exp(-(channel.gain_threshold**2) / channel.mean_square_gain)
    who = theory.threshold_cohort(config.num_clients, probability)
    snr = math.inf
    if config.aggregation.name == "aircomp":
        snr = 10 ** (channel.snr_db / 10) * channel.gain_threshold**2
    of = functools.partial(theory.fedzo_aircomp, receive_snr=snr, per_sample=own, participation=who)
    return [Covering("fedzo_aircomp", "FedZO over the air (derived)", of)]


def _need(name: str, value: Any, allowed: tuple[Any, ...]) -> None:
    if value not in allowed:
        shown = ", ".join(repr(choice) for choice in allowed)
        raise ValueError(f"{name}={value!r}: no bound of zofed.theory covers it; allowed: {shown}")


def setting_of(config: Config, task: Task, learning_rate: Any, num_rounds: Any) -> Setting:
    """What a bound sees of a config. FedZO's bounds are for unit vectors, so longer ones make the smoothing longer."""
    algorithm, dim = config.algorithm, build.dimension_of(task)
    smoothing = 0.0 if algorithm.estimator == "jvp" else algorithm.smoothing
    if algorithm.name == "fedzo" and algorithm.directions == "sphere_sqrt_dim":
        smoothing *= math.sqrt(dim)
    return Setting(
        dim,
        config.num_clients,
        config.cohort_size,
        num_rounds,
        algorithm.local_steps,
        algorithm.batch_size,
        algorithm.num_directions,
        learning_rate,
        smoothing,
    )


def initial_model(config: Config, task: Task, seeds: Sequence[int] = ()) -> Any:
    """The model that the seeds start from; of the largest loss, where they start from several.

    Args:
        config: its own seed is that of no seeds.
        task: whose model it is.
        seeds: that are played.
    """

    def start(seed: jax.Array) -> Any:
        return sweep.initial_params(task.init, seed)

    numbers = jnp.asarray(seeds or (config.seed,), jnp.uint32)
    if len(numbers) == 1:
        return start(numbers[0])
    losses = jax.jit(lambda numbers: jax.lax.map(lambda seed: task.loss_value(start(seed)), numbers))(numbers)
    return start(numbers[jnp.argmax(losses)])


def constants_of(config: Config, task: Task, seeds: Sequence[int] = ()) -> Known:
    """The task's constants: in closed form for quadratics, otherwise estimated along gradient descent on f.

    An estimate is a lower one: it sees some points only, and L of clients rather than of samples. The gap is that of
    the worst seed's start: see `initial_model`.
    """
    start = initial_model(config, task, seeds)
    if config.data.name == "quadratic":
        spectrum = tasks.eigenvalues(config.data.dim, config.data.condition, config.data.effective_rank)
        of = functools.partial(closed_forms.quadratic, task.data.clients, spectrum, start, config.data.ripple)
        return Known(of(), of(over_clients="max"), "in closed form")
    fixed = {"gradient_growth": 1.0, "dissimilarity_growth": 0.0} if config.algorithm.name == "decomfl" else {}
    chunk = max(1, 2**22 // build.dimension_of(task))
    estimate = functools.partial(
        theory.estimate, task.loss, task.data.clients, key=jax.random.key(0), chunk=chunk, **fixed
    )
    first = estimate([start])
    points, slope = [start], jax.jit(jax.grad(task.loss_value))
    for _ in range(DESCENT_POINTS - 1):
        step = jnp.float32(1 / first.smoothness)
        points.append(jax.tree.map(lambda x, g, step=step: x - step * g, points[-1], slope(points[-1])))
    found = estimate(points)
    return Known(
        found, found, f"estimated at {DESCENT_POINTS} points of descent: lower bounds, L that of clients; f_* = 0"
    )


def as_numbers(constants: Constants) -> dict[str, float]:
    """By name, for files."""
    return {name: float(np.asarray(value)) for name, value in constants._asdict().items()}
