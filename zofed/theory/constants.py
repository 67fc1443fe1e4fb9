"""A task's constants as a run sees them: smoothness, gradient noise and dissimilarity along a trajectory.

What is measured at some points is a lower estimate of what the assumptions ask for everywhere; L is so for one more
reason: see `smoothness`. Tasks whose constants are known are in `closed_forms`.
"""

import functools
from collections.abc import Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax.flatten_util import ravel_pytree

from zofed.base import ClientData, LossFn, Params, dimension, objective_weights
from zofed.theory.hessian import Operator, hessian_vector, in_chunks, lanczos, largest_eigenvalue, over_chunks
from zofed.theory.problem import Constants

__all__ = ["Envelope", "GradientMoments", "effective_rank", "envelope", "estimate", "gradient_moments", "smoothness"]


class GradientMoments(NamedTuple):
    """At one point.

    Attributes:
        sample: [clients] E ||grad F_i(x, xi)||^2 over the client's samples.
        client: [clients] ||grad f_i(x)||^2.
        apart: [clients] ||grad f_i(x) - grad f(x)||^2.
        whole: ||grad f(x)||^2.
    """

    sample: jax.Array
    client: jax.Array
    apart: jax.Array
    whole: jax.Array


class Envelope(NamedTuple):
    """value <= growth * squared gradient norm + level, at all points seen."""

    growth: float
    level: float


def gradient_moments(loss_fn: LossFn, clients: ClientData, params: Params, chunk: int | None = None) -> GradientMoments:
    """Squared norms of the gradients of samples, of clients, and of f; exact but for round-off.

    Args:
        loss_fn: per-example losses, differentiable.
        clients: their data.
        params: where.
        chunk: samples whose gradients are held at once; None holds all. The clients' gradients are all held.
    """
    flat, unravel = ravel_pytree(params)
    count = jax.tree.leaves(clients.samples)[0].shape[0]
    owners = jnp.repeat(jnp.arange(clients.num_clients), clients.sizes, total_repeat_length=count)
    shares = objective_weights(clients) * clients.num_clients
    parts, weights = in_chunks((clients.samples, owners), shares, chunk)

    def one(sample: Any) -> jax.Array:
        batch = jax.tree.map(lambda leaf: leaf[None], sample)
        return jax.grad(lambda x: loss_fn(unravel(x), batch)[0])(flat)

    def add(carry: tuple[jax.Array, jax.Array], part: Any) -> tuple[tuple[jax.Array, jax.Array], None]:
        (samples, own), share = part
        gradients = jax.vmap(one)(samples)
        means = carry[0].at[own].add(share[:, None] * gradients)
        squares = carry[1].at[own].add(share * jnp.sum(jnp.square(gradients), axis=-1))
        return (means, squares), None

    start = jnp.zeros((clients.num_clients, flat.shape[0])), jnp.zeros(clients.num_clients)
    (means, squares), _ = jax.lax.scan(add, start, (parts, weights))
    whole = jnp.mean(means, axis=0)
    norms = functools.partial(jnp.sum, axis=-1)
    return GradientMoments(
        squares, norms(jnp.square(means)), norms(jnp.square(means - whole[None, :])), norms(jnp.square(whole))
    )


def envelope(values: Any, squared_norms: Any, least: float = 0.0, growth: float | None = None) -> Envelope:
    """The smallest level, for a growth, with value <= growth * squared norm + level at all points.

    Args:
        values: second moments or dissimilarities.
        squared_norms: of the gradient that they are held against.
        least: of the growth: 1 for c_g, 0 for c_h.
        growth: None takes the slope of the least squares line, or `least` where that is smaller.

    Example:
        >>> envelope([1.0, 3.0, 4.0], [0.0, 1.0, 2.0], growth=1.0)
        Envelope(growth=1.0, level=2.0)
    """
    values, norms = np.asarray(values, np.float64).ravel(), np.asarray(squared_norms, np.float64).ravel()
    if growth is None:
        centred = norms - norms.mean()
        slope = float(centred @ values / (centred @ centred)) if centred @ centred > 0 else least
        growth = max(slope, least)
    return Envelope(growth, max(float(np.max(values - growth * norms)), 0.0))


