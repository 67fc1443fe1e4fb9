"""A vmap that runs as a loop: the values of a vmap, in the shapes of a single call."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from tests import tiny
from zofed import rng
from zofed.directions import gaussian
from zofed.estimators import DIFFERENCES, estimator
from zofed.sequential import loop_under_vmap, one_model_at_a_time


def test_values_of_a_vmap_whatever_is_mapped() -> None:
    """Of a pytree of arguments, in maps within maps, over all of them or some."""

    def function(pair: dict[str, jax.Array], shift: jax.Array) -> tuple[jax.Array, jax.Array]:
        return jnp.dot(pair["a"], pair["b"]) + shift, pair["a"] * shift

    generator = np.random.default_rng(0)
    a, b = (jnp.asarray(generator.standard_normal((3, 4, 5)), jnp.float32) for _ in range(2))
    shift = jnp.arange(4.0)
    looping = loop_under_vmap(function)
    for mapped in ({"a": 0, "b": 0}, {"a": 0, "b": None}, {"a": None, "b": 0}):
        pair = {name: leaf if mapped[name] == 0 else leaf[0] for name, leaf in (("a", a), ("b", b))}
        results = [
            jax.jit(jax.vmap(jax.vmap(mapped_function, (0, 0)), (mapped, None)))(pair, shift)
            for mapped_function in (looping, function)
        ]
        jax.tree.map(lambda own, wanted: np.testing.assert_allclose(own, wanted, rtol=1e-5), *results)


def test_shapes_of_a_single_call() -> None:
    """Mapped in any way, the function sees the arguments of one call; what is not mapped is one array for all."""
    seen = set()

    @loop_under_vmap
    def function(kernel: jax.Array, images: jax.Array) -> jax.Array:
        seen.add((kernel.shape, images.shape))
        return jax.lax.conv_general_dilated(images, kernel, (1, 1), "SAME", dimension_numbers=("NHWC", "HWIO", "NHWC"))

    kernels, images = jnp.ones((6, 3, 3, 1, 2)), jnp.ones((6, 4, 8, 8, 1))
    for axes in ((0, 0), (0, None), (None, 0)):
        arguments = (kernels if axes[0] == 0 else kernels[0], images if axes[1] == 0 else images[0])
        lowered = jax.jit(jax.vmap(function, axes)).lower(*arguments)
        assert "feature_group_count = 1 " in lowered.as_text()
    assert seen == {((3, 3, 1, 2), (4, 8, 8, 1))}


@pytest.mark.parametrize("difference", sorted(DIFFERENCES))
def test_an_estimate_is_the_same(difference: str) -> None:
    """Over clients that share a model and over clients with one each; the derivative of jvp() is inside the loop."""
    data = jnp.asarray(np.random.default_rng(0).standard_normal((3, 2, tiny.DIM)), jnp.float32)
    models = jax.tree.map(lambda leaf: jnp.stack([leaf, leaf + 0.1, leaf - 0.2]), tiny.PARAMS)

    def estimates(sequential: bool, params: Any, axis: int | None) -> Any:
        loss = one_model_at_a_time(tiny.loss) if sequential else tiny.loss
        estimate = estimator(loss, gaussian(), 3, jnp.float32(0.1), DIFFERENCES[difference](), chunk=2)
        keys = lambda number: rng.fold(rng.seed_key(0), number)  # noqa: E731
        return jax.jit(jax.vmap(lambda own, batch: estimate(keys, own, batch), (axis, 0)))(params, data)

    for params, axis in ((tiny.PARAMS, None), (models, 0)):
        results = [estimates(sequential, params, axis) for sequential in (True, False)]
        jax.tree.map(lambda own, wanted: np.testing.assert_allclose(own, wanted, rtol=1e-4, atol=1e-4), *results)
