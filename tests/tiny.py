"""A federated problem small enough to compile often: what the tests of the core share.

Losses are separable quadratics, F(x, c) = 1/2 sum_j a_j (x_j - c_j)^2, of parameters that have leaves of no axis, of
size 1, 3 and 10, nested: the shapes that broke bit-equality elsewhere.
"""

from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from zofed import ClientData, dimension

PARAMS: Any = {
    "scalar": jnp.float32(0.5),
    "nested": [jnp.zeros((2, 5)), {"one": jnp.ones(1), "three": jnp.full(3, -1.0)}],
}
DIM = dimension(PARAMS)
SIZES = (3, 1, 4, 2, 3)
CURVATURE = np.linspace(0.5, 1.0, DIM).astype(np.float32)

STUDY = [
    f"--config={Path(__file__).parent.parent / 'experiments' / 'configs' / 'quadratic.py'}",
    "--config.data.dim=5",
    "--config.num_rounds=4",
    "--config.eval_every=2",
    "--config.num_clients=3",
    "--config.cohort_size=2",
    "--config.algorithm.local_steps=1",
    "--config.algorithm.batch_size=2",
    "--noprogress",
]
"""Options of `experiments.run` for a study on a quadratic that takes as little."""


def flat(params: Any) -> jax.Array:
    """All entries as one float32 vector, in the order of the leaves."""
    return jnp.concatenate([leaf.astype(jnp.float32).ravel() for leaf in jax.tree.leaves(params)])


def flat64(params: Any) -> np.ndarray:
    """All entries as one float64 vector, outside JAX."""
    return np.concatenate([np.asarray(leaf, np.float64).ravel() for leaf in jax.tree.leaves(params)])


def loss(params: Any, batch: jax.Array) -> jax.Array:
    return 0.5 * jnp.sum(CURVATURE[None, :] * jnp.square(flat(params)[None, :] - batch), axis=-1)


def loss64(params: np.ndarray, batch: np.ndarray) -> np.ndarray:
    return 0.5 * np.sum(CURVATURE[None, :] * np.square(params[None, :] - batch), axis=-1)


def gradient64(params: np.ndarray, batch: np.ndarray) -> np.ndarray:
    return np.mean(CURVATURE[None, :] * (params[None, :] - batch), axis=0)


def client_data(sizes: tuple[int, ...] = SIZES, seed: int = 0, spread: float = 0.3, apart: float = 1.0) -> ClientData:
    """Samples deviate by `spread` from their client's mean, and that by `apart` from 1, in each entry."""
    generator = np.random.default_rng(seed)
    owner = np.repeat(np.arange(len(sizes)), sizes)
    means = 1 + apart * generator.standard_normal((len(sizes), DIM))
    centres = means[owner] + spread * generator.standard_normal((len(owner), DIM))
    return ClientData.from_partition(centres.astype(np.float32), [np.flatnonzero(owner == i) for i in set(owner)])


def of_each_client(clients: ClientData) -> list[np.ndarray]:
    """Each client's samples, in float64."""
    samples = np.asarray(clients.samples, np.float64)
    return np.split(samples, np.cumsum(clients.sizes)[:-1])


def objective64(params: Any, clients: ClientData) -> float:
    """f(x): the mean over clients of each client's mean loss."""
    x = flat64(params)
    return float(np.mean([loss64(x, own).mean() for own in of_each_client(clients)]))


def optimum64(clients: ClientData) -> float:
    """Its smallest value: at the mean of the clients' means."""
    return objective64(np.mean([own.mean(axis=0) for own in of_each_client(clients)], axis=0), clients)
