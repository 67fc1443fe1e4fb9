"""Small federated problems with constants in closed form, played by the engine as one program per shape.

    F(x, (c, s)) = 1/2 s sum_j a_j (x_j - c_j)^2 + ripple sum_j (1 - cos(x_j - 1)).

Clients and samples with other curvatures s make c_g > 1 and c_h > 0, ripples a function that is not convex. Everything
but counts is traced, so one compiled program plays all problems of a shape; seeds are vmapped.
"""

import functools
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from zofed import ClientData, aggregation, cohorts, directions, estimators, rng, simulate, theory
from zofed.algorithms import decomfl, fedzo
from zofed.theory import Bound, Constants, Setting

SAMPLES = 3


class Shape(NamedTuple):
    """What a program is compiled for. `cohort_size` 0 stands for clients whose gain is good enough, over the air."""

    dim: int
    num_clients: int
    cohort_size: int
    local_steps: int
    batch_size: int
    num_directions: int
    num_rounds: int
    kind: str = "shared"  # shared, per_sample, decomfl, or decomfl_sphere or decomfl_gaussian of low effective rank
    num_seeds: int = 8


class Problem(NamedTuple):
    """A problem of a shape, in numpy; the mean over all samples of s c / s is `minimum`."""

    eigenvalues: np.ndarray
    centres: np.ndarray
    scales: np.ndarray
    start: np.ndarray
    ripple: float

    @property
    def minimum(self) -> np.ndarray:
        weighted = self.scales[..., None] * self.centres
        return weighted.mean(axis=(0, 1)) / self.scales.mean()

    def constants(self) -> Constants:
        """In closed form; ripples and unequal scales exclude each other, except for the smoothness."""
        a, s = self.eigenvalues, self.scales[..., None]
        own = (s * self.centres).mean(axis=1) / s.mean(axis=1)
        means = s.mean(axis=1)
        of_samples = np.sum((a * s * (own[:, None] - self.centres)) ** 2, axis=-1).mean()
        of_clients = np.sum((a * means * (self.minimum - own)) ** 2, axis=-1).mean()
        # grad F = (s / s_i) grad f_i + a s (x_i - c), and likewise for clients: twice the squares bound its square.
        unequal = bool(np.ptp(self.scales) > 0)
        twice = 2.0 if unequal else 1.0
        growth = np.max((s**2).mean(axis=1) / means**2)
        away = self.start - self.minimum
        gap = 0.5 * self.scales.mean() * np.sum(a * away**2) + self.ripple * np.sum(1 - np.cos(self.start - 1))
        largest = self.scales.max() * a.max() + self.ripple
        return Constants(
            smoothness=float(largest),
            gap=float(gap),
            gradient_noise=float(twice * of_samples),
            gradient_growth=float(2 * growth) if unequal else 1.0,
            dissimilarity=float(twice * of_clients),
            dissimilarity_growth=float(2 * np.var(means / means.mean())) if unequal else 0.0,
            effective_rank=float(np.sum(self.scales.mean() * a + self.ripple) / largest),
        )

    def at_minimum(self) -> "Problem":
        return self._replace(start=self.minimum)


def problem(
    shape: Shape,
    seed: int,
    heterogeneity: float = 0.0,
    noise: float = 0.0,
    away: float = 0.0,
    ripple: float = 0.0,
    spread: float = 0.0,
    condition: float = 5.0,
) -> Problem:
    """A problem whose minimum is at 1 where the scales are equal; it starts `away` from its minimum in each entry."""
    generator = np.random.default_rng(seed)
    eigenvalues = np.geomspace(1, 1 / condition, shape.dim)
    centres = heterogeneity * generator.standard_normal((shape.num_clients, 1, shape.dim))
    deviations = noise * generator.standard_normal((shape.num_clients, SAMPLES, shape.dim))
    centres = centres + deviations - deviations.mean(axis=1, keepdims=True)
    centres += 1 - centres.mean(axis=(0, 1))
    scales = 1 + spread * generator.uniform(-1, 1, (shape.num_clients, SAMPLES))
    made = Problem(eigenvalues, centres, scales, np.zeros(shape.dim), ripple)
    return made._replace(start=made.minimum + away * generator.standard_normal(shape.dim))


class Run(NamedTuple):
    """What a run is besides the problem; over the air, with `snr` and `threshold` of the channel's modulus."""

    learning_rate: float
    smoothing: float = 1e-3
    snr: float = 1.0
    threshold: float = 0.8


