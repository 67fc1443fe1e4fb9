"""Data sets: the published bytes or a clear error, never anything else."""

import gzip
import hashlib
import io
import json
import subprocess
import tarfile
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from zofed.data import CorruptDataError, FetchError, MissingDataError, cifar10, datasets, fetch, load
from zofed.data.__main__ import main
from zofed.data.fetch import SOURCES, Source, _decoded, _publisher_archive
from zofed.data.idx import parse_idx

FILENAMES = list(datasets.IDX_SHA256["mnist"])


def idx_bytes(array: np.ndarray) -> bytes:
    header = bytes([0, 0, 8, array.ndim]) + b"".join(size.to_bytes(4, "big") for size in array.shape)
    return header + array.astype(np.uint8).tobytes()


@pytest.fixture
def tiny(monkeypatch: pytest.MonkeyPatch) -> dict[str, bytes]:
    """Stands a made-up set of 3 and 2 images in for MNIST; its files by name."""
    generator = np.random.default_rng(0)
    contents = {
        name: idx_bytes(generator.integers(0, 10, (3 if "train" in name else 2, *((4, 5) if "images" in name else ()))))
        for name in FILENAMES
    }
    hashes = {name: hashlib.sha256(content).hexdigest() for name, content in contents.items()}
    monkeypatch.setitem(datasets.IDX_SHA256, "mnist", hashes)
    return contents


def write(folder: Path, contents: dict[str, bytes]) -> Path:
    for name, content in contents.items():
        (folder / name).write_bytes(content)
    return folder


def test_digits_are_those_of_scikit_learn():
    digits = load("digits")
    image = np.concatenate([digits.train["image"], digits.test["image"]])
    label = np.concatenate([digits.train["label"], digits.test["label"]])
    assert np.bincount(label).tolist() == [178, 182, 177, 183, 181, 182, 181, 179, 174, 180]
    assert (image.dtype, label.dtype, image.min(), image.max()) == (np.uint8, np.int32, 0, digits.max_pixel)
    assert image.mean() == pytest.approx(4.884165, abs=1e-5)
    assert len(np.unique(image.reshape(len(image), -1), axis=0)) == 1797


def test_digits_split_keeps_the_class_shares():
    digits = load("digits")
    assert (len(digits.train["label"]), len(digits.test["label"])) == (1437, 360)
    test, train = np.bincount(digits.test["label"]), np.bincount(digits.train["label"])
    np.testing.assert_allclose(test, 0.2 * (test + train), atol=1)


def test_damaged_digits_are_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    damaged = bytearray(datasets._DIGITS.read_bytes())
    damaged[1000] ^= 1
    (tmp_path / "digits.npz").write_bytes(damaged)
    monkeypatch.setattr(datasets, "_DIGITS", tmp_path / "digits.npz")
    with pytest.raises(CorruptDataError, match="expected 83a9c23f"):
        load("digits")


@pytest.mark.parametrize(
    ("name", "shape", "train_counts", "test_counts", "mean"),
    [
        ("cifar10", (32, 32, 3), [5000] * 10, [1000] * 10, 0.4734),
        ("fashion_mnist", (28, 28), [6000] * 10, [1000] * 10, 0.2860),
        (
            "mnist",
            (28, 28),
            [5923, 6742, 5958, 6131, 5842, 5421, 5918, 6265, 5851, 5949],
            [980, 1135, 1032, 1010, 982, 892, 958, 1028, 974, 1009],
            0.1307,
        ),
    ],
)
def test_real_sets_have_the_published_counts(load_real, name, shape, train_counts, test_counts, mean):
    dataset = load_real(name)
    assert dataset.train["image"].shape == (sum(train_counts), *shape)
    assert dataset.test["image"].shape == (10000, *shape)
    assert np.bincount(dataset.train["label"]).tolist() == train_counts
    assert np.bincount(dataset.test["label"]).tolist() == test_counts
    assert dataset.train["image"].mean() / dataset.max_pixel == pytest.approx(mean, abs=5e-5)
    assert (dataset.train["image"].dtype, dataset.train["label"].dtype) == (np.uint8, np.int32)


@pytest.mark.parametrize("compressed", [False, True])
def test_raw_and_gzip_files_load_alike(tiny, tmp_path: Path, compressed: bool):
    files = {f"{name}.gz": gzip.compress(content) for name, content in tiny.items()} if compressed else tiny
    dataset = load("mnist", write(tmp_path, files))
    assert dataset.train["image"].shape == (3, 4, 5)
    assert dataset.test["label"].tolist() == list(tiny["t10k-labels-idx1-ubyte"][-2:])


