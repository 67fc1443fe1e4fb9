"""Fading channels between the clients and the server."""

from collections.abc import Callable

import jax
import jax.numpy as jnp

from zofed import checks, rng
from zofed.rng import RoundKeys

__all__ = ["Channel", "rayleigh"]

Channel = Callable[[RoundKeys, jax.Array], jax.Array]
"""`(keys, client_id) -> gain`, the complex64 coefficient h of a client in a round."""


def rayleigh(mean_square_gain: float | jax.Array = 1.0) -> Channel:
    """h ~ CN(0, mean_square_gain), independent over clients and rounds: FedZO, V-A, with mean square 1.

    Args:
        mean_square_gain: E|h|^2; the authors' code has 0.5.
    """
    checks.positive("mean_square_gain", mean_square_gain)

    def gain(keys: RoundKeys, client_id: jax.Array) -> jax.Array:
        parts = rng.normal(rng.fold(keys.channel, client_id, 1), (2,))
        parts = parts * jnp.sqrt(jnp.asarray(mean_square_gain, jnp.float32) / 2)
        return jax.lax.complex(parts[0], parts[1])

    return gain
