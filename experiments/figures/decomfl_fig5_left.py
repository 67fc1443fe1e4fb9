"""DeComFL's figure 5, left: the eigenvalues of the Hessian of a small ResNet on CIFAR-10.

python -m experiments.figures.decomfl_fig5_left --workdir=runs/decomfl_fig5_left [--quick | --cpu]

The paper trains "a small custom ResNet" and shows by stochastic Lanczos quadrature that most eigenvalues are 0. Here it
is ResNet-8: with GroupNorm (77,946 parameters) after some steps of stochastic gradient descent, and fully trained (82%
of the test set), the network that ships with zofed, whose BatchNorm is folded into its weights. The Hessian is that of
the loss of some training images: 2,048 at the full size, 128 for --cpu, 64 for --quick.

The full size (neither option) is about 200 times the work of --cpu. It was not run.
"""

from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np
import optax
from matplotlib.figure import Figure

from experiments.figures.command_line import Size, command
from experiments.figures.observations import Observation
from experiments.figures.points import Point, PointsFigure, Results
from experiments.files import replacing, write_rows
from experiments.plot_curves import PALETTE
from experiments.plots import save
from zofed import tasks, theory
from zofed.base import ClientData, dimension
from zofed.data import NORMALISATIONS, Dataset, Normalisation, load
from zofed.models.classifier import Classifier
from zofed.models.convolution import convolve
from zofed.models.pretrained import resnet8_cifar10
from zofed.models.resnet import resnet8
from zofed.theory import Measured, Spectrum

TOLERANCE = 0.01
"""Eigenvalues of at most this share of the largest absolute one count as 0."""
MOST = 0.9
"""Share of the eigenvalues that counts as most of them."""


class Extent(NamedTuple):
    """What a size means here, besides training steps and probes."""

    images: int
    lanczos_steps: int
    batch_size: int


EXTENTS = {2: Extent(64, 10, 32), 4: Extent(128, 20, 64), 10: Extent(2048, 80, 128)}
"""By the number of probes of a size."""
CHUNK = 64
"""Images of one product with the Hessian at once."""
BYTES_TO_UNIT = Normalisation((0.5,) * 3, (0.5,) * 3)
"""What the trained network takes: pixels in [-1, 1]."""


def _convolve(
    next_call: Callable[..., Any], arguments: Any, options: Any, context: nn.module.InterceptorContext
) -> Any:
    """A flax convolution as the library's, of stride 1, of which the entries at the strides are kept.

    XLA on CPU takes 10 times as long for derivatives of derivatives of its own convolutions; the library's are sums of
    products.
    """
    layer = context.module
    if not isinstance(layer, nn.Conv) or context.method_name != "__call__":
        return next_call(*arguments, **options)
    (image,), kernel = arguments, layer.get_variable("params", "kernel")
    strides = np.broadcast_to(layer.strides or 1, 2).tolist()
    padding = jax.lax.padtype_to_pads(image.shape[1:3], kernel.shape[:2], strides, "SAME")
    padded = jnp.pad(image, ((0, 0), *padding, (0, 0)))
    result = convolve(padded, kernel)[:, :: strides[0], :: strides[1]]
    return result + layer.get_variable("params", "bias")[None, None, None, :] if layer.use_bias else result


class Network(NamedTuple):
    """A network whose spectrum is measured."""

    label: str
    task: tasks.Task
    params: Any


def points(size: Size) -> list[Point]:
    """None; but the data must be there before anything is written."""
    del size
    load("cifar10")
    return []


def _task(model: Classifier, dataset: Dataset, indices: np.ndarray, normalisation: Normalisation) -> tasks.Task:
    def apply(params: Any, image: jax.Array) -> jax.Array:
        with nn.intercept_methods(_convolve):
            return model.apply(params, image)

    few = dataset._replace(test={name: values[:1] for name, values in dataset.test.items()})
    return tasks.classification(model.init, apply, few, [indices], normalisation)


