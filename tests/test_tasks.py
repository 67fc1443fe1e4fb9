"""Tasks: what is trained and evaluated, against numpy in float64."""

import math
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from zofed import tasks
from zofed.data import NORMALISATIONS, Dataset, Normalisation
from zofed.tasks import Task

NUM_CLASSES = 62
PARTITION = [np.array([6, 0, 3]), np.array([1, 5]), np.array([2]), np.array([4])]


def split(size: int) -> dict[str, np.ndarray]:
    generator = np.random.default_rng(size)
    image = generator.integers(0, 256, (size, 2, 2, 3), np.uint8)
    return {"image": image, "label": generator.integers(0, 10, size)}


DATASET = Dataset("made up", split(7), split(5), num_classes=10, max_pixel=255)


def init(key: jax.Array) -> jax.Array:
    return jax.random.normal(key, (12, NUM_CLASSES))


def apply(params: Any, image: jax.Array) -> jax.Array:
    return image.reshape(image.shape[0], -1) @ params


def expected(params: Any, normalisation: Normalisation | None) -> dict[str, float]:
    """The three scores, sample by sample."""

    def logits_and_loss(image: np.ndarray, label: int) -> tuple[np.ndarray, float]:
        x = image.astype(np.float64) / 255
        if normalisation is not None:
            x = (x - normalisation.mean) / normalisation.deviation
        logits = x.reshape(-1) @ np.asarray(params, np.float64)
        return logits, math.log(np.exp(logits).sum()) - logits[label]

    train = [logits_and_loss(*sample)[1] for sample in zip(DATASET.train["image"], DATASET.train["label"], strict=True)]
    test = [logits_and_loss(*sample) for sample in zip(DATASET.test["image"], DATASET.test["label"], strict=True)]
    hits = [logits.argmax() == label for (logits, _), label in zip(test, DATASET.test["label"], strict=True)]
    return {
        "train_loss": float(np.mean([np.mean([train[sample] for sample in own]) for own in PARTITION])),
        "test_loss": float(np.mean([loss for _, loss in test])),
        "test_accuracy": float(np.mean(hits)),
    }


def evaluated(task: Task, params: Any) -> dict[str, float]:
    return {name: float(value) for name, value in jax.jit(task.evaluate)(params, task.data).items()}


@pytest.mark.parametrize("block", [None, 1, 2, 5, 7, 100])
@pytest.mark.parametrize("normalisation", [None, NORMALISATIONS["cifar10"]])
def test_scores_are_exact_means_whatever_the_block(block: int | None, normalisation: Normalisation | None) -> None:
    """7 and 5 samples are no multiples of 2; clients weigh equally, and have 3, 2, 1 and 1."""
    task = tasks.classification(init, apply, DATASET, PARTITION, normalisation, evaluation_block=block)
    params = task.init(jax.random.key(0))
    assert evaluated(task, params) == pytest.approx(expected(params, normalisation), rel=1e-5)


def test_a_head_may_have_classes_that_never_occur() -> None:
    """Images that show their label: the accuracy is over all 62 logits, 1 where they show it and 0 where one that no
    image has is the largest."""
    label = np.arange(10)
    shown = {"image": 255 * np.eye(10, dtype=np.uint8), "label": label}
    task = tasks.classification(init, apply, Dataset("shown", shown, shown, 10, 255), [label])
    right = 30 * jnp.eye(10, NUM_CLASSES)
    assert evaluated(task, right) == pytest.approx({"train_loss": 0, "test_loss": 0, "test_accuracy": 1}, abs=1e-6)
    found = evaluated(task, jnp.roll(right, 20, axis=1))
    assert found == pytest.approx({"train_loss": 30, "test_loss": 30, "test_accuracy": 0}, rel=1e-5)


def test_blocks_keep_memory_small() -> None:
    """A layer of 10,000 units over 2,000 samples is 80 MB at once."""
    weights = jnp.ones((1, 10_000))

    def wide(x: jax.Array) -> jax.Array:
        return jnp.sum(jnp.sort(x[:, None] @ weights, axis=1), axis=1)

    def memory(block: int | None) -> int:
        compiled = jax.jit(lambda x: tasks.in_blocks(wide, x, block)).lower(jnp.zeros(2000)).compile()
        analysis = compiled.memory_analysis()
        assert analysis is not None
        return analysis.temp_size_in_bytes

    assert memory(20) < memory(None) / 20


def test_published_normalisations_centre_the_real_images(load_real: Any) -> None:
    """MNIST's and CIFAR-10's are the sets' own mean; MNIST's deviation too. Fashion-MNIST's maps [0, 1] to [-1, 1]."""
    mnist, cifar10 = (load_real(name).train["image"] for name in ("mnist", "cifar10"))
    assert mnist.mean() / 255 == pytest.approx(NORMALISATIONS["mnist"].mean[0], abs=5e-5)
    assert mnist.std() / 255 == pytest.approx(NORMALISATIONS["mnist"].deviation[0], abs=5e-5)
    np.testing.assert_allclose(cifar10.mean(axis=(0, 1, 2)) / 255, NORMALISATIONS["cifar10"].mean, atol=5e-5)
