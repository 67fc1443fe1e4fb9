"""Image classifiers out of flax modules, as pure functions."""

import math
from collections.abc import Callable
from typing import Any, NamedTuple

import flax.linen as nn
import jax
import jax.numpy as jnp
from flax.traverse_util import flatten_dict, unflatten_dict

from zofed.models.convolution import convolve, convolve_and_pool, images_in_turn

__all__ = ["Classifier", "Conv", "ConvAndPool", "classifier"]


class Conv(nn.Module):
    """A convolution of stride 1 with bias; `flax.linen.Conv` but for how it is computed.

    Attributes:
        features: output channels.
        size: of the kernel, size x size.
        padding: zeros on each side.
    """

    features: int
    size: int
    padding: int = 0

    @nn.compact
    def __call__(self, image: jax.Array) -> jax.Array:
        kernel, bias = self._kernel_and_bias(image)
        return convolve(image, kernel, self.padding) + bias

    def _kernel_and_bias(self, image: jax.Array) -> tuple[jax.Array, jax.Array]:
        shape = (self.size, self.size, image.shape[-1], self.features)
        kernel = self.param("kernel", nn.initializers.lecun_normal(), shape)
        return kernel, self.param("bias", nn.initializers.zeros, (self.features,))[None, None, None, :]


class ConvAndPool(Conv):
    """A convolution with bias, ReLU and a max pool of 2x2; bias and ReLU, being monotone, follow the pool."""

    @nn.compact
    def __call__(self, image: jax.Array) -> jax.Array:
        kernel, bias = self._kernel_and_bias(image)
        return nn.relu(convolve_and_pool(image, kernel, self.padding) + bias)


class Classifier(NamedTuple):
    """A model of images.

    Attributes:
        init: `key -> params`.
        apply: `(params, image[batch, ...]) -> logits[batch, classes]`.
        image_shape: of one image; a single channel has no axis, as in `zofed.data.Dataset`.
    """

    init: Callable[[jax.Array], Any]
    apply: Callable[[Any, jax.Array], jax.Array]
    image_shape: tuple[int, ...]


def classifier(module: nn.Module, image_shape: tuple[int, ...]) -> Classifier:
    """The classifier that a flax module of images [batch, height, width, channels] is.

    It starts as in PyTorch, whose default the codes of both papers use: kernels and biases uniform in
    +-1 / sqrt(fan in), normalisations as the identity.
    """
    with_channels = image_shape if len(image_shape) == 3 else (*image_shape, 1)
    one_image = jax.ShapeDtypeStruct((1, *with_channels), jnp.float32)

    def init(key: jax.Array) -> Any:
        return _initial(key, jax.eval_shape(module.init, key, one_image)["params"])

    def apply(params: Any, image: jax.Array) -> Any:
        dtype = jax.tree.leaves(params)[0].dtype
        batch = image.reshape(-1, *with_channels).astype(dtype)
        return images_in_turn(lambda block: module.apply({"params": params}, block), batch)

    return Classifier(init, apply, image_shape)


def _initial(key: jax.Array, shapes: Any) -> Any:
    """One draw for all parameters: a generator for each, as flax has it, takes 6 times as long to compile."""
    leaves: dict[Any, Any] = flatten_dict(shapes)
    numbers = jax.random.uniform(key, (sum(leaf.size for leaf in leaves.values()),), minval=-1.0, maxval=1.0)
    values, start = {}, 0
    for path, leaf in leaves.items():
        kernel = leaves.get((*path[:-1], "kernel"))
        if kernel is None:
            values[path] = jnp.full(leaf.shape, float(path[-1] == "scale"))
        else:
            own = numbers[start : start + leaf.size].reshape(leaf.shape)
            values[path] = own * (1 / math.sqrt(math.prod(kernel.shape[:-1])))
        start += leaf.size
    return unflatten_dict(values)