def setting(shape: Shape, run: Run) -> Setting:
    return Setting(
        shape.dim,
        shape.num_clients,
        shape.cohort_size or shape.num_clients,
        shape.num_rounds,
        shape.local_steps,
        shape.batch_size,
        shape.num_directions,
        run.learning_rate,
        run.smoothing,
    )


def bound(shape: Shape, constants: Constants, run: Run) -> Bound:
    """The bound that covers the shape."""
    at = setting(shape, run)
    if shape.kind == "decomfl":
        return theory.decomfl(constants, at)
    if shape.kind == "decomfl_sphere":
        return theory.decomfl_low_rank(constants, at)
    if shape.kind == "decomfl_gaussian":
        return theory.decomfl_low_rank(constants, at, "gaussian")
    own = shape.kind == "per_sample"
    if shape.cohort_size:
        return theory.fedzo(constants, at, own)
    who = theory.threshold_cohort(shape.num_clients, float(np.exp(-(run.threshold**2))))
    return theory.fedzo_aircomp(constants, at, run.snr * run.threshold**2, own, who)


def allowed(shape: Shape, constants: Constants, run: Run, share: float = 1.0) -> Run:
    """The run with this share of the largest learning rate that its bound allows."""
    return run._replace(learning_rate=share * float(bound(shape, constants, run).largest_learning_rate))


@functools.lru_cache
def _program(shape: Shape) -> Callable[..., jax.Array]:
    counts = np.arange(shape.num_clients * SAMPLES).reshape(shape.num_clients, SAMPLES)

    def play(problem: Any, run: Run, seed: jax.Array) -> jax.Array:
        samples = {
            "centre": problem.centres.reshape(-1, shape.dim),
            "scale": problem.scales.reshape(-1),
        }
        blank = ClientData.from_partition({"x": np.zeros(counts.size, np.float32)}, list(counts))
        clients = ClientData(samples, blank.offsets, blank.sizes, SAMPLES)

        def loss(x: jax.Array, batch: Any) -> jax.Array:
            squares = jnp.sum(problem.eigenvalues[None, :] * jnp.square(x[None, :] - batch["centre"]), axis=-1)
            return 0.5 * batch["scale"] * squares + problem.ripple * jnp.sum(1 - jnp.cos(x - 1))

        def squared_gradient(x: jax.Array) -> jax.Array:
            return jnp.sum(jnp.square(jax.grad(lambda y: jnp.mean(loss(y, samples)))(x)))

        if shape.cohort_size == 0:
            link = {
                "sample_cohort": cohorts.gain_threshold(run.threshold),
                "aggregation": aggregation.aircomp(10 * jnp.log10(run.snr)),
            }
        elif shape.cohort_size < shape.num_clients:
            link = {"sample_cohort": cohorts.uniform(shape.cohort_size)}
        else:
            link = {}
        options = {
            "local_steps": shape.local_steps,
            "num_directions": shape.num_directions,
            "batch_size": shape.batch_size,
            **link,
        }
        rates = (run.learning_rate, run.smoothing)
        if shape.kind.startswith("decomfl"):
            law = directions.sphere_sqrt_dim() if shape.kind == "decomfl_sphere" else directions.gaussian()
            algorithm = decomfl(loss, *rates, directions=law, difference=estimators.forward(), **options)
        else:
            algorithm = fedzo(loss, *rates, per_sample=shape.kind == "per_sample", **options)
        state = algorithm.init(problem.start, shape.num_clients)
        _, trace = simulate(rng.seed_key(seed), algorithm, state, clients, shape.num_rounds, squared_gradient)
        return jnp.concatenate([squared_gradient(problem.start)[None], trace.evaluations[:-1]])

    return jax.jit(jax.vmap(play, in_axes=(None, None, 0)))


def measured(shape: Shape, problem: Problem, run: Run, repeats: int = 1) -> np.ndarray:
    """[repeats * num_seeds] the mean over the rounds of ||grad f(x^t)||^2."""
    narrow = jax.tree.map(lambda value: jnp.asarray(value, jnp.float32), (problem, run))
    seeds = jnp.arange(repeats * shape.num_seeds, dtype=jnp.uint32).reshape(repeats, shape.num_seeds)
    series = [np.asarray(_program(shape)(*narrow, own), np.float64) for own in seeds]
    return np.concatenate(series).mean(axis=1)
