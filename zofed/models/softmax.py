"""Softmax regression, the convex model of FedZO's experiments (V-B)."""

from typing import Any

import jax
import jax.numpy as jnp

__all__ = ["apply", "init"]


def init(num_features: int, num_classes: int) -> dict[str, jax.Array]:
    """All zeros: every class equally likely. Weights are [classes, features], the faster layout on CPU.

    Example:
        >>> {name: leaf.shape for name, leaf in init(784, 10).items()}
        {'bias': (10,), 'weights': (10, 784)}
    """
    return {"bias": jnp.zeros(num_classes), "weights": jnp.zeros((num_classes, num_features))}


def apply(params: Any, image: jax.Array) -> jax.Array:
    """Logits [batch, classes] of images [batch, ...]."""
    features = image.reshape(image.shape[0], -1).astype(params["weights"].dtype)
    return features @ params["weights"].T + params["bias"][None, :]
