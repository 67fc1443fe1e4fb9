"""ResNet-8, the small residual network of MLPerf Tiny for CIFAR-10 (Banbury et al., 2021)."""

import flax.linen as nn
import jax
import jax.numpy as jnp

from zofed.models.classifier import Classifier, classifier

__all__ = ["resnet8"]


class _ResNet8(nn.Module):
    num_classes: int
    num_groups: int | None

    @nn.compact
    def __call__(self, image: jax.Array) -> jax.Array:
        image = nn.relu(self._conv(image, 16, 1, "stem"))
        for number, (features, strides) in enumerate(((16, 1), (32, 2), (64, 2)), start=1):
            inner = nn.relu(self._conv(image, features, strides, f"stage{number}_first"))
            outer = self._conv(inner, features, 1, f"stage{number}_second")
            if strides > 1:
                image = nn.Conv(features, (1, 1), strides=strides, name=f"stage{number}_skip")(image)
            image = nn.relu(outer + image)
        return nn.Dense(self.num_classes, name="head")(jnp.mean(image, axis=(1, 2)))

    def _conv(self, image: jax.Array, features: int, strides: int, name: str) -> jax.Array:
        bare = self.num_groups is None
        image = nn.Conv(features, (3, 3), strides=strides, use_bias=bare, name=name)(image)
        return image if bare else nn.GroupNorm(self.num_groups, epsilon=1e-5, name=f"{name}_norm")(image)


def resnet8(num_classes: int = 10, num_groups: int | None = 8) -> Classifier:
    """3x3 convolutions of 16, 32 and 64 features in three residual blocks: 77,946 parameters, or 77,706 unnormalised.

    GroupNorm stands where the original has BatchNorm, whose statistics of a batch would make an example's loss depend
    on the others of its batch.

    Args:
        num_classes: outputs.
        num_groups: of GroupNorm. None: no normalisation but biases in all convolutions, the form that takes a trained
            network whose BatchNorm was folded into them.
    """
    return classifier(_ResNet8(num_classes, num_groups), (32, 32, 3))