def test_missing_set_names_places_files_and_command(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(datasets, "search_path", lambda name, directory=None: (tmp_path, tmp_path / "other"))
    with pytest.raises(MissingDataError) as caught:
        load("fashion_mnist")
    message = str(caught.value)
    assert f"not found in {tmp_path} or {tmp_path / 'other'}" in message
    assert "train-images-idx3-ubyte[.gz], sha256 c59f468a" in message
    assert message.endswith("To get it: python -m zofed.data fetch fashion_mnist")
    assert isinstance(caught.value, FileNotFoundError)


def test_missing_in_a_given_directory_fetches_into_it(tmp_path: Path):
    with pytest.raises(MissingDataError, match=f"fetch mnist --directory={tmp_path}$"):
        load("mnist", tmp_path)


def test_half_filled_folder_is_not_passed_over(tiny, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    half, whole = tmp_path / "half", tmp_path / "whole"
    for folder in (half, whole):
        folder.mkdir()
        write(folder, tiny)
    (half / FILENAMES[0]).unlink()
    monkeypatch.setattr(datasets, "search_path", lambda name, directory=None: (half, whole))
    with pytest.raises(MissingDataError, match=FILENAMES[0]) as caught:
        load("mnist")
    assert FILENAMES[1] not in str(caught.value)


@pytest.mark.parametrize("suffix", ["", ".gz"])
@pytest.mark.parametrize("damage", ["truncated", "flipped", "empty"])
def test_damaged_file_is_refused(tiny, tmp_path: Path, suffix: str, damage: str):
    write(tmp_path, tiny)
    path = tmp_path / (FILENAMES[0] + suffix)
    (tmp_path / FILENAMES[0]).unlink()
    content = tiny[FILENAMES[0]]
    content = gzip.compress(content) if suffix else content
    flipped = content[:20] + bytes([content[20] ^ 1]) + content[21:]
    path.write_bytes({"truncated": content[:-5], "flipped": flipped, "empty": b""}[damage])
    with pytest.raises(CorruptDataError, match=r"is damaged, truncated or another file") as caught:
        load("mnist", tmp_path)
    assert str(path) in str(caught.value)
    assert datasets.IDX_SHA256["mnist"][FILENAMES[0]] in str(caught.value)
    assert f"fetch mnist --directory={tmp_path}" in str(caught.value)
    assert isinstance(caught.value, ValueError)


def test_unknown_set_lists_the_known_ones():
    with pytest.raises(ValueError, match="'cifar' is not known; allowed: cifar10, digits, fashion_mnist, mnist"):
        load("cifar")


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"\x1f\x8b\x08\x00", "starts with '1f 8b 08 00'"),
        (b"", "starts with ''"),
        (bytes([0, 0, 8, 1, 0, 0, 0, 3, 7, 8]), "holds 10 bytes; its header says 11"),
        (bytes([0, 0, 8, 2, 0, 0, 0, 3]), "its header says"),
    ],
)
def test_parse_idx_refuses_what_is_not_idx(content: bytes, message: str):
    with pytest.raises(ValueError, match=message):
        parse_idx(content)


def fake_source(description: str, files: dict[str, bytes]) -> Source:
    return Source(description, lambda filenames, scratch: files)


def fail(filenames: list[str], scratch: Path) -> dict[str, bytes]:
    raise subprocess.SubprocessError("no such package")


def test_fetch_falls_over_to_a_source_with_the_right_bytes(tiny, tmp_path: Path, monkeypatch):
    wrong = {name: content[:-1] + b"?" for name, content in tiny.items()}
    zipped = {name: gzip.compress(content) for name, content in tiny.items()}
    sources = (Source("A", fail), fake_source("B", wrong), fake_source("C", zipped))
    monkeypatch.setitem(SOURCES, "mnist", sources)
    lines = []
    assert fetch("mnist", tmp_path / "new", lines.append) == tmp_path / "new"
    assert lines[:2] == ["mnist: trying A", "mnist: no: no such package"]
    assert load("mnist", tmp_path / "new").train["image"].shape == (3, 4, 5)
    assert sorted(path.name for path in (tmp_path / "new").iterdir()) == sorted(FILENAMES)


def test_fetch_repairs_a_damaged_folder_and_keeps_right_files(tiny, tmp_path: Path, monkeypatch):
    write(tmp_path, tiny)
    (tmp_path / FILENAMES[0]).write_bytes(b"")
    asked = []

    def files(filenames: list[str], scratch: Path) -> dict[str, bytes]:
        asked.extend(filenames)
        return tiny

    monkeypatch.setitem(SOURCES, "mnist", (Source("A", files),))
    fetch("mnist", tmp_path, lambda line: None)
    assert asked == [FILENAMES[0]]
    load("mnist", tmp_path)
    fetch("mnist", tmp_path, lambda line: None)
    assert asked == [FILENAMES[0]]


