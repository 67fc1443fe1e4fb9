"""Results of a sweep: one xarray Dataset with named axes, and a table with a row per cell."""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import xarray

from experiments.execution import Outcome
from experiments.files import replacing
from experiments.metrics import Records, describe, scores
from experiments.settings import Config
from zofed.data import NAMES
from zofed.sweep import Grid

__all__ = ["dataset", "summary", "write_dataset"]


def dataset(config: Config, grid: Grid, outcomes: Sequence[Outcome]) -> xarray.Dataset:
    """What was recorded: one dimension per axis of the sweep, and `eval` with the coordinate `round`.

    `rounds_played` and `diverged` are per cell: one has diverged once its training loss, or the result of a
    client, is not finite. Evaluations that an interrupted run did not reach are nan; counts are
    then floats.
    """
    num_evaluations = config.num_rounds // config.eval_every + 1
    axes = tuple(axis.name for axis in grid.axes)
    played = np.full(grid.num_cells, -1, np.int64)
    diverged = np.zeros(grid.num_cells, bool)
    for outcome in outcomes:
        cells = list(outcome.group.cells)
        played[cells] = (outcome.records["train_loss"].shape[1] - 1) * config.eval_every
        diverged[cells] = _diverged(outcome.records)
    complete = bool((played == config.num_rounds).all())

    variables: dict[str, Any] = {
        name: ((*axes, "eval"), values.reshape(*grid.shape, num_evaluations), _attributes(name, config))
        for name, values in _whole(outcomes, grid.num_cells, num_evaluations, complete).items()
    }
    variables["rounds_played"] = (
        axes,
        played.reshape(grid.shape),
        {"long_name": "rounds played, -1: not started"},
    )
    variables["diverged"] = (axes, diverged.reshape(grid.shape), {"long_name": "whether the cell diverged"})
    coordinates: dict[str, Any] = {axis.name: (axis.name, _labels(axis.values)) for axis in grid.axes}
    rounds = np.arange(num_evaluations, dtype=np.int64) * config.eval_every
    coordinates["round"] = ("eval", rounds, {"long_name": "communication round", "units": "1"})
    attributes = {
        "title": _title(config, grid),
        "config": json.dumps(config.to_dict(), sort_keys=True),
        "complete": int(complete),
    }
    return xarray.Dataset(variables, coordinates, attributes)


def _labels(values: Sequence[Any]) -> list[Any]:
    """Tuples, such as those of a schedule, as text: an entry of a coordinate is one thing."""
    return [str(value) if isinstance(value, tuple) else value for value in values]


def _diverged(records: Records) -> np.ndarray:
    diverged = ~np.isfinite(records["train_loss"]).all(axis=1)
    if "nonfinite" in records:
        diverged = diverged | (records["nonfinite"] > 0).any(axis=1)
    return np.asarray(diverged)


def _attributes(name: str, config: Config) -> dict[str, str]:
    metric = describe(name)
    has_unit = metric.units != "nat" or config.data.name in NAMES  # entropies are losses of classification alone
    return {"long_name": metric.long_name, "units": metric.units if has_unit else "1"}


def _title(config: Config, grid: Grid) -> str:
    swept = {axis.name: axis.values for axis in grid.axes}
    algorithms = swept.get("algorithm.name", (config.algorithm.name,))
    data = swept.get("data.name", (config.data.name,))
    return f"zofed study: {', '.join(algorithms)} on {', '.join(data)}"


def _whole(outcomes: Sequence[Outcome], num_cells: int, num_evaluations: int, complete: bool) -> Records:
    """The groups' records in the cells' order, nan where there is none."""
    dtypes = {name: values.dtype for outcome in outcomes for name, values in outcome.records.items()}
    whole = {}
    for name, dtype in sorted(dtypes.items()):
        has_nan = np.issubdtype(dtype, np.inexact)
        blank = np.nan if has_nan or not complete else 0
        values = np.full((num_cells, num_evaluations), blank, dtype if has_nan or complete else np.float64)
        for outcome in outcomes:
            if name in outcome.records:
                own = outcome.records[name]
                values[np.ix_(outcome.group.cells, range(own.shape[1]))] = own
        whole[name] = values
    return whole


def summary(results: xarray.Dataset) -> list[dict[str, Any]]:
    """One row per cell: its settings, status, and for each score its last and its best value.

    `status` is "ok", "diverged", or "not run" where an interrupt came first.
    """
    axes = results["diverged"].dims
    cells = results.stack(cell=axes) if axes else results.expand_dims("cell")
    names = scores(results.data_vars)
    rows = []
    for number in range(cells.sizes["cell"]):
        cell = cells.isel(cell=number)
        played = int(cell["rounds_played"])
        row: dict[str, Any] = {"cell": number, **{str(axis): cell[axis].values[()] for axis in axes}}
        row["status"] = "diverged" if cell["diverged"] else "ok" if played >= 0 else "not run"
        row["rounds"] = max(played, 0)
        reached = cell.isel(eval=cell["round"].values <= played)
        for name in names:
            values = reached[name].values
            best = describe(name).best
            row[f"final_{name}"] = values[-1] if values.size else ""
            row[f"best_{name}"] = best.reduce(values) if best is not None and values.size else ""
        for name in ("uplink_bytes", "downlink_bytes"):
            row[name] = int(reached[name].values[-1]) if played >= 0 else ""
        rows.append(row)
    return rows


def write_dataset(path: Path, results: xarray.Dataset) -> None:
    """Writes netCDF 4, atomically; equal results make equal files."""
    with replacing(path) as beside:
        results.to_netcdf(beside, engine="h5netcdf")
