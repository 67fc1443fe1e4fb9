"""The tasks that benchmarks run."""

import numpy as np

from zofed import data
from zofed.tasks import Task, softmax_regression

__all__ = ["digits_task", "random_images_task"]


def random_images_task(num_clients: int) -> Task:
    """Softmax regression on random images of Fashion-MNIST's shape."""
    generator = np.random.default_rng(0)

    def split(size: int) -> dict[str, np.ndarray]:
        images = generator.integers(0, 256, (size, 28, 28), np.uint8)
        return {"image": images, "label": generator.integers(0, 10, size, np.int32)}

    dataset = data.Dataset("random", split(60_000), split(1), 10, 255)
    return softmax_regression(dataset, data.iid(60_000, num_clients, 0))


def digits_task(num_clients: int) -> Task:
    """Softmax regression on the digits, two label shards per client."""
    digits = data.load("digits")
    return softmax_regression(digits, data.label_shards(digits.train["label"], num_clients, seed=0))
