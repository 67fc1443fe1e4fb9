"""From a config's data settings to the black-box attack of FedZO's paper: on a trained classifier of CIFAR-10."""

import functools
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from zofed import checks
from zofed.attack import SCORES, attack, check_shrink
from zofed.data import partitions
from zofed.data.datasets import load
from zofed.models.carlini import carlini_cnn
from zofed.models.pretrained import load_params, resnet8_cifar10
from zofed.models.resnet import resnet8
from zofed.sequential import one_model_at_a_time
from zofed.tasks import Task

__all__ = ["NAMES", "PARTITIONS", "check", "needed", "task_of"]

NAMES = ("cifar10_attack",)
PARTITIONS = ("equal", "overlapping", "random_sizes")
_BLOCK = 100


def needed(name: str) -> str:
    """A setting that only attacks have."""
    del name
    return "victim"


def check(data: Any, num_clients: int) -> None:
    """Raises ValueError unless the attack can be made; MissingDataError where CIFAR-10 is not on this machine."""
    checks.choice("data.partition", data.partition, PARTITIONS)
    checks.choice("data.scores", data.scores, SCORES)
    checks.nonnegative("data.distortion_weight", data.distortion_weight)
    check_shrink("data.shrink", data.shrink)
    checks.count("data.label", data.label, at_least=0, at_most=9)
    checks.count("data.keep_every", data.keep_every)
    checks.count("num_clients", num_clients)
    if data.victim != "resnet8" and not Path(data.victim).is_file():
        raise ValueError(
            f"data.victim={data.victim!r}; allowed: 'resnet8', or a file made by python -m experiments.train_carlini"
        )
    load("cifar10", data.directory)


def task_of(data: Any, num_clients: int) -> Task:
    """The task of data settings that `check` has let through.

    The clients' images are those of the class `data.label` in the training set that the victim gets right; those of the
    test set are what the attack may transfer to.
    """
    classifier = _victim(data.victim)
    samples, test = (
        _correct(data.victim, data.label, part, data.directory, data.keep_every) for part in ("train", "test")
    )
    partition = _partition(data, len(samples["label"]), num_clients)
    task = attack(classifier, samples, partition, test, data.scores, data.distortion_weight, data.shrink)
    return task._replace(loss=one_model_at_a_time(task.loss)) if jax.default_backend() == "cpu" else task


@functools.lru_cache(maxsize=4)
def _victim(name: str) -> Callable[[jax.Array], jax.Array]:
    """`image[batch, 32, 32, 3] -> logits`, of pixels in [-0.5, 0.5]."""
    if name == "resnet8":
        params, apply = resnet8_cifar10(), resnet8(num_groups=None).apply
        return lambda image: apply(params, 2 * image)
    params, apply = load_params(Path(name)), carlini_cnn().apply
    return lambda image: apply(params, image)


@functools.lru_cache(maxsize=8)
def _correct(victim: str, label: int, part: str, directory: str | None, keep_every: int) -> dict[str, np.ndarray]:
    """A class's images that the victim classifies correctly, and their labels."""
    split = getattr(load("cifar10", directory), part)
    image = split["image"][split["label"] == label].astype(np.float32) / np.float32(255) - np.float32(0.5)
    predict = jax.jit(lambda block: jnp.argmax(_victim(victim)(block), axis=-1))
    blocks = image.reshape(-1, _BLOCK, *image.shape[1:])
    right = np.concatenate([np.asarray(predict(block)) for block in blocks]) == label
    image = image[right][::keep_every]
    return {"image": image, "label": np.full(len(image), label, np.int32)}


def _partition(data: Any, num_images: int, num_clients: int) -> list[np.ndarray]:
    if data.partition == "equal":
        return partitions.iid(num_images, num_clients, data.seed)
    parts = partitions.random_sizes(num_images, num_clients, data.seed)
    if data.partition == "random_sizes":
        return parts
    # As the code of FedZO's authors has it, by an oversight: clients draw from all images, and share some.
    generator = np.random.default_rng(data.seed)
    return [generator.choice(num_images, len(own), replace=False) for own in parts]
