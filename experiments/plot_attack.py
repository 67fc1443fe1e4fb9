"""The picture of an attack: some originals, the common perturbation, and what becomes of them."""

from typing import Any

import jax.numpy as jnp
import numpy as np
from matplotlib.figure import Figure

from zofed.attack import adversarial
from zofed.tasks import Task

__all__ = ["attack_picture"]

_NUM_IMAGES = 8


def attack_picture(task: Task, perturbation: Any, shrink: float = 1.0, title: str = "") -> Figure:
    """Three rows: images of the clients, their change with zero as grey, and their adversarial images.

    Args:
        task: an attack, `zofed.attack.attack`.
        perturbation: x, the model of a run.
        shrink: the task's.
        title: above the figure.
    """
    images = task.data.clients.samples["image"]
    images = shrink * images[np.linspace(0, len(images) - 1, _NUM_IMAGES).astype(int)]
    attacked = adversarial(jnp.asarray(perturbation), images)
    change = np.asarray(attacked - images)
    largest = max(float(np.abs(change).max()), 1e-12)
    rows = {
        "originals": np.asarray(images) + 0.5,
        f"change,\nscaled by {0.5 / largest:.3g}": change / (2 * largest) + 0.5,
        "adversarial": np.asarray(attacked) + 0.5,
    }
    figure = Figure(figsize=(1.0 + 0.95 * _NUM_IMAGES, 3.4), layout="constrained")
    panels = figure.subplots(len(rows), _NUM_IMAGES)
    for line, (label, pictures) in zip(panels, rows.items(), strict=True):
        for panel, picture in zip(line, pictures, strict=True):
            shown = picture if picture.ndim == 3 else np.repeat(picture[..., None], 3, axis=-1)
            panel.imshow(np.clip(shown, 0, 1), interpolation="nearest")
            panel.set_xticks([])
            panel.set_yticks([])
        line[0].set_ylabel(label, fontsize=9)
    norm = float(np.sqrt(np.mean(np.sum(np.square(change), axis=tuple(range(1, change.ndim))))))
    named = f"{title}: " if title else ""
    figure.suptitle(f"{named}root mean squared distortion of these images {norm:.2f}", fontsize=10)
    return figure
