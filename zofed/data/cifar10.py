"""The forms in which CIFAR-10 is published, each turned into the idx files that MNIST has: what is kept on disk."""

import io
import json
from collections.abc import Mapping

import numpy as np
from PIL import Image

from zofed.data.idx import to_idx

__all__ = ["BINARY_FILES", "PNG_FILES", "from_binary", "from_png"]

BINARY_FILES = (*(f"data_batch_{number}.bin" for number in range(1, 6)), "test_batch.bin")
PNG_FILES = (
    *(f"data_batch_{number}.png" for number in range(1, 6)),
    "test_batch.png",
    "train_lables.json",  # so they are spelled
    "test_lables.json",
)

_SHAPE = (32, 32, 3)


def from_binary(files: Mapping[str, bytes]) -> dict[str, bytes]:
    """The idx files of the publisher's binary version: records of a label and 3,072 bytes, one colour after the other.

    Raises:
        ValueError: a file is missing, or its length is not that of whole records.
    """
    batches = []
    for name in BINARY_FILES:
        content = _named(files, name)
        if len(content) % 3073:
            raise ValueError(f"{name} holds {len(content)} bytes; allowed: a multiple of 3073")
        batches.append(np.frombuffer(content, np.uint8).reshape(-1, 3073))
    parts = np.concatenate(batches[:-1]), batches[-1]
    images = [part[:, 1:].reshape(-1, 3, 32, 32).transpose(0, 2, 3, 1) for part in parts]
    return _idx_files(images, [part[:, 0] for part in parts])


def from_png(files: Mapping[str, bytes]) -> dict[str, bytes]:
    """The idx files of PNG batches, each row of whose pixels is one image, and of labels as JSON lists.

    Raises:
        ValueError: a file is missing, or not what it should be.
    """
    batches = []
    for name in PNG_FILES[:6]:
        # Pillow says so by an OSError if the file is cut short or no image.
        pixels = np.asarray(Image.open(io.BytesIO(_named(files, name)), formats=["PNG"]))
        if pixels.dtype != np.uint8 or pixels.shape[1:] != (1024, 3):
            raise ValueError(f"{name} holds {pixels.dtype} pixels of shape {pixels.shape}; allowed: uint8 (:, 1024, 3)")
        batches.append(pixels.reshape(-1, *_SHAPE))
    labels = [np.asarray(json.loads(_named(files, name)), np.uint8) for name in PNG_FILES[6:]]
    return _idx_files([np.concatenate(batches[:-1]), batches[-1]], labels)


def _named(files: Mapping[str, bytes], name: str) -> bytes:
    if name not in files:
        raise ValueError(f"{name} is missing")
    return files[name]


def _idx_files(images: list[np.ndarray], labels: list[np.ndarray]) -> dict[str, bytes]:
    contents = {}
    for part, image, label in zip(("train", "test"), images, labels, strict=True):
        contents[f"{part}-images-idx4-ubyte"] = to_idx(image)
        contents[f"{part}-labels-idx1-ubyte"] = to_idx(label)
    return contents
