"""Two tasks that JAX cannot see into, for they run scikit-learn: an attack on its classifier, and federated tuning."""

import importlib.util
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from zofed import checks
from zofed.attack import attack, check_shrink
from zofed.base import ClientData, Params, per_client_mean
from zofed.blackbox import blackbox
from zofed.data import partitions
from zofed.data.datasets import load
from zofed.sequential import in_one_batch
from zofed.tasks import Task, TaskData

__all__ = ["NAMES", "VICTIMS", "check", "needed", "task_of"]

NAMES = ("digits_attack", "digits_tuning")
VICTIMS = ("forest", "mlp")
"""A random forest, which is constant but for jumps and so needs a large smoothing, and a network of one layer."""


def needed(name: str) -> str:
    """A setting that only this task has."""
    return {"digits_attack": "victim", "digits_tuning": "folds"}[name]


def check(data: Any, num_clients: int) -> None:
    """Raises ValueError unless the task can be made."""
    if importlib.util.find_spec("sklearn") is None:
        raise ValueError(f"data.name={data.name!r} needs scikit-learn: pip install 'zofed[blackbox]'")
    if data.name == "digits_attack":
        checks.choice("data.victim", data.victim, VICTIMS)
        checks.choice("data.scores", data.scores, ("logprob", "prob"))
        checks.nonnegative("data.distortion_weight", data.distortion_weight)
        check_shrink("data.shrink", data.shrink)
        checks.count("data.label", data.label, at_least=0, at_most=9)
    else:
        checks.count("data.folds", data.folds, at_least=2, at_most=_fewest(data, num_clients), limit="a client's data")


def task_of(data: Any, num_clients: int) -> Task:
    """The task of data settings that `check` has let through."""
    return (_attack if data.name == "digits_attack" else _tuning)(data, num_clients)


def _flat(split: dict[str, np.ndarray]) -> tuple[np.ndarray, np.ndarray]:
    """Features [samples, 64] in [-0.5, 0.5], and labels."""
    return split["image"].reshape(-1, 64).astype(np.float32) / np.float32(16) - np.float32(0.5), split["label"]


def _attack(data: Any, num_clients: int) -> Task:
    """The victim answers with probabilities; tanh, scores and distortion are JAX's part of the loss."""
    from sklearn.ensemble import RandomForestClassifier
    from sklearn.neural_network import MLPClassifier

    digits = load("digits")
    features, labels = _flat(digits.train)
    victim: Any = {
        "forest": lambda: RandomForestClassifier(100, random_state=data.seed),
        "mlp": lambda: MLPClassifier((32,), max_iter=500, random_state=data.seed),
    }[data.victim]()
    victim.fit(features, labels)
    box = blackbox(lambda image: victim.predict_proba(image.reshape(-1, 64)), shape=(10,), name=data.victim)

    def correct(split: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
        features, labels = _flat(split)
        right = (labels == data.label) & (victim.predict(features) == labels)
        return {"image": features[right].reshape(-1, 8, 8), "label": labels[right]}

    samples = correct(digits.train)
    partition = partitions.random_sizes(len(samples["label"]), num_clients, data.seed)
    logits = lambda image: jnp.log(jnp.maximum(box(image), 1e-20))  # noqa: E731
    weight = data.distortion_weight
    task = attack(logits, samples, partition, correct(digits.test), data.scores, weight, data.shrink, None)
    return task._replace(loss=in_one_batch(task.loss), black_boxes=(box,))


def _fewest(data: Any, num_clients: int) -> int:
    return min(len(own) for own in _shares(data, num_clients))


def _shares(data: Any, num_clients: int) -> list[np.ndarray]:
    return partitions.dirichlet(load("digits").train["label"], num_clients, data.dirichlet_alpha, data.seed, min_size=8)


def _tuning(data: Any, num_clients: int) -> Task:
    """F_i(x, k): mean squared validation error on fold k of client i's digits of one-hot kernel ridge regression, whose
    regularisation is 10^x_0 and whose kernel exp(-10^x_1 ||a - b||^2), trained on the client's other folds.

    A client's samples are its folds. `test_accuracy` is that of the same model trained on all clients' digits.
    """
    from sklearn.kernel_ridge import KernelRidge

    digits = load("digits")
    features, labels = _flat(digits.train)
    targets, shares = np.eye(10)[labels], _shares(data, num_clients)

    def fitted(point: np.ndarray, chosen: np.ndarray) -> Any:
        alpha, gamma = 10.0 ** np.clip(np.asarray(point, np.float64), -8, 8)
        return KernelRidge(kernel="rbf", alpha=alpha, gamma=gamma).fit(features[chosen], targets[chosen])

    def validation(points: np.ndarray, sample: dict[str, np.ndarray]) -> list[float]:
        errors = []
        for point, client, fold in zip(points, sample["client"], sample["fold"], strict=True):
            own = shares[client]
            held_out = np.arange(len(own)) % data.folds == fold
            predicted = fitted(point, own[~held_out]).predict(features[own[held_out]])
            errors.append(np.square(predicted - targets[own[held_out]]).sum(axis=1).mean())
        return errors

    test_features, test_labels = _flat(digits.test)

    def accuracy(points: np.ndarray) -> list[float]:
        models = [fitted(point, np.arange(len(labels))) for point in points]
        return [np.mean(model.predict(test_features).argmax(axis=1) == test_labels) for model in models]

    box, judge = blackbox(validation), blackbox(accuracy)
    pairs = np.stack(np.meshgrid(np.arange(num_clients), np.arange(data.folds), indexing="ij"), -1).reshape(-1, 2)
    samples = {"client": pairs[:, 0].astype(np.int32), "fold": pairs[:, 1].astype(np.int32)}
    clients = ClientData.from_partition(samples, list(np.arange(len(pairs)).reshape(num_clients, -1)))

    def evaluate(params: Params, own: TaskData) -> dict[str, jax.Array]:
        losses = box.loss(params, own.clients.samples)
        return {"train_loss": per_client_mean(losses, own.clients), "test_accuracy": judge(params[None])[0]}

    start: Callable[[jax.Array], jax.Array] = lambda key: jnp.array([1.0, 0.5])  # noqa: E731
    return Task(start, box.loss, evaluate, TaskData(clients, ()), (box, judge))
