"""The CIFAR-10 classifier of Carlini and Wagner's attacks (IEEE S&P 2017, Table I), FedZO's victim."""

from typing import Any

import flax.linen as nn
import jax
import jax.numpy as jnp
from flax.traverse_util import flatten_dict, unflatten_dict

from zofed.models.classifier import Classifier, classifier
from zofed.models.convolution import max_pool

__all__ = ["CarliniCNN", "carlini_cnn", "fold_batch_norm"]

EPSILON = 1e-5


class CarliniCNN(nn.Module):
    """The network as a flax module, for those who train it.

    Attributes:
        batch_norm: after each convolution, as in the port of FedZO's authors; its running statistics are the
            collection `batch_stats`.
        dropout: rate after the hidden layers while training: after the first alone, or after both with batch_norm.
    """

    num_classes: int = 10
    batch_norm: bool = False
    dropout: float = 0.5

    @nn.compact
    def __call__(self, image: jax.Array, train: bool = False) -> jax.Array:
        for number, features in enumerate((64, 64, 128, 128)):
            image = nn.Conv(features, (3, 3), padding="VALID", name=f"conv{number}")(image)
            if self.batch_norm:
                image = nn.BatchNorm(not train, momentum=0.9, epsilon=EPSILON, name=f"norm{number}")(image)
            image = nn.relu(image)
            image = max_pool(image, 2) if number % 2 else image
        hidden = image.reshape(image.shape[0], -1)
        for number in range(2):
            hidden = nn.relu(nn.Dense(256, name=f"hidden{number}")(hidden))
            if number == 0 or self.batch_norm:
                hidden = nn.Dropout(self.dropout, deterministic=not train)(hidden)
        return nn.Dense(self.num_classes, name="head")(hidden)


def carlini_cnn(num_classes: int = 10) -> Classifier:
    """Four 3x3 convolutions of 64, 64, 128 and 128 features, a pool after each pair, two hidden layers of 256.

    1,147,978 parameters; its images have pixels in [-0.5, 0.5]. Batch normalisation is not part of it: what was trained
    with it (768 parameters more) becomes this by `fold_batch_norm`.

    Example:
        >>> from zofed.base import dimension
        >>> dimension(jax.eval_shape(carlini_cnn().init, jax.random.key(0)))
        1147978
    """
    return classifier(CarliniCNN(num_classes), (32, 32, 3))


def fold_batch_norm(params: Any, statistics: Any) -> Any:
    """The parameters of the network without batch normalisation that computes the same, once trained.

    Args:
        params: of `CarliniCNN(batch_norm=True)`.
        statistics: its `batch_stats`.
    """
    folded = {path: leaf for path, leaf in flatten_dict(params).items() if not path[0].startswith("norm")}
    for name, norm in ((f"conv{number}", f"norm{number}") for number in range(4)):
        scale = params[norm]["scale"] / jnp.sqrt(statistics[norm]["var"] + EPSILON)
        kernel, bias = params[name]["kernel"], params[name]["bias"]
        folded[name, "kernel"] = kernel * scale[None, None, None, :]
        folded[name, "bias"] = (bias - statistics[norm]["mean"]) * scale + params[norm]["bias"]
    return unflatten_dict(folded)
