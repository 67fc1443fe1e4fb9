"""Constants of tasks, Hessians and their spectra, against closed forms and dense linear algebra in float64."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.flatten_util import ravel_pytree

from zofed import ClientData, tasks, theory
from zofed.base import objective_weights
from zofed.theory import closed_forms
from zofed.theory.constants import effective_rank, envelope, smoothness

KEY = jax.random.key(0)


def rotated(eigenvalues: np.ndarray, seed: int = 0) -> np.ndarray:
    """A dense symmetric matrix with these eigenvalues."""
    generator = np.random.default_rng(seed)
    basis = np.linalg.qr(generator.standard_normal((len(eigenvalues), len(eigenvalues))))[0]
    return (basis * eigenvalues) @ basis.T


def operator(matrix: np.ndarray) -> Any:
    dense = jnp.asarray(matrix, jnp.float32)
    return lambda vector: dense @ vector


def test_quadrature_of_a_known_spectrum() -> None:
    eigenvalues = np.concatenate([np.zeros(50), np.linspace(-0.5, 0.5, 20), [3.0, 5.0]])
    found = theory.spectrum(operator(rotated(eigenvalues)), 72, KEY, num_probes=64, num_steps=24)
    assert found.norm == pytest.approx(5.0, rel=1e-5)
    for power in (1, 2, 3):
        mean, error = found.average(lambda nodes, power=power: nodes**power)
        assert abs(mean - np.mean(eigenvalues**power)) < 4 * error
    mean, error = found.effective_rank(absolute=True)
    assert abs(mean - np.abs(eigenvalues).sum() / 5) < 4 * error
    assert 0 < error < 0.1 * mean
    mean, error = found.mass_at_zero(1e-3)
    assert abs(mean - 50 / 72) < 4 * error
    assert error < 0.03
    grid = np.linspace(-2, 7, 901)
    density = found.density(grid, 0.1)
    exact = np.exp(-(((grid[:, None] - eigenvalues) / 0.1) ** 2) / 2).mean(axis=1) / (0.1 * np.sqrt(2 * np.pi))
    assert np.trapezoid(density.mean, grid) == pytest.approx(1.0, abs=1e-3)
    assert np.all(np.abs(density.mean - exact) < 4.5 * density.error + 0.02)


def test_lanczos_finds_all_eigenvalues_and_stops_at_an_invariant_subspace() -> None:
    eigenvalues = np.linspace(1, 2, 12)
    matrix = operator(rotated(eigenvalues))
    dense = theory.lanczos(matrix, jnp.ones(12), 12).dense()
    np.testing.assert_allclose(np.linalg.eigvalsh(dense), eigenvalues, atol=1e-5)
    # The start lies in the span of two eigenvectors: the rule has two nodes, whatever the number of steps.
    diagonal = jnp.array([3.0, 1.0, 2.0, 2.0, 5.0])
    nodes, vectors = np.linalg.eigh(theory.lanczos(lambda v: diagonal * v, jnp.array([1.0, 1, 0, 0, 0]), 5).dense())
    weights = vectors[0] ** 2
    assert weights[np.isclose(nodes, 3.0, atol=1e-5)].sum() == pytest.approx(0.5, abs=1e-5)
    assert weights[np.isclose(nodes, 1.0, atol=1e-5)].sum() == pytest.approx(0.5, abs=1e-5)
    with pytest.raises(ValueError, match=r"num_steps=6; allowed: an integer from 1 to 5 \(the dimension\)"):
        theory.lanczos(lambda v: v, jnp.ones(5), 6)


def test_products_with_the_hessian_of_a_pytree_in_any_chunks() -> None:
    generator = np.random.default_rng(0)
    data = {"x": generator.standard_normal((7, 3)).astype(np.float32), "y": np.arange(7.0, dtype=np.float32)}
    clients = ClientData.from_partition(data, [[0, 1], [2, 3, 4, 5, 6]])
    params = {"inner": jnp.full((3, 2), 0.3), "outer": jnp.array([1.0, -0.5])}

    def loss(params: Any, batch: Any) -> jax.Array:
        return jnp.square(jnp.tanh(batch["x"] @ params["inner"]) @ params["outer"] - batch["y"])

    flat, unravel = ravel_pytree(params)

    def whole(vector: jax.Array) -> jax.Array:
        losses = loss(unravel(vector), clients.samples)
        return (losses[:2].mean() + losses[2:].mean()) / 2

    dense = jax.hessian(whole)(flat)
    for chunk in (None, 3):
        product = theory.hessian_vector(loss, clients.samples, objective_weights(clients), params, chunk)
        np.testing.assert_allclose(jax.jit(jax.vmap(product))(jnp.eye(8)), dense, atol=2e-4)
    found = theory.hessian_spectrum(loss, clients, params, KEY, num_probes=2, num_steps=8, chunk=3)
    assert found.norm == pytest.approx(np.abs(np.linalg.eigvalsh(dense)).max(), rel=1e-4)
    expected = np.sum(np.asarray(jax.grad(whole)(flat)) ** 2)
    for chunk in (None, 3):
        assert float(theory.gradient_norm(loss, clients, params, chunk)) == pytest.approx(expected, rel=1e-5)


def test_the_effective_rank_of_a_matrix_that_is_not_convex() -> None:
    """Of the absolute eigenvalues; the trace is below 0 here."""
    eigenvalues = np.concatenate([np.linspace(-1, -0.5, 20), np.linspace(0, 0.1, 28), [-4.0, 2.0]])
    assert eigenvalues.sum() < 0
    dense = jnp.asarray(rotated(eigenvalues), jnp.float32)
    found = jax.jit(lambda key: effective_rank(lambda v: dense @ v, 50, key, num_probes=200))(KEY)
    # A probe's deviation is at most (2 sum of squares)^(1/2) = 8.2 of a sum of 22.4: 0.026 of it with 200 probes.
    assert float(found) == pytest.approx(np.abs(eigenvalues).sum() / 4, rel=4 * 0.026)


@pytest.mark.parametrize("ripple", [0.5, pytest.param(0.0, marks=pytest.mark.slow)])
def test_constants_of_the_quadratic(ripple: float) -> None:
    task = tasks.quadratic(8, 4, 6, condition=10.0, heterogeneity=0.7, noise=0.4, ripple=ripple)
    known = closed_forms.quadratic(task.data.clients, tasks.eigenvalues(8), ripple=ripple)
    minimum = jnp.asarray(np.asarray(task.data.clients.samples).mean(axis=0))
    gap = task.loss_value(jnp.zeros(8)) - task.loss_value(minimum)
    assert known.gap == pytest.approx(float(gap), rel=1e-4)
    points = [jnp.zeros(8), minimum, jnp.linspace(-3.0, 3.0, 8)]
    seen = theory.estimate(
        task.loss,
        task.data.clients,
        points,
        KEY,
        lower_bound=float(task.loss_value(minimum)),
        chunk=5,
        gradient_growth=1.0,
        dissimilarity_growth=0.0,
    )
    assert seen == pytest.approx(known._replace(effective_rank=seen.effective_rank), rel=1e-3, abs=1e-4)
    # The trace is Hutchinson's, exact for a diagonal matrix; its largest value over the points is that at the minimum.
    assert seen.effective_rank == pytest.approx(known.effective_rank, rel=1e-3)
    largest = closed_forms.quadratic(task.data.clients, tasks.eigenvalues(8), ripple=ripple, over_clients="max")
    assert largest.gradient_noise > known.gradient_noise
    assert largest.dissimilarity > known.dissimilarity
    # Between wells the curvature is a_j - ripple: not convex.
    at_crest = jax.hessian(task.loss_value)(jnp.full(8, 1 + np.pi))
    expected = np.asarray(tasks.eigenvalues(8)) - ripple
    np.testing.assert_allclose(np.diag(at_crest), expected, atol=1e-5)
    assert (expected.min() < 0) == (ripple > 0)


def test_constants_of_logistic_regression() -> None:
    task = tasks.logistic_regression(5, 3, 8, heterogeneity=0.5, regularization=0.1)
    clients = task.data.clients
    feature, label = (np.asarray(clients.samples[name], np.float64) for name in ("feature", "label"))
    known = closed_forms.logistic_regression(clients, 0.1)
    seen = theory.estimate(task.loss, clients, [jnp.zeros(5)], KEY, gradient_growth=1.0, dissimilarity_growth=0.0)

    # At 0 a sample's gradient is -y a / 2, and a client's Hessian the mean of a a^T / 4 and the regularisation.
    gradients = (-label[:, None] * feature / 2).reshape(3, 8, 5)
    means = gradients.mean(axis=1)
    squares = np.mean(np.sum(gradients**2, axis=-1)) - np.mean(np.sum(means**2, axis=-1))
    assert seen.gradient_noise == pytest.approx(squares, rel=1e-4)
    apart = np.mean(np.sum((means - means.mean(axis=0)) ** 2, axis=-1))
    assert seen.dissimilarity == pytest.approx(apart, rel=1e-4)
    hessians = [own.T @ own / 32 + 0.1 * np.eye(5) for own in feature.reshape(3, 8, 5)]
    assert seen.smoothness == pytest.approx(max(np.linalg.eigvalsh(own)[-1] for own in hessians), rel=1e-4)
    assert seen.gap == pytest.approx(np.log(2), rel=1e-5)
    mean = np.mean(hessians, axis=0)
    assert seen.effective_rank == pytest.approx(np.trace(mean) / np.linalg.eigvalsh(mean)[-1], rel=0.15)
    far = theory.estimate(task.loss, clients, [jnp.full(5, 2.0)], KEY, gradient_growth=1.0, dissimilarity_growth=0.0)
    for constants in (seen, far):
        assert constants.smoothness <= known.smoothness
        assert constants.gradient_noise <= known.gradient_noise
        assert constants.dissimilarity <= known.dissimilarity


def test_smoothness_is_that_of_the_sharpest_client() -> None:
    clients = ClientData.from_partition(np.array([1.0, 1.0, 9.0, 1.0], np.float32), [[0], [1, 2], [3]])
    loss = lambda x, batch: 0.5 * batch * jnp.square(x)[0]  # noqa: E731
    assert float(smoothness(loss, clients, jnp.zeros(1), KEY)) == pytest.approx(5.0)


def test_envelope_covers_all_points() -> None:
    generator = np.random.default_rng(0)
    norms = generator.uniform(0, 4, 50)
    values = 2 + 1.5 * norms + generator.uniform(-1, 0, 50)
    fitted = envelope(values, norms, least=1.0)
    assert fitted.growth == pytest.approx(1.5, abs=0.2)
    assert np.all(values <= fitted.growth * norms + fitted.level + 1e-12)
    assert np.any(np.isclose(values, fitted.growth * norms + fitted.level))
    assert envelope(values, norms, least=3.0).growth == 3.0
    assert envelope([2.0, 2.0], [1.0, 1.0], least=1.0) == (1.0, 1.0)


def test_eigenvalues_of_a_chosen_effective_rank() -> None:
    for dim, rank in ((100, 7.5), (100, 1.0), (100, 100), (10**6, 20.0)):
        values = np.asarray(tasks.eigenvalues(dim, effective_rank=rank), np.float64)
        assert values.sum() / values.max() == pytest.approx(rank, rel=1e-4)
        assert np.all(np.diff(values) <= 0)
        assert values.min() > 0 or rank == 1
    few, many = (np.asarray(tasks.eigenvalues(dim, effective_rank=5.0)) for dim in (2_000, 20_000))
    np.testing.assert_allclose(few, many[:2_000], rtol=0.02)
    for wrong in (0.5, 101.0):
        with pytest.raises(ValueError, match=r"effective_rank=.*; allowed: a number from 1 to dim=100"):
            tasks.quadratic(100, effective_rank=wrong)
