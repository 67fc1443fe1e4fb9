"""The density of a Hessian's eigenvalues by stochastic Lanczos quadrature.

Ghorbani, Krishnan, Xiao, "An investigation into neural net optimization via Hessian eigenvalue density", ICML 2019;
Golub and Welsch, "Calculation of Gauss quadrature rules", 1969. A random unit vector's Lanczos matrix is a quadrature
rule: its eigenvalues are nodes, the squared first entries of its eigenvectors weights, and the mean over vectors is
that of the spectrum.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from zofed import checks
from zofed.base import ClientData, LossFn, Params, dimension, objective_weights
from zofed.theory.hessian import Operator, hessian_vector, lanczos

__all__ = ["Measured", "Spectrum", "hessian_spectrum", "spectrum"]


class Measured(NamedTuple):
    """A mean over probes and its standard error."""

    mean: Any
    error: Any


class Spectrum(NamedTuple):
    """Quadrature rules of a symmetric matrix; numpy arrays.

    Attributes:
        nodes: [probes, steps], ascending.
        weights: [probes, steps], of sum 1 along the last axis.
        dim: of the matrix.
    """

    nodes: np.ndarray
    weights: np.ndarray
    dim: int

    def average(self, function: Callable[[np.ndarray], np.ndarray]) -> Measured:
        """The mean of function(eigenvalue) over the spectrum; the function may add trailing axes."""
        values = function(self.nodes)
        weights = self.weights.reshape(self.weights.shape + (1,) * (values.ndim - 2))
        per_probe = np.sum(weights * values, axis=1)
        return Measured(per_probe.mean(axis=0), per_probe.std(axis=0, ddof=1) / np.sqrt(len(per_probe)))

    @property
    def norm(self) -> float:
        """||H||, the largest absolute eigenvalue; from below."""
        return float(np.abs(self.nodes).max())

    def trace(self, absolute: bool = False) -> Measured:
        """tr(H), or the sum of the absolute eigenvalues."""
        mean, error = self.average(np.abs if absolute else lambda nodes: nodes)
        return Measured(self.dim * mean, self.dim * error)

    def effective_rank(self, absolute: bool = False) -> Measured:
        """tr(H) / ||H||, as DeComFL's Assumption 4 defines it; the error is that of the trace.

        A Hessian that is not positive semidefinite is bounded by that of its absolute eigenvalues: `absolute`.
        """
        mean, error = self.trace(absolute)
        return Measured(mean / self.norm, error / self.norm)

    def mass_at_zero(self, tolerance: float = 1e-2) -> Measured:
        """Share of the eigenvalues whose absolute value is at most tolerance * ||H||."""
        checks.positive("tolerance", tolerance)
        return self.average(lambda nodes: (np.abs(nodes) <= tolerance * self.norm).astype(np.float64))

    def density(self, grid: np.ndarray, width: float) -> Measured:
        """[grid] the density of the eigenvalues, of integral 1, seen through a Gaussian of this standard deviation."""
        checks.positive("width", width)
        scale = width * np.sqrt(2 * np.pi)
        return self.average(lambda nodes: np.exp(-(((nodes[..., None] - grid) / width) ** 2) / 2) / scale)


def spectrum(operator: Operator, dim: int, key: jax.Array, num_probes: int = 10, num_steps: int = 80) -> Spectrum:
    """The spectrum of a symmetric linear map of flat vectors.

    Args:
        operator: jax-traceable, float32[dim] -> float32[dim].
        dim: of the map.
        key: of the probes.
        num_probes: random vectors, at least 2; they follow one another.
        num_steps: of Lanczos, at most dim; memory is num_steps * dim numbers.

    Raises:
        ValueError: a count is out of range.

    Example:
        >>> diagonal = jnp.array([4.0, 1.0, 1.0, 0.0])
        >>> found = spectrum(lambda v: diagonal * v, 4, jax.random.key(0), num_probes=400, num_steps=3)
        >>> round(found.norm, 3), bool(abs(found.effective_rank().mean - 1.5) < 3 * found.effective_rank().error)
        (4.0, True)
    """
    rules = jax.jit(lambda keys: _rules(operator, dim, keys, num_steps))
    return _spectrum(rules, dim, key, num_probes, num_steps)


def _rules(operator: Operator, dim: int, keys: jax.Array, num_steps: int) -> tuple[jax.Array, jax.Array]:
    """Nodes and weights, one probe after the other."""

    def rule(probe_key: jax.Array) -> tuple[jax.Array, jax.Array]:
        matrix = lanczos(operator, jax.random.normal(probe_key, (dim,)), num_steps).dense()
        nodes, vectors = jnp.linalg.eigh(matrix)
        return nodes, jnp.square(vectors[0])

    return jax.lax.map(rule, keys)


def _spectrum(rules: Callable[..., Any], dim: int, key: jax.Array, num_probes: int, num_steps: int) -> Spectrum:
    num_probes = checks.count("num_probes", num_probes, at_least=2)
    checks.count("num_steps", num_steps, at_most=dim, limit="the dimension")
    nodes, weights = rules(jax.random.split(key, num_probes))
    weights = np.asarray(weights, np.float64)
    return Spectrum(np.asarray(nodes, np.float64), weights / weights.sum(axis=1, keepdims=True), dim)


def hessian_spectrum(
    loss_fn: LossFn,
    clients: ClientData,
    params: Params,
    key: jax.Array,
    num_probes: int = 10,
    num_steps: int = 80,
    chunk: int | None = None,
) -> Spectrum:
    """The spectrum of the Hessian of f, the mean of the clients' mean losses.

    Args:
        loss_fn: per-example losses, twice differentiable.
        clients: their data.
        params: where; any pytree.
        key: of the probes.
        num_probes: as for `spectrum`.
        num_steps: likewise.
        chunk: samples at once in a product with the Hessian; None takes all.
    """
    dim = dimension(params)

    @jax.jit
    def rules(clients: ClientData, params: Params, keys: jax.Array) -> tuple[jax.Array, jax.Array]:
        operator = hessian_vector(loss_fn, clients.samples, objective_weights(clients), params, chunk)
        return _rules(operator, dim, keys, num_steps)

    return _spectrum(lambda keys: rules(clients, params, keys), dim, key, num_probes, num_steps)
