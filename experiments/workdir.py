"""The directory of a run: what it was made from, and the refusal to mix two runs or two processes in one."""

import contextlib
import fcntl
import importlib.metadata
import json
import os
import platform
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from ml_collections import ConfigDict

from experiments.files import write_json
from experiments.settings import Config, flatten
from zofed.sweep import Grid

__all__ = ["claim", "describe"]

_PACKAGES = ("jax", "jaxlib", "numpy", "optax", "flax", "zofed")
_LOCK = ".lock"


def describe(config: Config, grid: Grid) -> dict[str, Any]:
    """What `config.json` holds: all that a run's results depend on."""
    return {
        "config": config.to_dict(),
        "sweep": {axis.name: list(axis.values) for axis in grid.axes},
        "seed": config.seed,
        "versions": {"python": platform.python_version()} | {name: _version(name) for name in _PACKAGES},
        "git_commit": _git_commit(),
    }


def _version(package: str) -> str | None:
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return None


def _git_commit() -> str | None:
    """The commit of this source, "-dirty" behind it where files changed since; None outside a checkout."""
    command = ["git", "describe", "--always", "--dirty", "--abbrev=40", "--exclude=*"]
    try:
        found = subprocess.run(command, cwd=Path(__file__).parent, capture_output=True, text=True, check=True)
    except (OSError, subprocess.CalledProcessError):
        return None
    return found.stdout.strip() or None


@contextlib.contextmanager
def claim(directory: Path, description: dict[str, Any], resume: bool) -> Iterator[list[str]]:
    """Makes `directory` the place of this run, or checks that it is, and keeps other processes out of it meanwhile.

    Yields:
        Warnings: what differs, but does not forbid going on (versions, the source's commit), or that the file system
        has no locks.

    Raises:
        ValueError: it is no directory, a process uses it, or it holds another run, or this one and `resume` is False.
    """
    for place in (directory, *directory.parents):
        if place.exists() and not place.is_dir():
            raise ValueError(f"--workdir={directory}: {place} is a file; give a directory")
    names = set(os.listdir(directory)) if directory.is_dir() else set()
    if names - {_LOCK} and "config.json" not in names:
        raise ValueError(f"--workdir={directory} holds other files and no config.json; give a new directory")
    directory.mkdir(parents=True, exist_ok=True)
    with _locked(directory) as warnings:
        yield warnings + _same(directory, description, resume)


@contextlib.contextmanager
def _locked(directory: Path) -> Iterator[list[str]]:
    """The kernel holds the lock, and lets go of it when this process ends, however it does; the file says whose it is.

    The file stays, empty: were it removed, a process that has it open would lock what is no longer there.
    """
    with (directory / _LOCK).open("a+") as file:
        warnings = []
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            file.seek(0)
            raise ValueError(
                f"--workdir={directory} is in use by process {file.read().strip() or 'that is starting'}; wait for its "
                "end, or give another directory"
            ) from None
        except OSError as error:
            warnings = [f"--workdir={directory} cannot be locked ({error}): see that no other process uses it"]
        file.truncate(0)
        print(os.getpid(), file=file, flush=True)
        try:
            yield warnings
        finally:
            file.truncate(0)


def _same(directory: Path, description: dict[str, Any], resume: bool) -> list[str]:
    """Writes `config.json`, or compares it with what is there; returns warnings."""
    path = directory / "config.json"
    if not path.exists():
        write_json(path, description)
        return []
    try:
        found = json.loads(path.read_text())
        kept = {name: found[name] for name in ("config", "sweep", "versions")}
    except (KeyError, ValueError) as error:
        raise ValueError(f"{path} cannot be read ({error}); give a new directory") from error
    ours = json.loads(json.dumps(description))
    differences = _differences(_flat(kept), _flat(ours))
    if differences:
        raise ValueError(
            f"--workdir={directory} holds a run with other settings: {'; '.join(differences)}. "
            "Give another directory, or the settings of that run"
        )
    if not resume:
        raise ValueError(f"--workdir={directory} holds this run already; go on with --resume, or give a new directory")
    versions = [
        f"{name} is {ours['versions'].get(name)}, was {version}: results may differ in the last digits"
        for name, version in kept["versions"].items()
        if version != ours["versions"].get(name)
    ]
    if found.get("git_commit") != ours.get("git_commit"):
        versions.append(
            f"the source is at {ours.get('git_commit')}, was at {found.get('git_commit')}: results may differ"
        )
    return versions


def _flat(description: dict[str, Any]) -> dict[str, Any]:
    swept = {f"--sweep {name}": values for name, values in description["sweep"].items()}
    return flatten(ConfigDict(description["config"])) | swept


def _differences(kept: dict[str, Any], ours: dict[str, Any]) -> list[str]:
    def shown(settings: dict[str, Any], name: str) -> str:
        return repr(settings[name]) if name in settings else "not set"

    return [
        f"{name} is {shown(kept, name)} there, {shown(ours, name)} here"
        for name in sorted({*kept, *ours})
        if shown(kept, name) != shown(ours, name)
    ]
