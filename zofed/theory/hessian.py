"""Products with a Hessian, chunked over data, and Lanczos' tridiagonal matrix of one; the parameters are any pytree."""

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax.flatten_util import ravel_pytree

from zofed import checks
from zofed.base import ClientData, LossFn, Params, objective_weights, squared_norm

__all__ = ["Tridiagonal", "gradient_norm", "hessian_vector", "lanczos", "largest_eigenvalue"]

Operator = Callable[[jax.Array], jax.Array]
"""A symmetric linear map of flat vectors."""


def in_chunks(samples: Any, weights: jax.Array, chunk: int | None) -> tuple[Any, jax.Array]:
    """Samples and weights with two leading axes, chunks and samples of a chunk; the last is filled up with weight 0."""
    count = weights.shape[0]
    size = count if chunk is None else min(checks.count("chunk", chunk), count)
    numbers = jnp.arange(-(-count // size) * size).reshape(-1, size)
    inside = numbers < count
    numbers = jnp.minimum(numbers, count - 1)
    return jax.tree.map(lambda leaf: leaf[numbers], samples), jnp.where(inside, weights[numbers], 0.0)


def over_chunks(of: Callable[..., Any], start: Any, chunks: tuple[Any, jax.Array]) -> Any:
    """`start` plus the sum of `of(samples, weights)` over what `in_chunks` gives, one chunk after the other."""

    def add(total: Any, part: tuple[Any, jax.Array]) -> tuple[Any, None]:
        return jax.tree.map(jnp.add, total, of(*part)), None

    return jax.lax.scan(add, start, chunks)[0]


def hessian_vector(
    loss_fn: LossFn, samples: Any, weights: jax.Array, params: Params, chunk: int | None = None
) -> Operator:
    """v -> H v, H the Hessian of the weighted sum of the samples' losses, by forward over reverse differentiation.

    Args:
        loss_fn: per-example losses, twice differentiable.
        samples: pytree with a leading axis of samples.
        weights: [samples], for instance `objective_weights(clients)`.
        params: where.
        chunk: samples at once; None takes all.

    Example:
        >>> loss = lambda x, batch: 0.5 * jnp.sum(batch * jnp.square(x)[None, :], axis=-1)
        >>> hessian_vector(loss, jnp.array([[1.0, 3.0], [3.0, 5.0]]), jnp.full(2, 0.5), jnp.zeros(2))(jnp.ones(2))
        Array([2., 4.], dtype=float32)
    """
    flat, unravel = ravel_pytree(params)
    chunks = in_chunks(samples, weights, chunk)

    def product(vector: jax.Array) -> jax.Array:
        def of(own: Any, shares: jax.Array) -> jax.Array:
            slope = jax.grad(lambda x: jnp.sum(shares * loss_fn(unravel(x), own)))
            return jax.jvp(slope, (flat,), (vector,))[1]

        return over_chunks(of, jnp.zeros_like(flat), chunks)

    return product


def gradient_norm(loss_fn: LossFn, clients: ClientData, params: Params, chunk: int | None = None) -> jax.Array:
    """||grad f(x)||^2, exactly: of the mean of the clients' mean losses.

    Args:
        loss_fn: per-example losses, differentiable.
        clients: their data.
        params: where.
        chunk: samples at once; None takes all.
    """

    def of(own: Any, shares: jax.Array) -> Any:
        return jax.grad(lambda x: jnp.sum(shares * loss_fn(x, own)))(params)

    chunks = in_chunks(clients.samples, objective_weights(clients), chunk)
    return squared_norm(over_chunks(of, jax.tree.map(jnp.zeros_like, params), chunks))


class Tridiagonal(NamedTuple):
    """Lanczos' matrix: diagonal [steps] and what stands beside it [steps - 1]."""

    diagonal: jax.Array
    beside: jax.Array

    def dense(self) -> jax.Array:
        """[steps, steps]"""
        return jnp.diag(self.diagonal) + jnp.diag(self.beside, 1) + jnp.diag(self.beside, -1)


def lanczos(operator: Operator, start: jax.Array, num_steps: int) -> Tridiagonal:
    """`num_steps` of Lanczos' iteration with full reorthogonalisation, twice in each step.

    Once the space that `start` spans is exhausted the matrix goes on with zeros, which are not joined to the rest: they
    add nothing to a quadrature with the weights of the first entry.

    Args:
        operator: symmetric, of vectors of one axis.
        start: the first vector; any length.
        num_steps: at most the dimension.

    Raises:
        ValueError: num_steps is larger than the dimension.
    """
    num_steps = checks.count("num_steps", num_steps, at_most=start.shape[0], limit="the dimension")
    numbers = jnp.arange(num_steps)

    def step(carry: tuple[jax.Array, jax.Array, jax.Array], number: jax.Array) -> Any:
        basis, vector, scale = carry
        basis = basis.at[number].set(vector)
        image = operator(vector)
        diagonal = jnp.vdot(vector, image)
        for _ in range(2):
            image = image - basis.T @ (basis @ image)
        length = jnp.sqrt(jnp.sum(jnp.square(image)))
        scale = jnp.maximum(scale, jnp.abs(diagonal) + length)
        # What is left after an exhausted space is round-off: the product's, relative to the largest of the matrix.
        goes_on = length > 1e-5 * scale
        following = jnp.where(goes_on, image / jnp.where(goes_on, length, 1.0), 0.0)
        return (basis, following, scale), (diagonal, jnp.where(goes_on, length, 0.0))

    first = start / jnp.sqrt(jnp.sum(jnp.square(start)))
    basis = jnp.zeros((num_steps, start.shape[0]), start.dtype)
    _, (diagonal, beside) = jax.lax.scan(step, (basis, first, jnp.zeros((), start.dtype)), numbers)
    return Tridiagonal(diagonal, beside[:-1])


def largest_eigenvalue(operator: Operator, key: jax.Array, dim: int, num_steps: int = 30) -> jax.Array:
    """The largest absolute eigenvalue, by Lanczos from a random vector; from below, and close unless the gap is small.

    Example:
        >>> round(float(largest_eigenvalue(lambda v: jnp.array([1.0, -3.0, 2.0]) * v, jax.random.key(0), 3)), 4)
        3.0
    """
    start = jax.random.normal(key, (dim,))
    matrix = lanczos(operator, start, min(num_steps, dim)).dense()
    return jnp.max(jnp.abs(jnp.linalg.eigvalsh(matrix)))
