"""What convolutional models are computed with: the one place that decides how a backend convolves and pools.

The forms for CPU were chosen by measurement (`experiments.benchmarks.decomfl_round`): XLA runs a convolution of one
image channel at a tenth of its rate for matrix products, and at half of that rate or more once there are 16, if the
images in flight fit the cache.
"""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
from jax import lax

__all__ = ["IMAGES_AT_ONCE", "convolve", "convolve_and_pool", "images_in_turn", "max_pool"]

IMAGES_AT_ONCE = 16
"""Images that a network on a CPU works on at once: their activations stay in the cache of a core."""

FEW_CHANNELS = 4
"""Up to this number of input channels, `convolve_and_pool` is a product of patches and kernel on a CPU."""


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


def convolve(images: jax.Array, kernel: jax.Array, padding: int = 0) -> jax.Array:
    """A convolution of stride 1, whose derivatives are sums of products on a CPU.

    As convolutions XLA would compute them 5 to 20 times as slowly wherever they stand in a loop, such as a round.

    Args:
        images: [batch, height, width, channels].
        kernel: [size, size, channels, features].
        padding: zeros on each of the four sides.
    """
    images = jnp.pad(images, ((0, 0), (padding, padding), (padding, padding), (0, 0)))
    return (_convolve_on_cpu if jax.default_backend() == "cpu" else _convolve)(images, kernel)


def _convolve(images: jax.Array, kernel: jax.Array) -> jax.Array:
    layout = ("NHWC", "HWIO", "NHWC")
    return lax.conv_general_dilated(images, kernel, (1, 1), "VALID", dimension_numbers=layout)


_convolve_on_cpu = jax.custom_jvp(_convolve)


@_convolve_on_cpu.defjvp
def _derivative(inputs: tuple[jax.Array, jax.Array], moves: tuple[jax.Array, jax.Array]) -> tuple[Any, Any]:
    images, kernel = inputs
    return _convolve(images, kernel), _sum_of_products(moves[0], kernel) + _sum_of_products(images, moves[1])


def _sum_of_products(images: jax.Array, kernel: jax.Array) -> jax.Array:
    """The convolution, one place of the kernel after another: its transposes, too, are products."""
    size, _, channels, features = kernel.shape
    batch, rows, columns = images.shape[0], *(extent - size + 1 for extent in images.shape[1:3])

    def add(total: jax.Array, term: tuple[jax.Array, jax.Array]) -> tuple[jax.Array, None]:
        place, weights = term
        seen = lax.dynamic_slice(images, (0, place // size, place % size, 0), (batch, rows, columns, channels))
        return total + seen @ weights, None

    places = jnp.arange(size * size, dtype=jnp.int32)
    zeros = jnp.zeros((batch, rows, columns, features), images.dtype)
    return lax.scan(add, zeros, (places, kernel.reshape(-1, channels, features)))[0]


def convolve_and_pool(images: jax.Array, kernel: jax.Array, padding: int) -> jax.Array:
    """`max_pool` of 2x2 windows of a convolution of stride 1.

    On a CPU and of few channels: one product of patches and kernel for all four places of a window, so that the pool
    is a maximum of four blocks of columns.

    Args:
        images: [batch, height, width, channels].
        kernel: [size, size, channels, features].
        padding: zeros on each of the four sides.

    Returns:
        [batch, rows, columns, features], where 2 rows <= height + 2 padding - size + 1, and likewise the columns.
    """
    size = kernel.shape[0]
    sides = [extent + 2 * padding - size + 1 for extent in images.shape[1:3]]
    even = size % 2 == 1 and not any(side % 2 for side in sides)
    if jax.default_backend() == "cpu" and images.shape[3] <= FEW_CHANNELS and even:
        return _pooled_product(jnp.pad(images, ((0, 0), (padding, padding), (padding, padding), (0, 0))), kernel)
    return max_pool(convolve(images, kernel, padding), 2)


def _pooled_product(padded: jax.Array, kernel: jax.Array) -> jax.Array:
    """What the four convolutions of a window see are (size + 1) x (size + 1) pixels, (size + 1) / 2 blocks of 2x2."""
    batch, height, width, channels = padded.shape
    size, _, _, features = kernel.shape
    blocks = (size + 1) // 2
    rows, columns = (height - size + 1) // 2, (width - size + 1) // 2
    folded = padded.reshape(batch, height // 2, 2, width // 2, 2, channels).swapaxes(2, 3)
    folded = folded.reshape(batch, height // 2, width // 2, 4 * channels)
    patches = [folded[:, y : y + rows, x : x + columns] for y in range(blocks) for x in range(blocks)]
    # One kernel for each place in the window, shifted to it.
    places = [(y, x) for y in (0, 1) for x in (0, 1)]
    shifted = jnp.stack([jnp.pad(kernel, ((y, 1 - y), (x, 1 - x), (0, 0), (0, 0))) for y, x in places], axis=-2)
    shifted = shifted.reshape(blocks, 2, blocks, 2, channels, 4 * features).swapaxes(1, 2)
    product = jnp.concatenate(patches, axis=-1).reshape(batch * rows * columns, -1) @ shifted.reshape(-1, 4 * features)
    return jnp.max(product.reshape(batch, rows, columns, 4, features), axis=3)


def images_in_turn(apply: Callable[[jax.Array], Any], images: jax.Array) -> Any:
    """`apply(images)`, a function of each image alone: on a CPU of `IMAGES_AT_ONCE` after one another."""
    if jax.default_backend() != "cpu" or images.shape[0] <= IMAGES_AT_ONCE:
        return apply(images)
    return lax.map(lambda image: apply(image[None])[0], images, batch_size=IMAGES_AT_ONCE)