def test_fetch_without_any_source_says_what_each_answered(tiny, tmp_path: Path, monkeypatch, capsys):
    sources = (Source("A", fail), fake_source("B", {FILENAMES[0]: b"?"}), fake_source("C", {}))
    monkeypatch.setitem(SOURCES, "mnist", sources)
    with pytest.raises(FetchError, match="A: no such package") as caught:
        fetch("mnist", tmp_path, lambda line: None)
    assert f"B: {FILENAMES[0]} has sha256" in str(caught.value)
    assert f"C: {FILENAMES[0]} is missing" in str(caught.value)
    assert list(tmp_path.iterdir()) == []
    assert main(["fetch", "mnist", f"--directory={tmp_path}"]) == 1
    assert "no source gave it" in capsys.readouterr().err


def png(pixels: np.ndarray) -> bytes:
    file = io.BytesIO()
    Image.fromarray(pixels).save(file, "png")
    return file.getvalue()


def archive(path: Path, folder: str, files: dict[str, bytes]) -> Path:
    with tarfile.open(path, "w:gz") as entries:
        for name, content in {**files, "index.js": b"//"}.items():
            entry = tarfile.TarInfo(f"{folder}/{name}")
            entry.size = len(content)
            entries.addfile(entry, io.BytesIO(content))
    return path


def colour_archives(folder: Path, image: np.ndarray, label: np.ndarray) -> list[Path]:
    """Both published forms of 12 made-up images, 2 in each batch, written pixel by pixel and label by label."""
    binary, pictures = {}, {}
    for number, (binary_name, png_name) in enumerate(zip(cifar10.BINARY_FILES, cifar10.PNG_FILES[:6], strict=True)):
        own = range(2 * number, 2 * number + 2)
        binary[binary_name] = b"".join(
            bytes([label[i], *(image[i, y, x, c] for c in range(3) for y in range(32) for x in range(32))]) for i in own
        )
        pictures[png_name] = png(np.stack([[image[i, k // 32, k % 32] for k in range(1024)] for i in own]))
    pictures["train_lables.json"] = json.dumps(label[:10].tolist()).encode()
    pictures["test_lables.json"] = json.dumps(label[10:].tolist()).encode()
    return [archive(folder / "a.tar.gz", "bin", binary), archive(folder / "b.tar.gz", "png", pictures)]


def test_cifar10_is_the_same_from_either_published_form(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    generator = np.random.default_rng(0)
    image = generator.integers(0, 256, (12, 32, 32, 3), np.uint8)
    label = generator.integers(0, 10, 12, np.uint8)
    idx = [idx_bytes(array) for array in (image[:10], label[:10], image[10:], label[10:])]
    hashes = [hashlib.sha256(content).hexdigest() for content in idx]
    monkeypatch.setitem(datasets.IDX_SHA256, "cifar10", dict(zip(datasets.IDX_SHA256["cifar10"], hashes, strict=True)))
    binary, pictures = colour_archives(tmp_path, image, label)
    sources = (
        _decoded(_publisher_archive(binary.as_uri(), "bin"), cifar10.BINARY_FILES, cifar10.from_binary),
        _decoded(_publisher_archive(pictures.as_uri(), "png"), cifar10.PNG_FILES, cifar10.from_png),
    )
    for number, source in enumerate(sources):
        monkeypatch.setitem(SOURCES, "cifar10", (source,))
        folder = fetch("cifar10", tmp_path / str(number), lambda line: None)
        dataset = load("cifar10", folder)
        np.testing.assert_array_equal(dataset.train["image"], image[:10])
        np.testing.assert_array_equal(dataset.test["image"], image[10:])
        assert [*dataset.train["label"], *dataset.test["label"]] == label.tolist()
    # A download cut short is one more answer, not a traceback.
    binary.write_bytes(binary.read_bytes()[:-50])
    monkeypatch.setitem(SOURCES, "cifar10", sources)
    lines = []
    fetch("cifar10", tmp_path / "after", lines.append)
    assert "the archive is damaged or cut short" in lines[1]


@pytest.mark.parametrize(
    ("decode", "files", "message"),
    [
        (cifar10.from_binary, {}, "data_batch_1.bin is missing"),
        (cifar10.from_binary, {"data_batch_1.bin": bytes(3072)}, "holds 3072 bytes"),
        (cifar10.from_png, {"data_batch_1.png": png(np.zeros((2, 1024), np.uint8))}, "allowed: uint8 "),
    ],
)
def test_other_files_are_not_taken_for_cifar10(decode, files: dict[str, bytes], message: str):
    with pytest.raises(ValueError, match=message):
        decode(files)


@pytest.mark.parametrize(
    "arguments", [["fetch", "cifar"], ["fetch"], [], ["fetch", "mnist", "digits", "--directory=x"]]
)
def test_wrong_usage_exits_with_one(arguments: list[str], capsys):
    with pytest.raises(SystemExit) as caught:
        main(arguments)
    assert caught.value.code == 1
    assert "usage" in capsys.readouterr().err


def test_list_names_every_set(capsys):
    assert main(["list"]) == 0
    assert "digits: 1437 training and 360 test images" in capsys.readouterr().out
