"""Models: exact sizes, and logits equal to those of a float64 reference written with numpy alone."""

import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import chex
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax

from zofed.base import dimension
from zofed.data import Dataset
from zofed.models import pretrained
from zofed.models.carlini import CarliniCNN, carlini_cnn, fold_batch_norm
from zofed.models.classifier import Classifier
from zofed.models.cnn import fashion_cnn, lenet, mnist_cnn
from zofed.models.convolution import convolve, convolve_and_pool, images_in_turn, max_pool
from zofed.models.pretrained import resnet8_cifar10
from zofed.models.resnet import resnet8

Array = np.ndarray


def conv64(image: Array, kernel: Array, bias: Array | float = 0.0, strides: int = 1, same: bool = False) -> Array:
    """[batch, height, width, channels] * [height, width, channels, features]; `same` pads the larger half behind."""
    if same:
        sizes = zip(image.shape[1:3], kernel.shape[:2], strict=True)
        totals = [max((-(-length // strides) - 1) * strides + window - length, 0) for length, window in sizes]
        image = np.pad(image, [(0, 0), *((total // 2, total - total // 2) for total in totals), (0, 0)])
    windows = np.lib.stride_tricks.sliding_window_view(image, kernel.shape[:2], axis=(1, 2))
    return np.einsum("byxcij,ijcf->byxf", windows[:, ::strides, ::strides], kernel) + bias


def pool64(image: Array) -> Array:
    rows, columns = image.shape[1] // 2, image.shape[2] // 2
    corners = [image[:, i : 2 * rows : 2, j : 2 * columns : 2] for i in range(2) for j in range(2)]
    return np.max(corners, axis=0)


def relu64(values: Array) -> Array:
    return np.maximum(values, 0)


def dense64(values: Array, layer: dict[str, Array]) -> Array:
    return values.reshape(len(values), -1) @ layer["kernel"] + layer["bias"]


def mnist64(params: Any, image: Array) -> Array:
    image = image[..., None]
    for name in ("ConvAndPool_0", "ConvAndPool_1"):
        image = pool64(relu64(conv64(image, **params[name], same=True)))
    return dense64(image, params["Dense_0"])


def fashion64(params: Any, image: Array) -> Array:
    image = relu64(conv64(image[..., None], **params["Conv_0"]))
    image = pool64(relu64(conv64(image, **params["ConvAndPool_0"])))
    return dense64(relu64(dense64(image, params["Dense_0"])), params["Dense_1"])


def lenet64(params: Any, image: Array) -> Array:
    for name in ("ConvAndPool_0", "ConvAndPool_1"):
        image = pool64(relu64(conv64(image, **params[name])))
    for name in ("Dense_0", "Dense_1"):
        image = relu64(dense64(image, params[name]))
    return dense64(image, params["Dense_2"])


def group_norm64(image: Array, scale: Array, bias: Array) -> Array:
    groups = image.reshape(*image.shape[:3], 8, -1)
    centred = groups - groups.mean(axis=(1, 2, 4), keepdims=True)
    normal = centred / np.sqrt(np.square(centred).mean(axis=(1, 2, 4), keepdims=True) + 1e-5)
    return normal.reshape(image.shape) * scale + bias


def resnet64(params: Any, image: Array) -> Array:
    def layer(image: Array, name: str, strides: int = 1) -> Array:
        image = conv64(image, **params[name], strides=strides, same=True)
        return group_norm64(image, **params[f"{name}_norm"]) if f"{name}_norm" in params else image

    image = relu64(layer(image, "stem"))
    for stage, strides in ((1, 1), (2, 2), (3, 2)):
        inner = relu64(layer(image, f"stage{stage}_first", strides))
        skip = image if strides == 1 else layer(image, f"stage{stage}_skip", strides)
        image = relu64(layer(inner, f"stage{stage}_second") + skip)
    return dense64(image.mean(axis=(1, 2)), params["head"])


def carlini64(params: Any, image: Array) -> Array:
    for number in range(4):
        image = relu64(conv64(image, **params[f"conv{number}"]))
        image = pool64(image) if number % 2 else image
    for number in range(2):
        image = relu64(dense64(image, params[f"hidden{number}"]))
    return dense64(image, params["head"])


# name -> model, number of parameters, reference
MODELS: dict[str, tuple[Classifier, int, Callable[[Any, Array], Array]]] = {
    "mnist_cnn": (mnist_cnn(), 28_938, mnist64),
    "fashion_cnn": (fashion_cnn(), 1_206_590, fashion64),
    "fashion_cnn of 10 classes": (fashion_cnn(num_classes=10), 1_199_882, fashion64),
    "lenet": (lenet(), 62_006, lenet64),
    "resnet8": (resnet8(), 77_946, resnet64),
    # MLPerf Tiny counts 78,666, of which 960 are BatchNorm's.
    "carlini": (carlini_cnn(), 1_147_978, carlini64),
    "resnet8, unnormalised": (resnet8(num_groups=None), 78_666 - 960, resnet64),
}


@pytest.mark.parametrize("name", MODELS)
def test_sizes_are_exact(name: str) -> None:
    model, size, _ = MODELS[name]
    assert dimension(jax.eval_shape(model.init, jax.random.key(0))) == size


@pytest.mark.parametrize("name", [name for name in MODELS if "10" not in name])
def test_logits_are_those_of_the_reference(name: str) -> None:
    model, _, reference = MODELS[name]
    generator = np.random.default_rng(0)
    # Every parameter random, biases and GroupNorm's too, so that none can be left out or mixed up.
    params = jax.tree.map(
        lambda leaf: generator.uniform(-1, 1, leaf.shape) * math.sqrt(6 / math.prod(leaf.shape[:-1])),
        jax.eval_shape(model.init, jax.random.key(0)),
    )
    image = generator.standard_normal((2, *model.image_shape))
    logits = jax.jit(model.apply)(*jax.tree.map(lambda leaf: jnp.asarray(leaf, jnp.float32), (params, image)))
    expected = reference(params, image)
    np.testing.assert_allclose(logits, expected, rtol=0, atol=1e-5 * np.abs(expected).max())
    assert np.abs(expected[0] - expected[1]).max() > 1e-2 * np.abs(expected).max()


@pytest.mark.parametrize("name", ["fashion_cnn", "resnet8"])
def test_models_start_as_in_pytorch(name: str) -> None:
    """Uniform in +-1/sqrt(fan in), biases too; all classes are about equally likely then."""
    model, _, _ = MODELS[name]
    params: Any = jax.jit(model.init)(jax.random.key(0))
    image = jnp.asarray(np.random.default_rng(0).uniform(0, 1, (64, *model.image_shape)), jnp.float32)
    logits = np.asarray(jax.jit(model.apply)(params, image))
    losses = np.log(np.sum(np.exp(logits), axis=-1)) - logits[:, 3]
    classes = 62 if name == "fashion_cnn" else 10
    assert losses.mean() == pytest.approx(math.log(classes), abs=0.3)
    for layer in (params[name] for name in params if "norm" not in name):
        bound = 1 / math.sqrt(math.prod(layer["kernel"].shape[:-1]))
        kernel = np.asarray(layer["kernel"], np.float64)
        assert np.abs(kernel).max() <= bound * (1 + 1e-6)
        # Variance of the uniform law is bound^2 / 3; its estimate has the relative deviation sqrt(4 / 5n).
        assert 3 * np.square(kernel).mean() / bound**2 == pytest.approx(1, abs=5 * math.sqrt(0.8 / kernel.size))
        if "bias" in layer:
            assert 0.7 * bound < np.abs(layer["bias"]).max() <= bound * (1 + 1e-6)


@pytest.mark.parametrize("channels", [1, 8])
@pytest.mark.parametrize(("size", "padding"), [(5, 2), (3, 0), (2, 0)])
@pytest.mark.parametrize(("height", "width"), [(8, 10), (9, 8)])
def test_convolutions_with_a_pool(channels: int, size: int, padding: int, height: int, width: int) -> None:
    """In either form: as a product of patches for few channels, odd kernels and even sides, else as a convolution."""
    generator = np.random.default_rng(0)
    image = generator.standard_normal((2, height, width, channels))
    kernel = generator.standard_normal((size, size, channels, 4))
    pooled = jax.jit(convolve_and_pool, static_argnums=2)
    found = pooled(jnp.asarray(image, jnp.float32), jnp.asarray(kernel, jnp.float32), padding)
    padded = np.pad(image, ((0, 0), (padding, padding), (padding, padding), (0, 0)))
    np.testing.assert_allclose(found, pool64(conv64(padded, kernel)), atol=5e-5)


def test_one_channel_is_a_product() -> None:
    """What the CPU form is for: no convolution is left of one input channel, one is of 16."""
    for channels, convolutions in ((1, 0), (16, 1)):
        image, kernel = jnp.zeros((2, 8, 8, channels)), jnp.zeros((5, 5, channels, 4))
        lowered = jax.jit(lambda image, kernel: convolve_and_pool(image, kernel, 2)).lower(image, kernel)
        assert lowered.as_text().count("stablehlo.convolution") == convolutions


def test_blocks_of_images() -> None:
    """The same numbers, and the memory of a block: the last one is what is left."""
    kernel = jnp.ones((3, 3, 1, 4))

    def apply(images: jax.Array) -> jax.Array:
        return jnp.max(convolve_and_pool(images[..., None], kernel, 1), axis=(1, 2))

    images = jnp.asarray(np.random.default_rng(0).standard_normal((37, 8, 8)), jnp.float32)
    np.testing.assert_allclose(images_in_turn(apply, images), apply(images), rtol=1e-6)
    compiled = jax.jit(lambda images: images_in_turn(apply, images)).lower(jnp.zeros((1600, 8, 8))).compile()
    analysis = compiled.memory_analysis()
    assert analysis is not None
    assert analysis.temp_size_in_bytes < 1600 * 8 * 8 * 4


@pytest.mark.parametrize(("height", "width", "window"), [(4, 4, 2), (5, 7, 2), (7, 6, 3)])
def test_pools_are_the_largest_of_whole_windows(height: int, width: int, window: int) -> None:
    image = np.random.default_rng(0).standard_normal((2, height, width, 3)).astype(np.float32)
    pooled = np.asarray(max_pool(jnp.asarray(image), window))
    assert pooled.shape == (2, height // window, width // window, 3)
    for y, x in np.ndindex(pooled.shape[1:3]):
        block = image[:, y * window : (y + 1) * window, x * window : (x + 1) * window]
        np.testing.assert_array_equal(pooled[:, y, x], block.max(axis=(1, 2)))


def test_half_precision_models_take_float32_images() -> None:
    model, _, _ = MODELS["mnist_cnn"]
    shapes = jax.eval_shape(model.init, jax.random.key(0))
    params = jax.tree.map(lambda leaf: jax.ShapeDtypeStruct(leaf.shape, jnp.bfloat16), shapes)
    assert jax.eval_shape(model.apply, params, jax.ShapeDtypeStruct((1, 28, 28), jnp.float32)).dtype == jnp.bfloat16


def test_a_carlini_network_trained_with_batch_norm_folds_into_one_without() -> None:
    module, generator = CarliniCNN(batch_norm=True), np.random.default_rng(0)
    image = jnp.asarray(generator.uniform(-0.5, 0.5, (2, 32, 32, 3)), jnp.float32)
    shapes = jax.eval_shape(module.init, jax.random.key(0), image)
    assert dimension(shapes["params"]) == 1_148_746
    draw = lambda leaf: jnp.asarray(generator.uniform(0.5, 1.5, leaf.shape) / leaf.shape[0], jnp.float32)  # noqa: E731
    variables: Any = jax.tree.map(draw, shapes)
    expected: Any = module.apply(variables, image)
    folded = jax.jit(carlini_cnn().apply)(fold_batch_norm(variables["params"], variables["batch_stats"]), image)
    np.testing.assert_allclose(folded, expected, rtol=1e-5)


def test_the_pretrained_resnet_has_its_accuracy(load_real: Callable[[str], Dataset]) -> None:
    """82.22% of CIFAR-10's test set, 797 deer among them: what the network scored where it comes from."""
    test, params = load_real("cifar10").test, resnet8_cifar10()
    predict = jax.jit(lambda image: jnp.argmax(resnet8(num_groups=None).apply(params, image), axis=-1))
    images = test["image"].reshape(100, 100, 32, 32, 3)
    found = np.concatenate([predict(np.float32(image) / np.float32(127.5) - np.float32(1)) for image in images])
    right = found == test["label"]
    assert (right.sum(), right[test["label"] == 4].sum()) == (8222, 797)


def test_damaged_weights_are_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    damaged = bytearray(pretrained._RESNET8.read_bytes())
    damaged[5000] ^= 1
    (tmp_path / "resnet8.npz").write_bytes(damaged)
    monkeypatch.setattr(pretrained, "_RESNET8", tmp_path / "resnet8.npz")
    with pytest.raises(ValueError, match="install zofed again"):
        resnet8_cifar10()


@pytest.mark.parametrize(("size", "padding"), [(5, 2), (3, 0), (2, 0)])
def test_derivatives_of_a_convolution(size: int, padding: int) -> None:
    """Forwards and backwards, alone and mapped, against XLA's own of the convolution itself."""
    generator = np.random.default_rng(0)
    draw = lambda *shape: jnp.asarray(generator.standard_normal(shape), jnp.float32)  # noqa: E731
    inputs, moves = (draw(2, 8, 9, 3), draw(size, size, 3, 4)), (draw(2, 8, 9, 3), draw(size, size, 3, 4))

    def plain(image: jax.Array, kernel: jax.Array) -> jax.Array:
        edges = ((padding, padding), (padding, padding))
        return lax.conv_general_dilated(image, kernel, (1, 1), edges, dimension_numbers=("NHWC", "HWIO", "NHWC"))

    def derivatives(function: Any) -> Any:
        def gradient(image: jax.Array, kernel: jax.Array) -> Any:
            return jax.grad(lambda *own: jnp.sum(jnp.sin(function(*own))), (0, 1))(image, kernel)

        forwards = jax.jvp(function, inputs, moves)
        return forwards, gradient(*inputs), jax.vmap(gradient, (None, 0))(inputs[0], jnp.stack([inputs[1], moves[1]]))

    found = jax.jit(lambda: derivatives(lambda image, kernel: convolve(image, kernel, padding)))()
    chex.assert_trees_all_close(found, jax.jit(lambda: derivatives(plain))(), atol=2e-5, rtol=2e-5)
