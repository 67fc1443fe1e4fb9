"""Data flows one way: each module imports from lower layers only, read from the source without running it."""

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
LAYERS = [
    ["zofed.base", "zofed.checks", "zofed.rng", "zofed.models"],
    ["zofed.batches", "zofed.channels", "zofed.data", "zofed.directions", "zofed.graphs", "zofed.sequential"],
    ["zofed.cohorts", "zofed.descent", "zofed.estimators"],
    ["zofed.aggregation", "zofed.blackbox", "zofed.replay"],
    ["zofed.codecs", "zofed.messages"],
    ["zofed.algorithms", "zofed.ledger"],
    ["zofed.protocol", "zofed.simulate"],
    ["zofed.sweep", "zofed.tasks"],
    ["zofed.attack", "zofed.theory"],
    ["zofed"],
    ["experiments"],
]
"""From the lowest to the highest; a package stands for all its modules. A new module takes its place here."""
RANK = {name: rank for rank, layer in enumerate(LAYERS) for name in layer}
MODULES = {
    ".".join(path.relative_to(ROOT).with_suffix("").parts).removesuffix(".__init__"): path
    for package in ("zofed", "experiments")
    for path in sorted((ROOT / package).rglob("*.py"))
}


def unit(module: str) -> str:
    """The entry of LAYERS that a module belongs to."""
    if module.split(".")[0] == "experiments":
        return "experiments"
    return ".".join(module.split(".")[:2])


def imports(path: Path) -> Iterator[str]:
    """Modules that a file imports, those within functions too; `from a import b` is a.b where that is a module."""
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path.name}: imports are absolute"
            for alias in node.names:
                inner = f"{node.module}.{alias.name}"
                yield inner if inner in MODULES else str(node.module)


def ours(module: str) -> list[str]:
    return [name for name in imports(MODULES[module]) if name.split(".")[0] in ("zofed", "experiments")]


def test_every_module_has_a_layer() -> None:
    assert {unit(module) for module in MODULES} <= set(RANK)


@pytest.mark.parametrize("module", MODULES)
def test_imports_point_downwards(module: str) -> None:
    own = unit(module)
    for name in ours(module):
        assert name in MODULES, f"{module} imports {name}, which is no module"
        assert unit(name) == own or RANK[unit(name)] < RANK[own], f"{module} imports {name}"


@pytest.mark.parametrize("module", [name for name in MODULES if name.startswith("zofed.algorithms")])
def test_algorithms_know_no_data_no_models_and_no_studies(module: str) -> None:
    forbidden = {f"zofed.{name}" for name in ("data", "models", "tasks", "sweep", "simulate")} | {
        "experiments",
        "zofed",
    }
    assert not forbidden & {unit(name) for name in ours(module)}


@pytest.mark.parametrize("module", [name for name in MODULES if name.startswith("zofed")])
def test_the_library_needs_none_of_the_apps_packages(module: str) -> None:
    extras = {"xarray", "h5netcdf", "h5py", "matplotlib", "rich", "pytest", "hypothesis"}
    assert not extras & {name.split(".")[0] for name in imports(MODULES[module])}


@pytest.mark.parametrize("package", ["zofed", "experiments"])
def test_no_two_modules_import_each_other(package: str) -> None:
    edges = {module: set(ours(module)) - {module} for module in MODULES if module.split(".")[0] == package}
    while leaves := [module for module, targets in edges.items() if not targets & set(edges)]:
        for module in leaves:
            del edges[module]
    assert not edges, f"a cycle among {sorted(edges)}"
