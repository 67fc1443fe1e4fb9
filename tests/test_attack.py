"""The attack against its formula, with tanh^-1 and infinities, in numpy and float64."""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from experiments import attack_tasks, build, execution
from experiments.configs import fedzo_cifar_attack
from zofed import tasks
from zofed.attack import SCORES, adversarial, attack, distortion
from zofed.data import Dataset
from zofed.sequential import one_model_at_a_time
from zofed.tasks import Task

SHAPE, CLASSES, CLIENTS = (4, 3, 3), 5, 3
GENERATOR = np.random.default_rng(0)
WEIGHTS = GENERATOR.standard_normal((36, CLASSES)).astype(np.float32)
PARTITION = [np.array([4, 0]), np.array([1, 2, 3, 5, 6]), np.array([7])]


def images(number: int) -> dict[str, np.ndarray]:
    """Of pixels in [-0.5, 0.5], some of them black, some white."""
    image = np.clip(GENERATOR.uniform(-0.7, 0.7, (number, *SHAPE)), -0.5, 0.5).astype(np.float32)
    return {"image": image, "label": GENERATOR.integers(0, CLASSES, number).astype(np.int32)}


SAMPLES, TEST = images(8), images(6)


def classifier(image: jax.Array) -> jax.Array:
    return image.reshape(image.shape[0], -1) @ WEIGHTS


def task_of(scores: str = "logits", weight: float = 1.0, shrink: float = 1.0) -> Task:
    return attack(classifier, SAMPLES, PARTITION, TEST, scores, weight, shrink, evaluation_block=3)


def scores64(logits: np.ndarray, scores: str) -> np.ndarray:
    probabilities = np.exp(logits) / np.exp(logits).sum(axis=1, keepdims=True)
    return {"logits": logits, "logprob": np.log(probabilities), "prob": probabilities}[scores]


def attack64(x: np.ndarray, batch: dict[str, np.ndarray], scores: str, weight: float, shrink: float) -> np.ndarray:
    """[3, batch]: losses, whether the classifier is wrong, distortions."""
    image: Any = np.float64(np.float32(shrink) * batch["image"])
    with np.errstate(divide="ignore"):
        moved = 0.5 * np.tanh(np.arctanh(2 * image) + x)
    seen = scores64(moved.reshape(len(image), -1) @ np.float64(WEIGHTS), scores)
    rows = np.arange(len(image))
    own = seen[rows, batch["label"]]
    seen[rows, batch["label"]] = -np.inf
    distances = np.square(moved - image).reshape(len(image), -1).sum(axis=1)
    return np.stack([np.maximum(own - seen.max(axis=1), 0) + weight * distances, own < seen.max(axis=1), distances])


@pytest.mark.parametrize(
    ("scores", "weight", "shrink"), [("logits", 1.0, 1.0), ("logprob", 0.3, 0.999), ("prob", 2, 1)]
)
def test_losses_and_metrics_are_the_papers(scores: str, weight: float, shrink: float) -> None:
    x = GENERATOR.standard_normal(SHAPE)
    task, params = task_of(scores, weight, shrink), jnp.asarray(x, jnp.float32)
    x = np.asarray(params, np.float64)
    losses, fooled, distances = attack64(x, SAMPLES, scores, weight, shrink)
    assert 0 < fooled.sum() < len(fooled)
    np.testing.assert_allclose(task.loss(params, SAMPLES), losses, rtol=0, atol=2e-6)
    found = {name: float(value) for name, value in jax.jit(task.evaluate)(params, task.data).items()}
    test_losses, test_fooled, _ = attack64(x, TEST, scores, weight, shrink)
    expected = {
        "train_loss": np.mean([losses[own].mean() for own in PARTITION]),
        "attack_accuracy": fooled.mean(),
        "distortion": distances.mean(),
        "test_loss": test_losses.mean(),
        "test_attack_accuracy": test_fooled.mean(),
    }
    assert found == pytest.approx({name: float(value) for name, value in expected.items()}, abs=2e-6)


