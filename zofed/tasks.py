"""Tasks: a model on the clients' data, ready to optimise and to evaluate."""

from collections.abc import Callable
from functools import lru_cache, partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from zofed import checks
from zofed.base import ClientData, LossFn, Params, per_client_mean
from zofed.data import Dataset, Normalisation
from zofed.models import softmax

__all__ = [
    "Task",
    "TaskData",
    "classification",
    "eigenvalues",
    "in_blocks",
    "logistic_regression",
    "quadratic",
    "softmax_regression",
]


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
        black_boxes: what the loss calls outside of JAX, `zofed.blackbox.BlackBox`es; a run asks them what failed.
    """

    init: Callable[[jax.Array], Params]
    loss: LossFn
    evaluate: Callable[[Params, TaskData], dict[str, jax.Array]]
    data: TaskData
    black_boxes: tuple[Any, ...] = ()

    def loss_value(self, params: Params) -> jax.Array:
        """f(x) of the task's own clients."""
        return self.evaluate(params, self.data)["train_loss"]


def eigenvalues(dim: int, condition: float = 10.0, effective_rank: float | None = None) -> jax.Array:
    """float32[dim], falling from 1: the spectrum of `quadratic`.

    Args:
        dim: d.
        condition: the first over the last of a geometric sequence, where effective_rank is None.
        effective_rank: kappa, from 1 to dim: the sum, tr(H) / ||H||, of 1 / (1 + j / c)^2, j = 0 ... dim - 1. All are
            positive, and most very small if dim is much larger; the sequence then hardly depends on dim.

    Raises:
        ValueError: a setting is out of range.

    Example:
        >>> eigenvalues(3, condition=4.0), round(float(eigenvalues(1000, effective_rank=5.0).sum()), 4)
        (Array([1.  , 0.5 , 0.25], dtype=float32), 5.0)
    """
    if effective_rank is None:
        checks.positive("condition", condition)
        if condition < 1:
            raise ValueError(f"condition={condition}; allowed: a finite number >= 1")
        exponents = jnp.arange(dim, dtype=jnp.float32) / max(dim - 1, 1)
        return jnp.float32(condition) ** -exponents
    if not 1 <= effective_rank <= dim:
        raise ValueError(f"effective_rank={effective_rank}; allowed: a number from 1 to dim={dim}")
    inverse = jnp.float32(_decay(dim, float(effective_rank)))
    return 1 / jnp.square(1 + inverse * jnp.arange(dim, dtype=jnp.float32))


@lru_cache
def _decay(dim: int, effective_rank: float) -> float:
    """1 / c with sum_j 1 / (1 + j / c)^2 = effective_rank, by bisection of its logarithm."""
    numbers, low, high = np.arange(dim), -60.0, 60.0
    for _ in range(60):
        middle = (low + high) / 2
        below = np.sum(1 / (1 + np.exp(middle) * numbers) ** 2) < effective_rank
        low, high = (low, middle) if below else (middle, high)
    return float(np.exp(high))


