"""DeComFL's figure 5, right, on quadratics: rounds to converge at a fixed effective rank, whatever the dimension.

python -m experiments.figures.decomfl_fig5_right --workdir=runs/decomfl_fig5_right [--quick | --cpu]

The paper trains language models of 125 million to 2.7 billion parameters, which converge in about as many rounds; its
reason is a Hessian of low effective rank. Here the effective rank is chosen: 10 in every dimension from 1e2 to 1e6,
with eigenvalues that fall as 1/j^2 and are never 0. Beside it stand quadratics whose effective rank is their dimension.

The full size (neither option) has 16 seeds in the place of 2, about 8 times the work of --cpu. It was not run.
"""

from pathlib import Path

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from experiments.configs import quadratic
from experiments.figures.command_line import Size, command
from experiments.figures.observations import Observation
from experiments.figures.points import Point, PointsFigure, Results
from experiments.files import write_rows
from experiments.plot_curves import PALETTE
from experiments.plots import save
from experiments.settings import Config
from zofed.theory.rates import Exponent, fit_exponent

RANK = 10.0
NUM_DIRECTIONS = 10
DIMENSIONS = (100, 1_000, 10_000, 100_000, 1_000_000)
FULL_RANK_DIMENSIONS = (30, 100, 300)
SHARE = 0.01
"""A run has converged once ||grad f||^2 is this share of its start."""
SIMILAR = 0.15
"""Numbers of rounds that differ by at most this share of the smallest dimension's do not grow."""


def _config(dim: int, rank: float, num_rounds: int) -> Config:
    config = quadratic.get_config()
    config.update_from_flattened_dict(
        {
            "seed": dim,  # of its own: equal seeds have the same directions, as far as the dimensions go
            "num_rounds": num_rounds,
            "eval_every": 1,
            "record_gradient": True,
            "num_clients": 2,
            "cohort_size": 2,
            "data.dim": dim,
            "data.effective_rank": rank,
            "data.heterogeneity": 0.0,
            "data.noise": 0.0,
            "data.samples_per_client": 1,
            "algorithm.name": "decomfl",
            "algorithm.directions": "gaussian",
            "algorithm.local_steps": 1,
            "algorithm.batch_size": 1,
            "algorithm.num_directions": NUM_DIRECTIONS,
            # The largest that the bound of low effective rank allows: zofed.theory.decomfl_low_rank.
            "algorithm.learning_rate": 1 / (4 * (1 + (rank + 1) / NUM_DIRECTIONS)),
        }
    )
    return config


def points(size: Size) -> list[Point]:
    low = [Point(f"dim_{dim}", _config(dim, RANK, size.num_rounds)) for dim in DIMENSIONS]
    full = [Point(f"full_rank_{dim}", _config(dim, float(dim), 4 * size.num_rounds)) for dim in FULL_RANK_DIMENSIONS]
    return low + full


def _relative(results: Results, name: str) -> np.ndarray:
    norms = results[name]["squared_gradient_norm"].astype(np.float64)
    return norms / norms[:, :1]


def _rounds(relative: np.ndarray) -> np.ndarray:
    """[seeds] the first round at which a run has converged; nan where it has not."""
    reached = relative <= SHARE
    return np.where(reached.any(axis=1), reached.argmax(axis=1), np.nan)


