"""Tasks: a model on the clients' data, ready to optimise and to evaluate."""

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from zofed import checks
from zofed.base import ClientData, LossFn, Params, per_client_mean
from zofed.data import Dataset
from zofed.models import softmax

__all__ = ["Task", "TaskData", "classification", "quadratic", "softmax_regression"]


class TaskData(NamedTuple):
    """Data of a task: an argument of every program, never a constant in one.

    Attributes:
        clients: the clients' data.
        test: what evaluation sees besides, or `()`.
    """

    clients: ClientData
    test: Any


class Task(NamedTuple):
    """What is optimised.

    Attributes:
        init: `key -> params`.
        loss: `(params, batch) -> losses`, one per example.
        evaluate: `(params, data) -> {name: scalar}`; `train_loss` is f(x), the mean of the clients' mean losses.
        data: the task's own data.
    """

    init: Callable[[jax.Array], Params]
    loss: LossFn
    evaluate: Callable[[Params, TaskData], dict[str, jax.Array]]
    data: TaskData

    def loss_value(self, params: Params) -> jax.Array:
        """f(x) of the task's own clients."""
        return self.evaluate(params, self.data)["train_loss"]


def quadratic(
    dim: int = 100,
    num_clients: int = 10,
    samples_per_client: int = 1,
    condition: float = 10.0,
    heterogeneity: float = 1.0,
    noise: float = 0.0,
    seed: int = 0,
) -> Task:
    """Federated quadratic: F(x, c) = 1/2 sum_j a_j (x_j - c_j)^2, a sample c being the client's centre plus noise.

    Its minimiser is the mean of the clients' mean samples; L = max a_j = 1.

    Args:
        dim: d.
        num_clients: N.
        samples_per_client: number of samples c of a client.
        condition: max a_j / min a_j; the spectrum is geometric between 1 / condition and 1.
        heterogeneity: standard deviation of an entry of a client's centre about 1.
        noise: standard deviation of an entry of a sample about its client's centre.
        seed: of the centres and samples.

    Example:
        >>> task = quadratic(dim=3, num_clients=2, heterogeneity=0.0)
        >>> task.loss_value(task.init(jax.random.key(0)))  # 1/2 (1 + 1/sqrt(10) + 1/10)
        Array(0.7081139, dtype=float32)
    """
    dim, num_clients = checks.count("dim", dim), checks.count("num_clients", num_clients)
    samples = checks.count("samples_per_client", samples_per_client)
    checks.positive("condition", condition)
    if condition < 1:
        raise ValueError(f"condition={condition}; allowed: a finite number >= 1")
    checks.nonnegative("heterogeneity", heterogeneity)
    checks.nonnegative("noise", noise)
    generator = np.random.default_rng(checks.count("seed", seed, at_least=0))
    centres = 1 + heterogeneity * generator.standard_normal((num_clients, 1, dim))
    centres = centres + noise * generator.standard_normal((num_clients, samples, dim))
    indices = np.arange(num_clients * samples).reshape(num_clients, samples)
    centres = centres.reshape(-1, dim).astype(np.float32)
    clients = ClientData.from_partition(centres, list(indices))

    def loss(params: Params, batch: jax.Array) -> jax.Array:
        exponents = jnp.arange(dim, dtype=jnp.float32) / max(dim - 1, 1)
        spectrum = jnp.float32(condition) ** -exponents
        return 0.5 * jnp.sum(spectrum[None, :] * jnp.square(params[None, :] - batch), axis=-1)

    def evaluate(params: Params, data: TaskData) -> dict[str, jax.Array]:
        return {"train_loss": per_client_mean(loss(params, data.clients.samples), data.clients)}

    return Task(lambda key: jnp.zeros(dim), loss, evaluate, TaskData(clients, ()))


def classification(
    init: Callable[[jax.Array], Params],
    apply: Callable[[Params, jax.Array], jax.Array],
    dataset: Dataset,
    partition: list[np.ndarray],
) -> Task:
    """Cross-entropy of a classifier's logits; images are scaled to [0, 1].

    Args:
        init: `key -> params`.
        apply: `(params, image[batch, ...]) -> logits[batch, classes]`.
        dataset: train and test images and labels.
        partition: the training samples of each client.
    """

    def prepared(split: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
        image = split["image"].astype(np.float32) / np.float32(dataset.max_pixel)
        return {"image": image, "label": split["label"].astype(np.int32)}

    clients = ClientData.from_partition(prepared(dataset.train), partition)
    test = jax.tree.map(jnp.asarray, prepared(dataset.test))

    def loss(params: Params, batch: Any) -> jax.Array:
        return _cross_entropy(apply(params, batch["image"]), batch["label"])

    def evaluate(params: Params, data: TaskData) -> dict[str, jax.Array]:
        train_losses = loss(params, data.clients.samples)
        logits = apply(params, data.test["image"])
        correct = jnp.argmax(logits, axis=-1) == data.test["label"]
        return {
            "train_loss": per_client_mean(train_losses, data.clients),
            "test_loss": jnp.mean(_cross_entropy(logits, data.test["label"])),
            "test_accuracy": jnp.mean(correct.astype(jnp.float32)),
        }

    return Task(init, loss, evaluate, TaskData(clients, test))


def _cross_entropy(logits: jax.Array, labels: jax.Array) -> jax.Array:
    logits = logits.astype(jnp.float32)
    picked = jnp.take_along_axis(logits, labels[:, None], axis=-1)[:, 0]
    return jax.nn.logsumexp(logits, axis=-1) - picked


def softmax_regression(dataset: Dataset, partition: list[np.ndarray]) -> Task:
    """Softmax regression on images, from zero weights: FedZO V-B. dim = classes * (pixels + 1)."""
    num_features = int(np.prod(dataset.train["image"].shape[1:]))
    return classification(
        lambda key: softmax.init(num_features, dataset.num_classes), softmax.apply, dataset, partition
    )