def quadratic(
    dim: int = 100,
    num_clients: int = 10,
    samples_per_client: int = 1,
    condition: float = 10.0,
    heterogeneity: float = 1.0,
    noise: float = 0.0,
    seed: int = 0,
    effective_rank: float | None = None,
    ripple: float = 0.0,
) -> Task:
    """Federated quadratic, or a smooth function that is not convex:

        F(x, c) = 1/2 sum_j a_j (x_j - c_j)^2 + ripple sum_j (1 - cos(x_j - 1)),

    a sample c being the client's centre plus noise. Its minimiser is the mean of the clients' mean samples. Where
    there is a ripple the samples are shifted so that this is 1, where the cosines have their minima, too; the function
    is not convex if ripple > min a_j. Its constants are `zofed.theory.closed_forms.quadratic`.

    Args:
        dim: d.
        num_clients: N.
        samples_per_client: number of samples c of a client.
        condition: max a_j / min a_j; the a_j are geometric between 1 / condition and 1.
        heterogeneity: standard deviation of an entry of a client's centre about 1.
        noise: standard deviation of an entry of a sample about its client's centre.
        seed: of the centres and samples.
        effective_rank: sum of the a_j, in the place of the condition: see `eigenvalues`.
        ripple: height of the cosines.

    Example:
        >>> task = quadratic(dim=3, num_clients=2, heterogeneity=0.0)
        >>> task.loss_value(task.init(jax.random.key(0)))  # 1/2 (1 + 1/sqrt(10) + 1/10)
        Array(0.7081139, dtype=float32)
    """
    dim, num_clients = checks.count("dim", dim), checks.count("num_clients", num_clients)
    samples = checks.count("samples_per_client", samples_per_client)
    eigenvalues(dim, condition, effective_rank)
    checks.nonnegative("heterogeneity", heterogeneity)
    checks.nonnegative("noise", noise)
    checks.nonnegative("ripple", ripple)
    generator = np.random.default_rng(checks.count("seed", seed, at_least=0))
    centres = 1 + heterogeneity * generator.standard_normal((num_clients, 1, dim))
    centres = centres + noise * generator.standard_normal((num_clients, samples, dim))
    if ripple > 0:
        centres += 1 - centres.mean(axis=(0, 1))
    indices = np.arange(num_clients * samples).reshape(num_clients, samples)
    centres = centres.reshape(-1, dim).astype(np.float32)
    clients = ClientData.from_partition(centres, list(indices))

    def loss(params: Params, batch: jax.Array) -> jax.Array:
        spectrum = eigenvalues(dim, condition, effective_rank)
        losses = 0.5 * jnp.sum(spectrum[None, :] * jnp.square(params[None, :] - batch), axis=-1)
        return losses + ripple * jnp.sum(1 - jnp.cos(params - 1)) if ripple > 0 else losses

    def evaluate(params: Params, data: TaskData) -> dict[str, jax.Array]:
        return {"train_loss": per_client_mean(loss(params, data.clients.samples), data.clients)}

    return Task(lambda key: jnp.zeros(dim), loss, evaluate, TaskData(clients, ()))


def logistic_regression(
    dim: int = 20,
    num_clients: int = 10,
    samples_per_client: int = 20,
    heterogeneity: float = 1.0,
    regularization: float = 0.01,
    seed: int = 0,
) -> Task:
    """Logistic regression on synthetic data: F(x, (a, y)) = log(1 + exp(-y <a, x>)) + regularization/2 ||x||^2.

    Features are normal about their client's mean; labels are 1 and -1, the sign of <a, w> plus noise of a tenth of its
    size. Its constants are `zofed.theory.closed_forms.logistic_regression`.

    Args:
        dim: d.
        num_clients: N.
        samples_per_client: samples of a client.
        heterogeneity: standard deviation of an entry of a client's mean feature.
        regularization: weight of the squared norm.
        seed: of the data.

    Example:
        >>> task = logistic_regression()
        >>> task.loss_value(task.init(jax.random.key(0)))  # log 2
        Array(0.6931..., dtype=float32)
    """
    dim, num_clients = checks.count("dim", dim), checks.count("num_clients", num_clients)
    samples = checks.count("samples_per_client", samples_per_client)
    checks.nonnegative("heterogeneity", heterogeneity)
    checks.nonnegative("regularization", regularization)
    generator = np.random.default_rng(checks.count("seed", seed, at_least=0))
    means = heterogeneity * generator.standard_normal((num_clients, 1, dim))
    features = (means + generator.standard_normal((num_clients, samples, dim))).reshape(-1, dim)
    products = features @ generator.standard_normal(dim)
    noise = 0.1 * np.std(products) * generator.standard_normal(len(products))
    labels = np.where(products + noise >= 0, np.float32(1), np.float32(-1))
    indices = np.arange(num_clients * samples).reshape(num_clients, samples)
    clients = ClientData.from_partition({"feature": features.astype(np.float32), "label": labels}, list(indices))

    def loss(params: Params, batch: Any) -> jax.Array:
        products = jnp.sum(batch["feature"] * params[None, :], axis=-1)
        return jax.nn.softplus(-batch["label"] * products) + regularization / 2 * jnp.sum(jnp.square(params))

    def evaluate(params: Params, data: TaskData) -> dict[str, jax.Array]:
        return {"train_loss": per_client_mean(loss(params, data.clients.samples), data.clients)}

    return Task(lambda key: jnp.zeros(dim), loss, evaluate, TaskData(clients, ()))