def _train(task: tasks.Task, params: Any, num_steps: int, batch_size: int, data: ClientData) -> tuple[Any, float]:
    """Steps of SGD with momentum 0.9 and rate 0.05; the mean loss of the last ten batches."""
    optimizer = optax.sgd(0.05, momentum=0.9)

    @jax.jit
    def step(params: Any, state: Any, batch: Any) -> tuple[Any, Any, jax.Array]:
        loss, slope = jax.value_and_grad(lambda x: jnp.mean(task.loss(x, batch)))(params)
        changes, state = optimizer.update(slope, state)
        return optax.apply_updates(params, changes), state, loss

    generator, count = np.random.default_rng(0), jax.tree.leaves(data.samples)[0].shape[0]
    state, losses = optimizer.init(params), []
    for _ in range(num_steps):
        own = generator.integers(count, size=batch_size)
        params, state, loss = step(params, state, jax.tree.map(lambda leaf, own=own: leaf[own], data.samples))
        losses.append(float(loss))
    return params, float(np.mean(losses[-10:]))


def _ours(dataset: Dataset, order: np.ndarray, size: Size, extent: Extent) -> Network:
    """ResNet-8 with GroupNorm, trained for the size's number of steps."""
    model, normalisation = resnet8(), NORMALISATIONS["cifar10"]
    count = min(max(extent.images, size.num_rounds * extent.batch_size), 20_000)
    training = _task(model, dataset, order[:count], normalisation)
    start = model.init(jax.random.key(0))
    trained, last = _train(training, start, size.num_rounds, extent.batch_size, training.data.clients)
    task = _task(model, dataset, order[: extent.images], normalisation)
    return Network(f"after {size.num_rounds} steps of SGD, loss {last:.2f}", task, trained)


def _shipped(dataset: Dataset, order: np.ndarray, size: Size, extent: Extent) -> Network:
    """The trained one."""
    del size
    task = _task(resnet8(num_groups=None), dataset, order[: extent.images], BYTES_TO_UNIT)
    return Network("trained, without normalisation (82% test accuracy)", task, resnet8_cifar10())


def finish(size: Size, results: Results, directory: Path) -> list[Observation]:
    del results
    extent, rows, spectra = EXTENTS[size.num_seeds], [], {}
    for number, network in enumerate((_ours, _shipped)):
        label, found = _kept(directory / "points" / f"spectrum_{number}.npz", network, size, extent)
        spectra[label] = found
        rows.append(_row(label, found))
        print(_words(label, found), flush=True)
    write_rows(directory / "spectra.csv", rows)
    save(_draw(spectra, extent, size), directory / "decomfl_fig5_left.png")
    return [
        Observation(
            "the majority of the Hessian's eigenvalues is 0 (figure 5, left)",
            f"after training, at least {MOST:.0%} of the eigenvalues are at most {TOLERANCE:g} ||H|| in absolute "
            "value, by more than 3 standard errors over the probes",
            all(_surely(found.mass_at_zero(TOLERANCE)) > MOST for found in spectra.values()),
            "; ".join(_words(label, found) for label, found in spectra.items()),
        ),
        Observation(
            "the effective rank is far below the dimension",
            "after training, the sum of the absolute eigenvalues is at most dim/100 times the largest one",
            all(found.effective_rank(absolute=True).mean <= found.dim / 100 for found in spectra.values()),
            "; ".join(f"{label}: {_rank(found)} of {found.dim:,}" for label, found in spectra.items()),
        ),
    ]


def _spectrum(network: Network, size: Size, extent: Extent) -> Spectrum:
    return theory.hessian_spectrum(
        network.task.loss,
        network.task.data.clients,
        network.params,
        jax.random.key(1),
        num_probes=size.num_seeds,
        num_steps=min(extent.lanczos_steps, dimension(network.params)),
        chunk=CHUNK,
    )


