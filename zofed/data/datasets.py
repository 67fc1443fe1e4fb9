"""Real data sets, each file checked against its sha256 before use.

Nothing is downloaded here: `zofed.data.fetch` does that, when asked.
"""

import gzip
import hashlib
import zlib
from pathlib import Path
from typing import NamedTuple

import numpy as np

from zofed.data.idx import parse_idx

__all__ = [
    "IDX_SHA256",
    "NAMES",
    "NORMALISATIONS",
    "CorruptDataError",
    "Dataset",
    "MissingDataError",
    "Normalisation",
    "cache_directory",
    "load",
    "read_idx_file",
    "search_path",
]

NAMES = ("cifar10", "digits", "fashion_mnist", "mnist")

_DIGITS = Path(__file__).parent / "digits.npz"
_DIGITS_SHA256 = "83a9c23f77193e87c38d55f8f912e07e3a8caf579de690dbc992d0fe165e0dba"

_DEBIAN = {"fashion_mnist": Path("/usr/share/datasets/fashion-mnist")}

IDX_SHA256 = {
    "cifar10": {
        "train-images-idx4-ubyte": "51c15db370c309e9aa60cf71f835f2ba0f430ea3653f7512d833c9a8e90e0d65",
        "train-labels-idx1-ubyte": "1a4c5fb4e1cab2caa8eee134c093de84d620899e907756e71736fb7b0d4ab554",
        "test-images-idx4-ubyte": "fc19aa23c64482c6def2138377986c67b6b3a50f8e8c4c6a759b296dc751fa64",
        "test-labels-idx1-ubyte": "987e01129ceec0098f1e9d9404cff9fa82ad3d15383a61e8ec60ff20ffe6db40",
    },
    "fashion_mnist": {
        "train-images-idx3-ubyte": "c59f468a2f672dc815687fe0f83887768d799fd8a3f3276145d20f83aa44d888",
        "train-labels-idx1-ubyte": "bad3541b69d912435c50bb6ba87bec294ff4f6a2e1246121d8633921760443d9",
        "t10k-images-idx3-ubyte": "5b4141f0afbad91edebe8549f8fcffe087ea10ca49f1dbef5c9a5cd8815ce37b",
        "t10k-labels-idx1-ubyte": "0402a96d92fd2663957122ceb108a494c5af83dab82d92729df917d7dec38c34",
    },
    "mnist": {
        "train-images-idx3-ubyte": "ba891046e6505d7aadcbbe25680a0738ad16aec93bde7f9b65e87a2fc25776db",
        "train-labels-idx1-ubyte": "65a50cbbf4e906d70832878ad85ccda5333a97f0f4c3dd2ef09a8a9eef7101c5",
        "t10k-images-idx3-ubyte": "0fa7898d509279e482958e8ce81c8e77db3f2f8254e26661ceb7762c4d494ce7",
        "t10k-labels-idx1-ubyte": "ff7bcfd416de33731a308c3f266cc351222c34898ecbeaf847f06e48f7ec33f2",
    },
}
"""sha256 of the uncompressed files: it does not depend on who compressed them.

Images and labels for training, then for testing. CIFAR-10 is not published as idx files; `fetch` makes them.
"""


class MissingDataError(FileNotFoundError):
    """A data set is in none of the places looked at; says which, and how to get it."""


class CorruptDataError(ValueError):
    """A file is there but is not the published one: truncated, damaged or another file."""


class Dataset(NamedTuple):
    """Images and labels, as published.

    Attributes:
        name: one of `NAMES`.
        train: `{"image": uint8[samples, height, width], "label": int32[samples]}`; images in colour are
            uint8[samples, height, width, 3].
        test: the same of the test set.
        num_classes: labels are in `[0, num_classes)`.
        max_pixel: the value of full white: divide by it to get images in [0, 1].
    """

    name: str
    train: dict[str, np.ndarray]
    test: dict[str, np.ndarray]
    num_classes: int
    max_pixel: int


class Normalisation(NamedTuple):
    """Mean and standard deviation of images that are scaled to [0, 1]: one number, or one per colour."""

    mean: tuple[float, ...]
    deviation: tuple[float, ...]


NORMALISATIONS = {
    "cifar10": Normalisation((0.4914, 0.4822, 0.4465), (0.2023, 0.1994, 0.2010)),
    "fashion_mnist": Normalisation((0.5,), (0.5,)),
    "mnist": Normalisation((0.1307,), (0.3081,)),
}
"""By data set, as the published code of DeComFL has them."""


def cache_directory(name: str) -> Path:
    """Where `python -m zofed.data fetch NAME` puts a data set: `~/.cache/zofed/NAME`.

    Example:
        >>> cache_directory("mnist").relative_to(Path.home()).as_posix()
        '.cache/zofed/mnist'
    """
    return Path.home() / ".cache" / "zofed" / name


def search_path(name: str, directory: str | Path | None = None) -> tuple[Path, ...]:
    """The folders in which `load` looks, in this order.

    `directory` alone where one is given, else the user's cache and, for Fashion-MNIST, the place of
    Debian's package dataset-fashion-mnist.

    Example:
        >>> search_path("mnist", "my/data")
        (PosixPath('my/data'),)
    """
    if directory is not None:
        return (Path(directory),)
    cache = cache_directory(name)
    return (cache, _DEBIAN[name]) if name in _DEBIAN else (cache,)


