"""The convolutional networks of DeComFL's experiments (section 5 and its published code), and LeNet for CIFAR-10."""

import flax.linen as nn
import jax

from zofed.models.classifier import Classifier, Conv, ConvAndPool, classifier

__all__ = ["fashion_cnn", "lenet", "mnist_cnn"]


class _MnistCNN(nn.Module):
    num_classes: int

    @nn.compact
    def __call__(self, image: jax.Array) -> jax.Array:
        for features in (16, 32):
            image = ConvAndPool(features, 5, padding=2)(image)
        return nn.Dense(self.num_classes)(_flat(image))


class _FashionCNN(nn.Module):
    num_classes: int

    @nn.compact
    def __call__(self, image: jax.Array) -> jax.Array:
        image = nn.relu(Conv(32, 3)(image))
        image = ConvAndPool(64, 3)(image)
        hidden = nn.relu(nn.Dense(128)(_flat(image)))
        return nn.Dense(self.num_classes)(hidden)


class _LeNet(nn.Module):
    num_classes: int

    @nn.compact
    def __call__(self, image: jax.Array) -> jax.Array:
        for features in (6, 16):
            image = ConvAndPool(features, 5)(image)
        hidden = _flat(image)
        for features in (120, 84):
            hidden = nn.relu(nn.Dense(features)(hidden))
        return nn.Dense(self.num_classes)(hidden)


def mnist_cnn(num_classes: int = 10) -> Classifier:
    """Two 5x5 convolutions of 16 and 32 features, each with a pool of 2x2, and a linear layer: 28,938 parameters.

    Example:
        >>> from zofed.base import dimension
        >>> model = mnist_cnn()
        >>> dimension(jax.eval_shape(model.init, jax.random.key(0)))
        28938
    """
    return classifier(_MnistCNN(num_classes), (28, 28))


def fashion_cnn(num_classes: int = 62) -> Classifier:
    """Two 3x3 convolutions of 32 and 64 features, one pool of 2x2, 128 hidden units: 1,206,590 parameters.

    Args:
        num_classes: 62, as the number of parameters in the paper and its code have it, although Fashion-MNIST has 10
            classes: the rest are never right. With 10 there are 1,199,882 parameters.
    """
    return classifier(_FashionCNN(num_classes), (28, 28))


def lenet(num_classes: int = 10) -> Classifier:
    """LeNet for CIFAR-10 with ReLU and max pools: 62,006 parameters (LeCun, Bottou, Bengio and Haffner 1998)."""
    return classifier(_LeNet(num_classes), (32, 32, 3))


def _flat(image: jax.Array) -> jax.Array:
    return image.reshape(image.shape[0], -1)