def smoothness(
    loss_fn: LossFn, clients: ClientData, params: Params, key: jax.Array, num_steps: int = 20, chunk: int | None = None
) -> jax.Array:
    """The largest of the absolute eigenvalues of all clients' Hessians at one point: L of every f_i there.

    The bounds ask for L of every sample's F_i(., xi), which is at least as large: a client's Hessian is the mean of its
    samples'. So this is a lower bound of their L, also at the point itself.

    Args:
        loss_fn: per-example losses, twice differentiable.
        clients: their data.
        params: where.
        key: of the start vectors.
        num_steps: of Lanczos.
        chunk: samples of a client at once.
    """
    numbers = jnp.arange(clients.max_size)
    dim = dimension(params)

    def of(id: jax.Array) -> jax.Array:
        client = clients.client(id)
        samples = client.take(jnp.minimum(numbers, client.size - 1))
        weights = jnp.where(numbers < client.size, 1.0 / client.size.astype(jnp.float32), 0.0)
        product = hessian_vector(loss_fn, samples, weights, params, chunk)
        return largest_eigenvalue(product, jax.random.fold_in(key, id), dim, num_steps)

    return jnp.max(jax.lax.map(of, jnp.arange(clients.num_clients)))


def effective_rank(
    operator: Operator, dim: int, key: jax.Array, num_probes: int = 30, num_steps: int = 10
) -> jax.Array:
    """tr(|H|) / ||H||, |H| having the absolute eigenvalues: the least kappa that bounds H where it is not convex, too.

    By Lanczos' quadrature from vectors of random signs, which for a positive semidefinite H is Hutchinson's estimate of
    the trace. `Spectrum` has it with an error.

    Args:
        operator: jax-traceable, float32[dim] -> float32[dim], symmetric.
        dim: of the map.
        key: of the probes.
        num_probes: random vectors.
        num_steps: of Lanczos for each, at most dim.

    Example:
        >>> diagonal = jnp.array([4.0, 1.0, -3.0])
        >>> round(float(effective_rank(lambda v: diagonal * v, 3, jax.random.key(0))), 4)
        2.0
    """

    def rule(probe: jax.Array) -> tuple[jax.Array, jax.Array]:
        nodes, vectors = jnp.linalg.eigh(lanczos(operator, probe, min(num_steps, dim)).dense())
        return jnp.sum(jnp.square(vectors[0]) * jnp.abs(nodes)), jnp.max(jnp.abs(nodes))

    means, largest = jax.lax.map(rule, jax.random.rademacher(key, (num_probes, dim), dtype=jnp.float32))
    return dim * jnp.mean(means) / jnp.max(largest)


def estimate(
    loss_fn: LossFn,
    clients: ClientData,
    trajectory: Sequence[Params],
    key: jax.Array,
    lower_bound: float = 0.0,
    chunk: int | None = None,
    gradient_growth: float | None = None,
    dissimilarity_growth: float | None = None,
) -> Constants:
    """The constants that hold at the points of a trajectory, whose first is x^0; noise and dissimilarity are means over
    the clients, L is that of the clients' own losses f_i: a lower bound of what the bounds ask for.

    Args:
        loss_fn: per-example losses, twice differentiable.
        clients: their data.
        trajectory: models.
        key: of start vectors and probes.
        lower_bound: of f: f_*.
        chunk: samples at once.
        gradient_growth: c_g; None fits it: see `envelope`.
        dissimilarity_growth: c_h, likewise.

    Raises:
        ValueError: the trajectory is empty.
    """
    if not trajectory:
        raise ValueError("trajectory is empty; at least x^0 is needed")

    @jax.jit
    def at(params: Params, clients: ClientData) -> tuple[GradientMoments, jax.Array, jax.Array, jax.Array]:
        weights = objective_weights(clients)
        product = hessian_vector(loss_fn, clients.samples, weights, params, chunk)
        parts = in_chunks(clients.samples, weights, chunk)
        return (
            gradient_moments(loss_fn, clients, params, chunk),
            smoothness(loss_fn, clients, params, key, chunk=chunk),
            effective_rank(product, dimension(params), key),
            over_chunks(lambda own, shares: jnp.sum(shares * loss_fn(params, own)), jnp.zeros(()), parts),
        )

    points = [jax.device_get(at(params, clients)) for params in trajectory]
    seen = [moments for moments, _, _, _ in points]
    noise = envelope(
        [moments.sample.mean() for moments in seen], [moments.client.mean() for moments in seen], 1.0, gradient_growth
    )
    apart = envelope(
        [moments.apart.mean() for moments in seen], [moments.whole for moments in seen], 0.0, dissimilarity_growth
    )
    return Constants(
        smoothness=max(float(largest) for _, largest, _, _ in points),
        gap=max(float(points[0][3]) - lower_bound, 0.0),
        gradient_noise=noise.level,
        gradient_growth=noise.growth,
        dissimilarity=apart.level,
        dissimilarity_growth=apart.growth,
        effective_rank=max(float(rank) for _, _, rank, _ in points),
    )
