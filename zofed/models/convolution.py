"""What convolutional models are computed with: the one place that decides how a backend convolves and pools."""

from typing import Any

import jax
import jax.numpy as jnp
from jax import lax

__all__ = ["convolve", "max_pool"]


def convolve(lhs: jax.Array, rhs: jax.Array, window_strides: Any, padding: Any, **options: Any) -> jax.Array:
    """`jax.lax.conv_general_dilated`, as `flax.linen.Conv(conv_general_dilated=...)` calls it.

    Args:
        lhs: images [batch, height, width, channels].
        rhs: kernel [height, width, channels, features].
        window_strides: of the two axes.
        padding: a name, or a pair per axis.
        **options: of that function.
    """
    return lax.conv_general_dilated(lhs, rhs, window_strides, padding, **options)


def max_pool(images: jax.Array, window: int) -> jax.Array:
    """Largest entry of each window of window x window pixels; windows do not overlap, and what fills none is dropped.

    Args:
        images: [batch, height, width, channels].

    Returns:
        [batch, height // window, width // window, channels].

    Example:
        >>> max_pool(jnp.arange(15.0).reshape(1, 3, 5, 1), 2)[0, :, :, 0]
        Array([[6., 8.]], dtype=float32)
    """
    batch, height, width, channels = images.shape
    rows, columns = height // window, width // window
    whole = images[:, : rows * window, : columns * window]
    return jnp.max(whole.reshape(batch, rows, window, columns, window, channels), axis=(2, 4))