def _kept(path: Path, network: Callable[..., Network], size: Size, extent: Extent) -> tuple[str, Spectrum]:
    """A network's label and spectrum, from the file; computed and written first where there is none."""
    if not path.exists():
        dataset = load("cifar10")
        order = np.random.default_rng(0).permutation(len(dataset.train["label"]))
        made = network(dataset, order, size, extent)
        found = _spectrum(made, size, extent)
        with replacing(path) as beside:
            np.savez(beside, nodes=found.nodes, weights=found.weights, dim=found.dim, label=made.label)
    with np.load(path, allow_pickle=False) as arrays:
        return str(arrays["label"]), Spectrum(arrays["nodes"], arrays["weights"], int(arrays["dim"]))


def _surely(value: Measured) -> float:
    """Three standard errors below the mean."""
    return float(value.mean - 3 * value.error)


def _row(label: str, found: Spectrum) -> dict[str, Any]:
    mass, rank, absolute = (
        found.mass_at_zero(TOLERANCE),
        found.effective_rank(),
        found.effective_rank(absolute=True),
    )
    return {
        "network": label,
        "dim": found.dim,
        "norm": found.norm,
        "mass_at_zero": mass.mean,
        "mass_at_zero_error": mass.error,
        "effective_rank": rank.mean,
        "effective_rank_error": rank.error,
        "absolute_effective_rank": absolute.mean,
        "absolute_effective_rank_error": absolute.error,
    }


def _rank(found: Spectrum) -> str:
    signed, absolute = found.effective_rank(), found.effective_rank(absolute=True)
    return f"{_plus(signed, 1)}, of absolute eigenvalues {_plus(absolute, 1)}"


def _plus(value: Measured, digits: int) -> str:
    return f"{value.mean:.{digits}f} ± {value.error:.{digits}f}"


def _words(label: str, found: Spectrum) -> str:
    return (
        f"{label}: ||H|| {found.norm:.3g}, mass at zero {_plus(found.mass_at_zero(TOLERANCE), 4)}, "
        f"effective rank {_rank(found)}"
    )


def _draw(spectra: dict[str, Spectrum], extent: Extent, size: Size) -> Figure:
    figure = Figure(figsize=(4.4 * len(spectra), 3.8), layout="constrained")
    panels = figure.subplots(1, len(spectra), sharey=True)
    for number, (panel, (label, found)) in enumerate(zip(panels, spectra.items(), strict=True)):
        low, high = found.nodes.min(), found.nodes.max()
        width = 0.01 * (high - low)
        grid = np.linspace(low - 5 * width, high + 5 * width, 600)
        density = found.density(grid, width)
        panel.fill_between(
            grid,
            np.maximum(density.mean - 2 * density.error, 1e-12),
            density.mean + 2 * density.error,
            color=PALETTE[number],
            alpha=0.25,
            linewidth=0,
        )
        panel.plot(grid, np.maximum(density.mean, 1e-12), color=PALETTE[number], linewidth=1.3)
        panel.set_yscale("log")
        panel.set_ylim(1e-8, 30.0)
        panel.set_xlabel("eigenvalue")
        mass, rank = found.mass_at_zero(TOLERANCE), found.effective_rank(absolute=True)
        panel.set_title(
            f"{label}\nat most {TOLERANCE:g} ||H||: {_plus(mass, 4)}; Σ|λ| / ||H||: {_plus(rank, 1)}", fontsize=8
        )
        panel.grid(alpha=0.3, linewidth=0.6)
        panel.spines[["top", "right"]].set_visible(False)
    panels[0].set_ylabel("density")
    figure.suptitle("Eigenvalues of the Hessian of ResNet-8 on CIFAR-10", fontsize=10)
    figure.supxlabel(
        f"{extent.images} images, {size.num_seeds} probes of {extent.lanczos_steps} Lanczos steps; band: ± 2 standard "
        "errors; Gaussian kernel of 1% of the range",
        fontsize=8,
        color="0.25",
    )
    return figure


FIGURE = PointsFigure(
    name="decomfl_fig5_left",
    title="Eigenvalues of the Hessian of a small ResNet on CIFAR-10",
    sizes={"quick": Size(10, 2), "cpu": Size(150, 4), "full": Size(5000, 10)},
    points=points,
    finish=finish,
    words=("steps of training", "probes"),
)

if __name__ == "__main__":
    command(FIGURE)
