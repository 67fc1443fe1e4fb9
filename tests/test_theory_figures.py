"""Figures made of points: what they see in made-up records, and where they see it only; the parts that are not runs."""

import importlib
import json
from pathlib import Path
from typing import Any

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from experiments import build
from experiments.figures import claims, command_line, decomfl_fig5_left, decomfl_fig5_right, rates
from experiments.figures.command_line import Size
from experiments.figures.points import PointsFigure, Results
from experiments.plots import save
from zofed.theory import Spectrum

FIGURES = [
    claims.FIGURE,
    pytest.param(decomfl_fig5_right.FIGURE, marks=pytest.mark.slow),
    pytest.param(rates.FIGURE, marks=pytest.mark.slow),
]


def decaying(rate: float, num_rounds: int, start: float = 1.0, every: int = 1) -> dict[str, np.ndarray]:
    """Two seeds whose squared gradient norm falls by `rate` a round."""
    rounds = np.arange(0, num_rounds + 1, every)
    norms = start * np.exp(-rate * rounds)[None, :] * np.array([[0.98], [1.02]])
    return {"squared_gradient_norm": norms.astype(np.float32)}


def seen(figure: PointsFigure, results: Results, directory: Path) -> list[bool]:
    return [observation.seen for observation in figure.finish(figure.sizes["quick"], results, directory)]


@pytest.mark.parametrize("figure", FIGURES, ids=lambda figure: figure.name)
def test_every_point_can_be_played(figure: PointsFigure, capsys: pytest.CaptureFixture[str]) -> None:
    made = figure.points(figure.sizes["quick"])
    assert len({point.name for point in made}) == len(made)
    for point in made:
        build.check(point.config)
    assert command_line.main(figure, ["--help"]) == 0
    assert "--workdir" in capsys.readouterr().out
    documentation = importlib.import_module(f"experiments.figures.{figure.name}").__doc__ or ""
    assert f"python -m experiments.figures.{figure.name} --workdir=" in documentation


def test_rounds_that_grow_with_the_dimension_or_not(tmp_path: Path) -> None:
    figure = decomfl_fig5_right

    def results(exponent: float, of_full_rank: float) -> dict[str, Any]:
        low = {f"dim_{dim}": decaying(0.1 * (dim / 100) ** -exponent, 80) for dim in figure.DIMENSIONS}
        full = {f"full_rank_{dim}": decaying(0.5 * (dim / 30) ** -of_full_rank, 320) for dim in (30, 100, 300)}
        return low | full

    assert seen(figure.FIGURE, results(0.0, 1.0), tmp_path) == [True, True]
    assert (tmp_path / "decomfl_fig5_right.png").exists()
    assert seen(figure.FIGURE, results(0.03, 0.5), tmp_path) == [False, False]


@pytest.mark.slow
def test_claims_in_made_up_records(tmp_path: Path) -> None:
    def results(shared: float, own: float, measured: float) -> dict[str, Any]:
        made = {}
        for name in claims.DIRECTION_CASES:
            made |= {f"{name}_shared": decaying(shared, claims.STEPS), f"{name}_own": decaying(own, claims.STEPS)}
        return made | {f"decomfl_{number}": decaying(0.0, 100, measured) for number in claims.NUM_DIRECTIONS}

    assert seen(claims.FIGURE, results(0.1, 0.1, 1e-3), tmp_path) == [False] * 4
    diverging = results(-0.1, 0.1, 1.0)
    diverging["b1_1000_shared"]["squared_gradient_norm"][:, 50:] = np.nan  # beyond any number
    assert seen(claims.FIGURE, diverging, tmp_path) == [True] * 4


def test_the_expected_factor_is_that_of_a_step() -> None:
    """E ||x - eta e||^2 / ||x||^2 for e = d v v^T x averaged over q unit vectors, by numpy."""
    generator = np.random.default_rng(0)
    rate, q = 0.02, 3
    x = np.zeros(claims.DIM)
    x[0] = 1.0
    v = generator.standard_normal((20_000, q, claims.DIM))
    v /= np.linalg.norm(v, axis=-1, keepdims=True)
    estimates = claims.DIM * np.mean(v[..., :1] * v, axis=1)
    found = np.sum((x - rate * estimates) ** 2, axis=-1)
    expected = claims._factor(q, rate, "own")
    assert abs(found.mean() - expected) < 4 * found.std() / np.sqrt(len(found))


@pytest.mark.slow
def test_a_convolution_of_the_library_is_that_of_flax() -> None:
    """And so is a product with the Hessian of a function of it."""

    class Layers(nn.Module):
        @nn.compact
        def __call__(self, image: jax.Array) -> jax.Array:
            image = nn.Conv(4, (3, 3), strides=2, use_bias=False, name="a")(image)
            return nn.Conv(3, (1, 1), strides=2, name="b")(image)

    image = jax.random.normal(jax.random.key(0), (2, 5, 6, 3))
    layers = Layers()
    params = layers.init(jax.random.key(1), image)
    move = jax.tree.map(lambda leaf: jax.random.normal(jax.random.key(2), leaf.shape), params)
    apply: Any = layers.apply

    def seen(params: Any) -> Any:
        gradient = jax.grad(lambda params: jnp.sum(jnp.sin(apply(params, image))))
        return apply(params, image), jax.jvp(gradient, (params,), (move,))[1]

    usual = jax.jit(seen)(params)
    with nn.intercept_methods(decomfl_fig5_left._convolve):
        ours = jax.jit(lambda params: seen(params))(params)
    jax.tree.map(lambda own, other: np.testing.assert_allclose(own, other, atol=1e-4), ours, usual)


def test_a_spectrum_in_words_and_as_a_figure(tmp_path: Path) -> None:
    nodes = np.array([[0.0, 0.05, 10.0], [0.0, 0.04, 10.0]])
    found = Spectrum(nodes, np.array([[0.9, 0.09, 0.01], [0.9, 0.08, 0.02]]), 1000)
    words = decomfl_fig5_left._words("x", found)
    assert words.startswith("x: ||H|| 10, mass at zero 0.9850 ± 0.0050, effective rank 15.")
    drawing = decomfl_fig5_left._draw({"x": found, "y": found}, decomfl_fig5_left.EXTENTS[2], Size(1, 2))
    assert save(drawing, tmp_path / "x.png").stat().st_size > 10_000
    np.savez(tmp_path / "s.npz", nodes=nodes, weights=found.weights, dim=1000, label="some network")
    unused: Any = None  # the file is there: nothing is loaded, trained or measured
    label, kept = decomfl_fig5_left._kept(tmp_path / "s.npz", unused, unused, unused)
    assert (label, kept.dim) == ("some network", 1000)
    np.testing.assert_array_equal(kept.nodes, nodes)


def test_missing_data_touches_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def nowhere(name: str) -> Any:
        raise FileNotFoundError(f"{name}: python -m zofed.data fetch {name}")

    monkeypatch.setattr(decomfl_fig5_left, "load", nowhere)
    assert command_line.main(decomfl_fig5_left.FIGURE, [f"--workdir={tmp_path / 'x'}", "--quick"]) == 1
    assert "fetch cifar10" in capsys.readouterr().err
    assert not (tmp_path / "x").exists()
    assert json.dumps(decomfl_fig5_left.FIGURE.describe(decomfl_fig5_left.FIGURE.sizes["cpu"])) == (
        '"150 steps of training, 4 probes"'
    )
