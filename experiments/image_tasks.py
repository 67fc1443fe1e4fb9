"""From a config's data settings to the task of classifying images: the model, and how images are normalised."""

from typing import Any

import jax
import numpy as np

from zofed import checks, tasks
from zofed.data import NORMALISATIONS, Dataset
from zofed.models.classifier import Classifier
from zofed.models.cnn import fashion_cnn, lenet, mnist_cnn
from zofed.models.resnet import resnet8
from zofed.sequential import one_model_at_a_time
from zofed.tasks import Task

__all__ = ["MODELS", "check", "task_of"]

MODELS: dict[str, Classifier] = {
    "fashion_cnn": fashion_cnn(),
    "fashion_cnn_10": fashion_cnn(num_classes=10),
    "lenet": lenet(),
    "mnist_cnn": mnist_cnn(),
    "resnet8": resnet8(),
}
"""Models by the name that configs use, besides softmax, which takes images of any shape."""


def check(data: Any, dataset: Dataset) -> None:
    """Raises ValueError unless model and normalisation go with the data set."""
    checks.choice("data.model", data.model, ("softmax", *MODELS))
    checks.choice("data.normalisation", data.normalisation, ("none", "published"))
    shape = dataset.train["image"].shape[1:]
    fitting = ["softmax", *(name for name, model in MODELS.items() if model.image_shape == shape)]
    if data.model not in fitting:
        raise ValueError(
            f"data.model={data.model!r} takes images of {MODELS[data.model].image_shape}; "
            f"those of data.name={data.name!r} are {shape}; allowed: {', '.join(map(repr, fitting))}"
        )
    if data.normalisation == "published" and data.name not in NORMALISATIONS:
        raise ValueError(f"data.normalisation='published' with data.name={data.name!r}; allowed: 'none'")


def task_of(data: Any, dataset: Dataset, partition: list[np.ndarray]) -> Task:
    """The task of data settings that `check` has let through."""
    normalisation = NORMALISATIONS[data.name] if data.normalisation == "published" else None
    if data.model == "softmax":
        return tasks.softmax_regression(dataset, partition, normalisation)
    model = MODELS[data.model]
    task = tasks.classification(model.init, model.apply, dataset, partition, normalisation)
    return task._replace(loss=one_model_at_a_time(task.loss)) if jax.default_backend() == "cpu" else task