def finish(size: Size, results: Results, directory: Path) -> list[Observation]:
    curves = {dim: _relative(results, f"dim_{dim}") for dim in DIMENSIONS}
    low = np.stack([_rounds(curve) for curve in curves.values()], axis=1)
    full = np.stack([_rounds(_relative(results, f"full_rank_{dim}")) for dim in FULL_RANK_DIMENSIONS], axis=1)
    fits = [fit_exponent(DIMENSIONS, low), fit_exponent(FULL_RANK_DIMENSIONS, full)]
    save(_draw(curves, low, full, fits), directory / "decomfl_fig5_right.png")
    rows = [
        {"dimension": dim, "effective_rank": rank, "mean": column.mean(), "min": column.min(), "max": column.max()}
        for dims, rounds, ranks in (
            (DIMENSIONS, low, [RANK] * len(DIMENSIONS)),
            (FULL_RANK_DIMENSIONS, full, FULL_RANK_DIMENSIONS),
        )
        for dim, column, rank in zip(dims, rounds.T, ranks, strict=True)
    ]
    write_rows(directory / "rounds.csv", rows)
    means = low.mean(axis=0)
    return [
        Observation(
            f"rounds to converge do not grow with the dimension at effective rank {RANK:g}",
            f"the mean number of rounds until ||grad f||^2 is {SHARE:.0%} of its start is at most {SIMILAR:.0%} more "
            f"than in {DIMENSIONS[0]} dimensions",
            bool((means <= (1 + SIMILAR) * means[0]).all()),
            f"{_numbers(DIMENSIONS, low)}; exponent {_interval(fits[0])}",
        ),
        Observation(
            "where the effective rank is the dimension, they grow in proportion to it",
            "the exponent is at least 0.8",
            bool(fits[1].value >= 0.8),
            f"{_numbers(FULL_RANK_DIMENSIONS, full)}; exponent {_interval(fits[1])}",
        ),
    ]


def _numbers(dims: tuple[int, ...], rounds: np.ndarray) -> str:
    return ", ".join(
        f"d = {dim:,}: {column.mean():.1f} [{column.min():.0f}, {column.max():.0f}]"
        for dim, column in zip(dims, rounds.T, strict=True)
    )


def _interval(fit: Exponent) -> str:
    return f"{fit.value:.3f} [{fit.low:.3f}, {fit.high:.3f}]"


def _draw(curves: dict[int, np.ndarray], low: np.ndarray, full: np.ndarray, fits: list[Exponent]) -> Figure:
    figure = Figure(figsize=(9.0, 3.8), layout="constrained")
    left, right = figure.subplots(1, 2)
    for number, (dim, relative) in enumerate(curves.items()):
        rounds = np.arange(relative.shape[1])
        left.fill_between(
            rounds, relative.min(axis=0), relative.max(axis=0), color=PALETTE[number], alpha=0.2, linewidth=0
        )
        left.plot(rounds, relative.mean(axis=0), color=PALETTE[number], linewidth=1.3, label=f"d = {dim:,}")
    left.axhline(SHARE, color="0.5", linewidth=0.8, linestyle=":")
    left.set_yscale("log")
    left.set_xlabel("communication round")
    left.set_ylabel("||grad f||² over its start")
    left.set_title(f"effective rank {RANK:g}; band: range of seeds", fontsize=9)
    _rounds_panel(right, np.array(DIMENSIONS), low, PALETTE[0], f"κ = {RANK:g}: exponent {_interval(fits[0])}")
    _rounds_panel(right, np.array(FULL_RANK_DIMENSIONS), full, PALETTE[1], f"κ = d: exponent {_interval(fits[1])}")
    right.set_xscale("log")
    right.set_yscale("log")
    right.set_xlabel("dimension d")
    right.set_ylabel(f"rounds to {SHARE:.0%} of the start")
    for panel in (left, right):
        panel.legend(frameon=False, fontsize=8)
        panel.grid(alpha=0.3, linewidth=0.6)
        panel.spines[["top", "right"]].set_visible(False)
    figure.suptitle(
        f"DeComFL on quadratics, P = {NUM_DIRECTIONS}, the largest learning rate that theory allows", fontsize=10
    )
    return figure


def _rounds_panel(panel: Axes, dims: np.ndarray, rounds: np.ndarray, color: str, label: str) -> None:
    means = rounds.mean(axis=0)
    spread = np.stack([means - rounds.min(axis=0), rounds.max(axis=0) - means])
    panel.errorbar(dims, means, spread, fmt="o-", color=color, markersize=4, capsize=3, linewidth=1.2, label=label)


FIGURE = PointsFigure(
    name="decomfl_fig5_right",
    title="DeComFL's rounds to converge against the dimension, on quadratics",
    sizes={"quick": Size(80, 2), "cpu": Size(120, 2), "full": Size(120, 16)},
    points=points,
    finish=finish,
)

if __name__ == "__main__":
    command(FIGURE)
