"""Laws of random directions: how one is drawn, and the scale that makes an estimator unbiased."""

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from zofed import rng
from zofed.base import Params, dimension, squared_norm, wide

__all__ = [
    "LAWS",
    "Direction",
    "Directions",
    "coordinate",
    "gaussian",
    "private",
    "rademacher",
    "sphere",
    "sphere_sqrt_dim",
]


class Direction(NamedTuple):
    """The direction `factor * raw`; the factor joins scalar weights, which saves a pass over `raw`."""

    raw: Params
    factor: jax.Array


class Directions(NamedTuple):
    """A law of directions with E[z z^T] = (squared_norm(dim) / dim) * identity.

    Attributes:
        sample: `(key, index, like) -> Direction`, of the shapes of the pytree `like`, in float32 or wider. `index` is
            the direction's place among the estimator's directions; random laws use the key only.
        squared_norm: `dim -> E||z||^2`.
    """

    sample: Callable[[jax.Array, jax.Array, Params], Direction]
    squared_norm: Callable[[int], float]

    def scale(self, dim: int) -> float:
        """What the mean of `scalar * z` is multiplied by to be the gradient of a linear function.

        Example:
            >>> sphere().scale(7850), gaussian().scale(7850)
            (7850.0, 1.0)
        """
        return dim / self.squared_norm(dim)


def _draw(key: jax.Array, like: Params, draw: Callable[..., jax.Array]) -> Params:
    """One draw per leaf from the leaf's own key, stored: the generator runs once whatever uses the result.

    Each leaf is by itself, so that a program may draw one when it needs it and drop it before the next.
    """
    return jax.tree.map(
        lambda leaf_key, leaf: draw(leaf_key, leaf.shape, wide(leaf.dtype)), rng.leaf_keys(key, like), like
    )


def gaussian() -> Directions:
    """z ~ N(0, I): DeComFL, MeZO."""

    def sample(key: jax.Array, index: jax.Array, like: Params) -> Direction:
        del index
        return Direction(_draw(key, like, rng.stored_normal), jnp.float32(1))

    return Directions(sample, float)


def _sphere(radius: Callable[[int], float]) -> Directions:
    def sample(key: jax.Array, index: jax.Array, like: Params) -> Direction:
        del index
        raw = _draw(key, like, rng.stored_normal)
        return Direction(raw, jnp.float32(radius(dimension(like))) * jax.lax.rsqrt(squared_norm(raw)))

    return Directions(sample, lambda dim: radius(dim) ** 2)


def sphere() -> Directions:
    """z uniform on the unit sphere: FedZO, (II-B)."""
    return _sphere(lambda dim: 1.0)


def sphere_sqrt_dim() -> Directions:
    """z uniform on the sphere of radius sqrt(dim): DeComFL, Theorem 2."""
    return _sphere(lambda dim: float(dim) ** 0.5)


def rademacher() -> Directions:
    """Independent entries +1 and -1, each with probability 1/2 (Spall 1992); cheap to draw."""

    def stored(*arguments: Any) -> jax.Array:
        return rng.materialise(lambda: rng.rademacher(*arguments))

    def sample(key: jax.Array, index: jax.Array, like: Params) -> Direction:
        del index
        return Direction(_draw(key, like, stored), jnp.float32(1))

    return Directions(sample, float)


def coordinate() -> Directions:
    """z = unit vector number `index` modulo dim: with num_directions = dim, finite differences of each coordinate once.

    Random only in name: the reference that other laws are checked against.
    """

    def sample(key: jax.Array, index: jax.Array, like: Params) -> Direction:
        del key
        leaves, structure = jax.tree.flatten(like)
        number = jnp.asarray(index, jnp.int32) % dimension(like)
        raw, offset = [], 0
        for leaf in leaves:
            places = offset + jax.lax.iota(jnp.int32, leaf.size).reshape(leaf.shape)
            raw.append((places == number).astype(wide(leaf.dtype)))
            offset += leaf.size
        return Direction(jax.tree.unflatten(structure, raw), jnp.float32(1))

    return Directions(sample, lambda dim: 1.0)


def private(law: Directions, secret: jax.Array) -> Directions:
    """The law with keys shifted by a secret that the clients share and the server has not (DeComFL, B.3).

    Clients rebuild the same model from the same messages; what the server would rebuild is another one.

    Args:
        law: for instance `gaussian()`.
        secret: a key, `zofed.rng.seed_key(number that only clients know)`.
    """
    high, low = jax.random.key_data(secret)

    def sample(key: jax.Array, index: jax.Array, like: Params) -> Direction:
        return law.sample(rng.fold(key, low, high), index, like)

    return Directions(sample, law.squared_norm)


LAWS: dict[str, Callable[[], Directions]] = {
    "gaussian": gaussian,
    "sphere": sphere,
    "sphere_sqrt_dim": sphere_sqrt_dim,
    "rademacher": rademacher,
    "coordinate": coordinate,
}
"""Laws by the name that configs use."""