def classification(
    init: Callable[[jax.Array], Params],
    apply: Callable[[Params, jax.Array], jax.Array],
    dataset: Dataset,
    partition: list[np.ndarray],
    normalisation: Normalisation | None = None,
    evaluation_block: int | None = 250,
) -> Task:
    """Cross-entropy of a classifier's logits; images are scaled to [0, 1], and then normalised if so wanted.

    Args:
        init: `key -> params`.
        apply: `(params, image[batch, ...]) -> logits[batch, classes]`; there may be more classes than labels occur.
        dataset: train and test images and labels.
        partition: the training samples of each client.
        normalisation: mean and standard deviation of the scaled images, such as `zofed.data.NORMALISATIONS` has them.
        evaluation_block: images that are evaluated at once; None: all. A convolutional network would need gigabytes
            for all, and is fastest on CPU, too, at a few hundred.
    """

    def prepared(split: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
        image = split["image"].astype(np.float32) / np.float32(dataset.max_pixel)
        if normalisation is not None:
            mean, deviation = (np.asarray(values, np.float32) for values in normalisation)
            image = (image - mean) / deviation
        return {"image": image, "label": split["label"].astype(np.int32)}

    clients = ClientData.from_partition(prepared(dataset.train), partition)
    test = jax.tree.map(jnp.asarray, prepared(dataset.test))

    def loss(params: Params, batch: Any) -> jax.Array:
        return _cross_entropy(apply(params, batch["image"]), batch["label"])

    def scores(params: Params, batch: Any) -> tuple[jax.Array, jax.Array]:
        logits = apply(params, batch["image"])
        correct = jnp.argmax(logits, axis=-1) == batch["label"]
        return _cross_entropy(logits, batch["label"]), correct.astype(jnp.float32)

    def evaluate(params: Params, data: TaskData) -> dict[str, jax.Array]:
        train_losses = in_blocks(partial(loss, params), data.clients.samples, evaluation_block)
        test_losses, correct = in_blocks(partial(scores, params), data.test, evaluation_block)
        return {
            "train_loss": per_client_mean(train_losses, data.clients),
            "test_loss": jnp.mean(test_losses),
            "test_accuracy": jnp.mean(correct),
        }

    return Task(init, loss, evaluate, TaskData(clients, test))


def _cross_entropy(logits: jax.Array, labels: jax.Array) -> jax.Array:
    logits = logits.astype(jnp.float32)
    picked = jnp.take_along_axis(logits, labels[:, None], axis=-1)[:, 0]
    return jax.nn.logsumexp(logits, axis=-1) - picked


def in_blocks(function: Callable[[Any], Any], samples: Any, block: int | None) -> Any:
    """`function(samples)`, whose results have one entry per sample, computed for `block` samples at a time.

    The last block overlaps the one before it, rather than to be a smaller program of its own.

    Args:
        function: of samples [block, ...], to arrays [block, ...].
        samples: pytree of arrays with one leading axis.
        block: None: all at once.

    Example:
        >>> in_blocks(jnp.square, jnp.arange(5.0), 2)
        Array([ 0.,  1.,  4.,  9., 16.], dtype=float32)
    """
    size = jax.tree.leaves(samples)[0].shape[0]
    if block is None or block >= size:
        return function(samples)

    def fill(whole: Any, number: jax.Array) -> tuple[Any, None]:
        start = jnp.minimum(number * block, size - block)
        own = function(jax.tree.map(lambda leaf: lax.dynamic_slice_in_dim(leaf, start, block), samples))
        store = lambda leaf, new: lax.dynamic_update_slice_in_dim(leaf, new, start, 0)  # noqa: E731
        return jax.tree.map(store, whole, own), None

    shapes = jax.eval_shape(function, samples)
    blank = jax.tree.map(lambda leaf: jnp.zeros(leaf.shape, leaf.dtype), shapes)
    return lax.scan(fill, blank, jnp.arange(-(-size // block), dtype=jnp.int32))[0]


def softmax_regression(
    dataset: Dataset, partition: list[np.ndarray], normalisation: Normalisation | None = None
) -> Task:
    """Softmax regression on images, from zero weights: FedZO V-B. dim = classes * (pixels + 1)."""
    num_features = int(np.prod(dataset.train["image"].shape[1:]))
    init = lambda key: softmax.init(num_features, dataset.num_classes)  # noqa: E731
    return classification(init, softmax.apply, dataset, partition, normalisation, evaluation_block=None)
