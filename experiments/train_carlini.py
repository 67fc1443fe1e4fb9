"""Trains the CIFAR-10 classifier of Carlini and Wagner's attacks, to stand in for the shipped victim.

    python -m experiments.train_carlini --output=carlini.npz [--batch_norm] [--epochs=50] [--max_steps=N]

Without --batch_norm as in Carlini's code: SGD with rate 0.01 / (1 + 1e-6 steps), Nesterov momentum 0.9, batches of 128,
50 epochs, the first 5,000 training images held out. With it as in the port of FedZO's authors (whose victim scored
82.3%): all 50,000 images, every ten epochs the rate times 0.95 and the momentum times 0.5; the normalisation is then
folded into the convolutions. The file is what `--config.data.victim=carlini.npz` of an attack reads.
"""

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax
from absl import app, flags

from zofed import data, rng
from zofed.models.carlini import CarliniCNN, carlini_cnn, fold_batch_norm
from zofed.models.pretrained import save_params

OUTPUT = flags.DEFINE_string("output", None, "npz file of the trained parameters.", required=True)
BATCH_NORM = flags.DEFINE_bool("batch_norm", False, "Train with batch normalisation, as FedZO's authors.")
EPOCHS = flags.DEFINE_integer("epochs", 50, "Passes over the training images.", lower_bound=1)
MAX_STEPS = flags.DEFINE_integer("max_steps", None, "Stop after so many batches.", lower_bound=1)
SEED = flags.DEFINE_integer("seed", 0, "Of the initial parameters, batches and dropout.", lower_bound=0)

BATCH_SIZE, HELD_OUT = 128, 5_000


def scaled(split: dict[str, np.ndarray]) -> tuple[np.ndarray, np.ndarray]:
    """Images with pixels in [-0.5, 0.5], and labels."""
    return split["image"].astype(np.float32) / np.float32(255) - np.float32(0.5), split["label"]


def optimizer(steps_per_epoch: int) -> optax.GradientTransformation:
    """The optimiser of the chosen recipe."""
    if not BATCH_NORM.value:
        return optax.sgd(lambda step: 0.01 / (1 + 1e-6 * step), momentum=0.9, nesterov=True)
    tenth = lambda factor: optax.exponential_decay(1.0, 10 * steps_per_epoch, factor, staircase=True)  # noqa: E731
    rate, momentum = tenth(0.95), tenth(0.5)
    schedules = {
        "learning_rate": lambda step: 0.01 * rate(step),
        "momentum": lambda step: 0.9 * momentum(step),
    }
    return optax.inject_hyperparams(optax.sgd)(**schedules, nesterov=True)


def main(arguments: Sequence[str]) -> None:
    if len(arguments) > 1:
        raise app.UsageError(f"{list(arguments[1:])} are no options")
    cifar10 = data.load("cifar10")
    images, labels = scaled(cifar10.train)
    start = 0 if BATCH_NORM.value else HELD_OUT
    images, labels = images[start:], labels[start:]
    module = CarliniCNN(batch_norm=BATCH_NORM.value)
    key = rng.seed_key(SEED.value)
    variables: Any = jax.jit(module.init)(rng.init_key(key), images[:1])
    params, statistics = variables["params"], variables.get("batch_stats", {})
    steps_per_epoch = len(labels) // BATCH_SIZE
    update = optimizer(steps_per_epoch)

    def loss_of(params: Any, statistics: Any, key: jax.Array, image: jax.Array, label: jax.Array) -> Any:
        logits, changed = module.apply(
            {"params": params, "batch_stats": statistics}, image, True, rngs={"dropout": key}, mutable=["batch_stats"]
        )
        losses = optax.softmax_cross_entropy_with_integer_labels(logits, label)
        return jnp.mean(losses), changed.get("batch_stats", {})

    @jax.jit
    def step(params: Any, statistics: Any, state: Any, key: jax.Array, image: jax.Array, label: jax.Array) -> Any:
        (loss, statistics), slope = jax.value_and_grad(loss_of, has_aux=True)(params, statistics, key, image, label)
        change, state = update.update(slope, state, params)
        return optax.apply_updates(params, change), statistics, state, loss

    state, done, generator = update.init(params), 0, np.random.default_rng(SEED.value)
    total = min(EPOCHS.value * steps_per_epoch, MAX_STEPS.value or sys.maxsize)
    for epoch in range(EPOCHS.value):
        order, losses = generator.permutation(len(labels)), []
        for number in range(min(steps_per_epoch, total - done)):
            own = order[number * BATCH_SIZE : (number + 1) * BATCH_SIZE]
            step_key = rng.fold(key, done, rng.Stream.EVAL)
            params, statistics, state, loss = step(params, statistics, state, step_key, images[own], labels[own])
            losses.append(float(loss))
            done += 1
        print(f"epoch {epoch + 1}: mean loss {np.mean(losses):.4f} over {len(losses)} batches", flush=True)
        if done == total:
            break

    trained = fold_batch_norm(params, statistics) if BATCH_NORM.value else params
    predict = jax.jit(lambda image: jnp.argmax(carlini_cnn().apply(trained, image), axis=-1))
    image, label = scaled(cifar10.test)
    found = np.concatenate([predict(image[first : first + 500]) for first in range(0, len(label), 500)])
    save_params(Path(OUTPUT.value), trained)
    print(f"test accuracy {np.mean(found == label):.4f} after {done} batches; {OUTPUT.value}")


if __name__ == "__main__":
    app.run(main)