@pytest.mark.parametrize("size", [1e-6, 1.0, 8.0, 30.0])
def test_saturated_pixels_stay_and_nothing_is_nan(size: float) -> None:
    """Black and white pixels are moved by no perturbation, of any size; their derivative is 0 but for round-off."""
    image = np.tile(np.array([-0.5, 0.5, 0.25], np.float32), (1, 12)).reshape(1, *SHAPE)
    x = jnp.asarray(size * np.sign(GENERATOR.standard_normal(SHAPE)), jnp.float32)
    moved = np.asarray(adversarial(x, jnp.asarray(image)))
    np.testing.assert_array_equal(moved[np.abs(image) == 0.5], image[np.abs(image) == 0.5])
    assert (np.abs(moved) <= 0.5).all()
    assert (np.sign(moved - image) == np.sign(x) * (image == 0.25)).all()
    batch = {"image": jnp.asarray(image), "label": jnp.zeros(1, jnp.int32)}
    slope = np.asarray(jax.grad(lambda x: task_of().loss(x, batch)[0])(x))
    assert np.isfinite(slope).all()
    if size <= 1:
        assert np.abs(slope[np.abs(image[0]) == 0.5]).max() < 1e-5 * np.abs(slope).max()


def test_small_changes_keep_their_digits() -> None:
    """A finite difference of the distortion sees a perturbation of 1e-6, whose square is far below float32's unit."""
    x = 1e-6 * GENERATOR.standard_normal(SHAPE)
    found = distortion(jnp.asarray(x, jnp.float32), jnp.asarray(SAMPLES["image"]))
    image = np.float64(SAMPLES["image"])
    expected = np.square(x * (0.5 - 2 * image**2)).reshape(8, -1).sum(axis=1)
    np.testing.assert_allclose(found, expected, rtol=1e-4)


def test_bad_settings_are_named() -> None:
    with pytest.raises(ValueError, match="scores='votes'; allowed: 'logits', 'logprob', 'prob'"):
        task_of("votes")
    with pytest.raises(ValueError, match=r"shrink=1\.5; allowed: from above 0 to 1"):
        task_of(shrink=1.5)
    with pytest.raises(ValueError, match="distortion_weight=-1; allowed"):
        task_of(weight=-1)
    with pytest.raises(ValueError, match="out of"):
        attack(classifier, {**SAMPLES, "image": SAMPLES["image"] + 1}, PARTITION, TEST)
    assert set(SCORES) == {"logits", "logprob", "prob"}


def test_the_papers_attack_has_its_images(load_real: Callable[[str], Dataset]) -> None:
    """4,131 deer of the training set and 797 of the test set are classified correctly; clients share none."""
    load_real("cifar10")
    config = fedzo_cifar_attack.get_config()
    build.check(config)
    task = build.task_of(config)
    clients, test = task.data.clients, task.data.test
    assert (clients.samples["image"].shape, len(test["label"])) == ((4131, 32, 32, 3), 797)
    assert build.dimension_of(task) == 3072
    assert len(set(np.asarray(clients.sizes).tolist())) > 1
    assert len(np.unique(np.asarray(clients.samples["image"]).reshape(4131, -1), axis=0)) == 4131
    # At x = 0 nobody is fooled, and the loss is the margin of the logits.
    batch = jax.tree.map(lambda leaf: leaf[:8], clients.samples)
    losses = np.asarray(task.loss(jnp.zeros((32, 32, 3)), batch))
    logits = np.asarray(attack_tasks._victim("resnet8")(batch["image"]))
    assert set(np.asarray(clients.samples["label"]).tolist()) == {4}
    np.testing.assert_allclose(losses, logits[:, 4] - np.delete(logits, 4, axis=1).max(axis=1), atol=1e-4)
    assert (losses > 0).all()


def test_clients_of_the_authors_code_share_images() -> None:
    data = fedzo_cifar_attack.get_config().data
    sizes = [len(own) for own in attack_tasks._partition(data, 500, 4)]
    data.partition = "overlapping"
    parts = attack_tasks._partition(data, 500, 4)
    assert [len(own) for own in parts] == sizes
    assert all(len(np.unique(own)) == len(own) for own in parts)
    assert len(np.unique(np.concatenate(parts))) < 500


def test_clients_that_are_absent_from_a_varying_cohort_are_not_played() -> None:
    """On a CPU, models are evaluated one after another: a block of all clients would evaluate the absent ones, too."""
    config = fedzo_cifar_attack.get_config()
    whole = tasks.quadratic(dim=3072)
    task = whole._replace(loss=one_model_at_a_time(whole.loss))
    assert execution.chunks(config, task).clients is None
    config.participation = "gain_threshold"
    assert execution.chunks(config, task).clients == 1
