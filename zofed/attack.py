"""Federated black-box attack: one perturbation that makes a classifier err on all clients' images (FedZO, V-A)."""

from collections.abc import Callable
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from zofed import checks
from zofed.base import ClientData, Params, per_client_mean
from zofed.tasks import Task, TaskData, in_blocks

__all__ = ["SCORES", "adversarial", "attack", "check_shrink", "distortion"]

SCORES: dict[str, Callable[[jax.Array], jax.Array]] = {
    "logits": lambda logits: logits,
    "logprob": jax.nn.log_softmax,
    "prob": jax.nn.softmax,
}
"""What the attacker sees of a classifier's logits, by the name that configs use."""

_LARGEST_TANH = np.nextafter(np.float32(1), np.float32(0))


def _tanh(perturbation: jax.Array) -> jax.Array:
    """tanh, strictly between -1 and 1: float32's own is 1 from 9 on, and a saturated pixel would become 0 / 0."""
    return jnp.clip(jnp.tanh(perturbation), -_LARGEST_TANH, _LARGEST_TANH)


def adversarial(perturbation: jax.Array, image: jax.Array) -> jax.Array:
    """1/2 tanh(atanh(2 z) + x), the images z moved by x within [-0.5, 0.5].

    Computed as 1/2 (u + t) / (1 + u t), where u = 2 z and t = tanh(x), which is the same number, so that tanh is taken
    once for all images, and of no infinite value: a saturated pixel, u = 1 or -1, stays what it is whatever x is, as in
    the formula, and its gradient is 0 but for round-off.

    Args:
        perturbation: x, of an image's shape.
        image: z, [batch, ...] with pixels in [-0.5, 0.5].

    Example:
        >>> adversarial(jnp.array([0.0, 9.0, -9.0]), jnp.array([[0.2, 0.2, 0.5]]))
        Array([[0.2, 0.5, 0.5]], dtype=float32)
    """
    u, t = 2 * image, _tanh(perturbation)[None]
    return (u + t) / (1 + u * t) / 2


def distortion(perturbation: jax.Array, image: jax.Array) -> jax.Array:
    """||z' - z||^2 of each image, [batch], where z' is its `adversarial` one."""
    u, t = 2 * image, _tanh(perturbation)[None]
    # z' - z without the difference of two numbers that are nearly equal
    moved = t * ((1 - u) * (1 + u)) / (1 + u * t) / 2
    return jnp.sum(jnp.square(moved), axis=tuple(range(1, image.ndim)))


def check_shrink(name: str, shrink: float) -> None:
    """Raises ValueError unless `shrink` keeps pixels within their range."""
    checks.positive(name, shrink)
    if shrink > 1:
        raise ValueError(f"{name}={shrink}; allowed: from above 0 to 1")


def attack(
    classifier: Callable[[jax.Array], jax.Array],
    samples: dict[str, np.ndarray],
    partition: list[np.ndarray],
    test: dict[str, np.ndarray],
    scores: str = "logits",
    distortion_weight: float = 1.0,
    shrink: float = 1.0,
    evaluation_block: int | None = 96,
) -> Task:
    """The attack loss psi(x) = max(s_y - max_{j != y} s_j, 0) + c ||z' - z||^2, with scores s of z' = 1/2 tanh(...).

    Its model is x, which starts at 0. Evaluation adds to `train_loss`: `attack_accuracy`, the share of all clients'
    images that the classifier gets wrong; `distortion`, the mean of ||z' - z||^2 over them; and the same of `test`,
    images that no client has, to which the attack may transfer.

    Args:
        classifier: `image[batch, ...] -> logits[batch, classes]`, of pixels in [-0.5, 0.5]. Its weights, which all
            points share, are the function's own.
        samples: "image", float32[samples, ...] in [-0.5, 0.5], and "label": all clients' images.
        partition: the samples of each client.
        test: likewise, images to transfer to.
        scores: a name in `SCORES`: `logits` (the code of FedZO's authors, Carlini and Wagner), `logprob` or `prob`;
            the paper's "prediction confidence" may be any.
        distortion_weight: c.
        shrink: factor of z in the tanh^-1; Carlini and Wagner's 0.999999 lets saturated pixels move.
        evaluation_block: images that are evaluated at once; None: all.

    Raises:
        ValueError: a setting or an image is out of range.

    Source:
        Fang et al. 2022, V-A, after Carlini and Wagner 2017, arXiv:1608.04644, and Chen et al. 2017, arXiv:1708.03999.
    """
    see = SCORES[checks.choice("scores", scores, SCORES)]
    checks.nonnegative("distortion_weight", distortion_weight)
    check_shrink("shrink", shrink)
    for images in (samples["image"], test["image"]):
        if images.size and not (np.abs(images) <= 0.5).all():
            raise ValueError("the images have pixels out of [-0.5, 0.5]")
    prepared = lambda split: {"image": np.float32(split["image"]), "label": np.int32(split["label"])}  # noqa: E731
    clients = ClientData.from_partition(prepared(samples), partition)
    shape = samples["image"].shape[1:]

    def judge(params: Params, batch: Any) -> tuple[jax.Array, jax.Array, jax.Array]:
        image, label = shrink * batch["image"], batch["label"]
        seen = see(classifier(adversarial(params, image)))
        own = jax.nn.one_hot(label, seen.shape[-1], dtype=bool)
        margin = jnp.sum(jnp.where(own, seen, 0), axis=-1) - jnp.max(jnp.where(own, -jnp.inf, seen), axis=-1)
        distance = distortion(params, image)
        return jnp.maximum(margin, 0) + distortion_weight * distance, (margin < 0).astype(jnp.float32), distance

    def loss(params: Params, batch: Any) -> jax.Array:
        return judge(params, batch)[0]

    def evaluate(params: Params, data: TaskData) -> dict[str, jax.Array]:
        losses, fooled, distances = in_blocks(partial(judge, params), data.clients.samples, evaluation_block)
        measured = {"attack_accuracy": jnp.mean(fooled), "distortion": jnp.mean(distances)}
        test_losses, test_fooled, _ = in_blocks(partial(judge, params), data.test, evaluation_block)
        transferred = {"test_loss": jnp.mean(test_losses), "test_attack_accuracy": jnp.mean(test_fooled)}
        return {"train_loss": per_client_mean(losses, data.clients), **measured, **transferred}

    return Task(
        lambda key: jnp.zeros(shape), loss, evaluate, TaskData(clients, jax.tree.map(jnp.asarray, prepared(test)))
    )