def load(name: str, directory: str | Path | None = None) -> Dataset:
    """A data set by name: "digits" (ships with zofed), "cifar10", "fashion_mnist" or "mnist" (see `fetch`).

    digits: the 1,797 8x8 images of scikit-learn (BSD-3), 1,437 for training and 360 for testing, the
    same share of each class in both. CIFAR-10: 50,000 and 10,000 images of 32x32 in red, green and blue.
    The others: 60,000 and 10,000 images of 28x28.

    Args:
        name: one of `NAMES`.
        directory: folder with the four idx files, raw or .gz; default: those of `search_path`. The
            digits ship inside zofed and take none.

    Raises:
        ValueError: unknown name.
        MissingDataError: a file is in none of the folders (a FileNotFoundError).
        CorruptDataError: a file is there, but damaged, truncated or another one (a ValueError).

    Source:
        Alpaydin and Kaynak 1998 (digits); Xiao, Rasul and Vollgraf 2017, arXiv:1708.07747
        (Fashion-MNIST); Krizhevsky 2009 (CIFAR-10); LeCun, Bottou, Bengio and Haffner 1998 (MNIST).

    Example:
        >>> digits = load("digits")
        >>> digits.train["image"].shape, digits.test["label"].shape, digits.max_pixel
        ((1437, 8, 8), (360,), 16)
    """
    if name not in NAMES:
        raise ValueError(f"data set {name!r} is not known; allowed: {', '.join(NAMES)}")
    if name == "digits":
        if directory is not None:
            raise ValueError(f"directory={str(directory)!r}: digits ship inside zofed, only None is allowed")
        return _load_digits()
    folder = _find(name, directory)
    arrays = [read_idx_file(name, folder, filename) for filename in IDX_SHA256[name]]
    train, test = ({"image": image, "label": label.astype(np.int32)} for image, label in (arrays[:2], arrays[2:]))
    return Dataset(name, train, test, num_classes=10, max_pixel=255)


def read_idx_file(name: str, folder: Path, filename: str) -> np.ndarray:
    """One idx file of data set `name`, raw or .gz, checked against its sha256: uint8[...].

    Raises:
        MissingDataError: `folder` holds neither form.
        CorruptDataError: the file is not the published one.
    """
    path = _existing(folder, filename)
    if path is None:
        raise MissingDataError(_missing_message(name, (folder,), [filename]))
    content = path.read_bytes()
    if path.suffix == ".gz":
        try:
            content = gzip.decompress(content)
        except (EOFError, OSError, zlib.error) as error:
            raise CorruptDataError(_corrupt_message(name, path, filename, f"gzip: {error}")) from error
    found = hashlib.sha256(content).hexdigest()
    if found != IDX_SHA256[name][filename]:
        raise CorruptDataError(_corrupt_message(name, path, filename, f"{len(content)} bytes with sha256 {found}"))
    return parse_idx(content)


def _load_digits() -> Dataset:
    found = hashlib.sha256(_DIGITS.read_bytes()).hexdigest()
    if found != _DIGITS_SHA256:
        raise CorruptDataError(f"{_DIGITS} is damaged: sha256 {found}, expected {_DIGITS_SHA256}; install zofed again")
    with np.load(_DIGITS) as arrays:
        image, label = arrays["image"], arrays["label"].astype(np.int32)
        in_test = np.zeros(len(label), bool)
        in_test[arrays["test_indices"]] = True
    train, test = ({"image": image[chosen], "label": label[chosen]} for chosen in (~in_test, in_test))
    return Dataset("digits", train, test, num_classes=10, max_pixel=16)


def _find(name: str, directory: str | Path | None) -> Path:
    """The first folder that holds any file of the set: a half-filled one is an error, not passed over."""
    folders = search_path(name, directory)
    for folder in folders:
        missing = [filename for filename in IDX_SHA256[name] if _existing(folder, filename) is None]
        if not missing:
            return folder
        if len(missing) < len(IDX_SHA256[name]):
            raise MissingDataError(_missing_message(name, (folder,), missing))
    raise MissingDataError(_missing_message(name, folders, list(IDX_SHA256[name])))


def _existing(folder: Path, filename: str) -> Path | None:
    candidates = (folder / filename, folder / f"{filename}.gz")
    return next((path for path in candidates if path.is_file()), None)


def _command(name: str, folder: Path) -> str:
    known = folder in search_path(name)
    return f"python -m zofed.data fetch {name}" + ("" if known else f" --directory={folder}")


def _missing_message(name: str, folders: tuple[Path, ...], filenames: list[str]) -> str:
    looked = " or ".join(str(folder) for folder in folders)
    wanted = "".join(f"\n  {name_}[.gz], sha256 {IDX_SHA256[name][name_]} uncompressed" for name_ in filenames)
    return f"{name}: not found in {looked}:{wanted}\nTo get it: {_command(name, folders[0])}"


def _corrupt_message(name: str, path: Path, filename: str, found: str) -> str:
    return (
        f"{name}: {path} is damaged, truncated or another file: {found}; "
        f"expected sha256 {IDX_SHA256[name][filename]} uncompressed\n"
        f"To get it again: {_command(name, path.parent)}"
    )
