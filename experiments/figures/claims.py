"""Two claims about rates, tried: d / (b1 b2) with shared directions, and DeComFL's Theorem 1 with many directions.

python -m experiments.figures.claims --workdir=runs/claims [--quick | --cpu]

1. The text of the FedZO paper has rates in d / (b1 b2). (The displays of its theorems and lemmas were not at hand here;
   what is tried is the dependence stated in the text.) Its estimator shares its b2 directions between the b1 samples of
   a batch. Then b1 divides the noise of the data but not that of the directions, and a learning rate that a bound in
   d / (b1 b2) allows, or the text's sqrt(N / (H T)) for b1 b2 > d, diverges on a quadratic without any noise. With
   directions of its own for each sample, `algorithm.per_sample`, it converges.
2. DeComFL's Theorem 1, as printed, has sigma^2 d / P: as if each direction had a mini-batch of its own. All P share
   one, so for P much larger than d what is measured is above the bound, at the theorem's own learning rate. That is far
   from networks, where P is much smaller than d. With the correction of `zofed.theory.decomfl` it is not.

The full size (neither option) has 64 seeds and 4,000 rounds, about 16 times the work of --cpu. It was not run.
"""

from pathlib import Path
from typing import Any

import numpy as np
from matplotlib.figure import Figure

from experiments.bounds_of import bounds_of, constants_of, setting_of
from experiments.build import task_of
from experiments.configs import quadratic
from experiments.figures.command_line import Size, command
from experiments.figures.observations import Observation
from experiments.figures.points import Point, PointsFigure, Results
from experiments.files import write_rows
from experiments.plot_curves import PALETTE
from experiments.plots import save
from experiments.settings import Config
from zofed import theory
from zofed.theory import Constants, Setting

DIM = 200
STEPS = 100
"""Rounds of the first claim, of one local step of one client."""
FEW_DIM = 3
NUM_DIRECTIONS = (10, 30, 100, 300, 1000)


def _quadratic(changes: dict[str, Any]) -> Config:
    config = quadratic.get_config()
    usual = {
        "record_gradient": True,
        "num_clients": 1,
        "cohort_size": 1,
        "data.condition": 1.0,
        "data.heterogeneity": 0.0,
        "algorithm.local_steps": 1,
        "algorithm.num_directions": 1,
    }
    config.update_from_flattened_dict(usual | changes)
    return config


def _rate_of_bound(batch_size: int) -> float:
    """N / (16 A L), the condition of `zofed.theory.fedzo_full` if A were that of independent directions."""
    setting = Setting(DIM, 1, 1, STEPS, 1, batch_size, 1, 1.0, 0.0)
    return float(theory.fedzo_full(Constants(1.0, 1.0), setting, per_sample=True).largest_learning_rate)


DIRECTION_CASES = {
    "b1_200": (200, _rate_of_bound(200), "b₁ = 200, b₂ = 1, η = 1/(16 A L)"),
    "b1_1000": (1000, _rate_of_bound(1000), "b₁ = 1000, b₂ = 1, η = 1/(16 A L)"),
    "b1_400_text": (400, float(np.sqrt(1 / STEPS)), "b₁ = 2d, b₂ = 1, η = (N/(HT))^½, the text's"),
}
"""Batch size, learning rate and label."""


def _directions(batch_size: int, rate: float, per_sample: bool) -> Config:
    return _quadratic(
        {
            "num_rounds": STEPS,
            "eval_every": 1,
            "data.dim": DIM,
            "data.noise": 0.0,
            "data.samples_per_client": 1,
            "algorithm.batch_size": batch_size,
            "algorithm.estimator": "central",  # exact on quadratics, so that only directions are random
            "algorithm.smoothing": 1.0,
            "algorithm.learning_rate": rate,
            "algorithm.per_sample": per_sample,
        }
    )


def _many(num_directions: int, size: Size) -> Config:
    """At the largest learning rate of Theorem 1, with samples whose gradients have a variance of 1 in all."""
    config = _quadratic(
        {
            "num_rounds": size.num_rounds,
            "eval_every": size.num_rounds // 100,
            "data.dim": FEW_DIM,
            "data.noise": float(np.sqrt(1 / FEW_DIM)),
            "data.samples_per_client": 1000,
            "algorithm.name": "decomfl",
            "algorithm.directions": "gaussian",
            "algorithm.batch_size": 1,
            "algorithm.num_directions": num_directions,
        }
    )
    _, printed = _bounds(config)
    config.algorithm.learning_rate = float(f"{0.999 * float(printed.largest_learning_rate):.4g}")
    return config


def _bounds(config: Config) -> tuple[theory.Bound, theory.Bound]:
    """Theorem 1, corrected and as printed, for the config; one client, so both have the same constants."""
    task = task_of(config)
    constants = constants_of(config, task).mean
    setting = setting_of(config, task, config.algorithm.learning_rate, config.num_rounds)
    corrected, printed = (covering.of(constants, setting) for covering in bounds_of(config)[:2])
    return corrected, printed


def points(size: Size) -> list[Point]:
    made = [
        Point(f"{name}_{'own' if own else 'shared'}", _directions(batch_size, rate, own))
        for name, (batch_size, rate, _) in DIRECTION_CASES.items()
        for own in (False, True)
    ]
    return made + [Point(f"decomfl_{number}", _many(number, size)) for number in NUM_DIRECTIONS]


def finish(size: Size, results: Results, directory: Path) -> list[Observation]:
    return [*_finish_directions(results, directory), *_finish_many(size, results, directory)]


def _finish_directions(results: Results, directory: Path) -> list[Observation]:
    figure = Figure(figsize=(3.4 * len(DIRECTION_CASES), 3.6), layout="constrained")
    observations, rows = [], []
    for panel, (name, (batch_size, rate, label)) in zip(
        figure.subplots(1, len(DIRECTION_CASES), sharey=True), DIRECTION_CASES.items(), strict=True
    ):
        last = {}
        for number, (kind, words) in enumerate((("shared", "shared by the batch"), ("own", "each sample's own"))):
            norms = results[f"{name}_{kind}"]["squared_gradient_norm"].astype(np.float64)
            relative = np.where(np.isfinite(norms), norms, np.nan) / norms[:, :1]
            rounds = np.arange(relative.shape[1])
            panel.plot(rounds, relative.T, color=PALETTE[number], linewidth=0.8, alpha=0.6)
            panel.plot([], [], color=PALETTE[number], label=words)
            # A run that overflowed grew beyond any number.
            last[kind] = np.where(np.isfinite(norms[:, -1]), norms[:, -1] / norms[:, 0], np.inf)
            rows.append(
                {
                    "case": name,
                    "directions": kind,
                    "batch_size": batch_size,
                    "learning_rate": rate,
                    "expected_factor": _factor(batch_size, rate, kind),
                    "smallest_final_over_start": last[kind].min(),
                    "largest_final_over_start": last[kind].max(),
                }
            )
        panel.set_ylim(1e-14, 1e14)
        panel.set_yscale("log")
        panel.set_xlabel("step")
        panel.set_title(label, fontsize=9)
        panel.legend(frameon=False, fontsize=8)
        panel.grid(alpha=0.3, linewidth=0.6)
        observations.append(
            Observation(
                f"{label} (d = {DIM}): diverges with shared directions, converges with each sample's own",
                f"after {STEPS} steps ||grad f||^2 is above its start in every seed with shared directions, and below "
                "a tenth of it in every seed with independent ones",
                bool((last["shared"] > 1).all() and (last["own"] < 0.1).all()),
                f"eta = {rate:.4g}; final over start: shared {_range(last['shared'])}, own {_range(last['own'])}; "
                f"expected factor of a step in the mean: shared {_factor(batch_size, rate, 'shared'):.3f}, own "
                f"{_factor(batch_size, rate, 'own'):.3f}",
            )
        )
    figure.suptitle(
        "FedZO's directions on a quadratic without noise: a line per seed, ||grad f||² over its start", fontsize=10
    )
    save(figure, directory / "claims_directions.png")
    write_rows(directory / "claims_directions.csv", rows)
    return observations


def _range(values: np.ndarray) -> str:
    return f"{values.min():.2g} to {values.max():.2g}"


def _factor(batch_size: int, rate: float, kind: str) -> float:
    """E ||x - eta e||^2 / ||x||^2 where the Hessian is the identity: exact, with q independent directions."""
    independent = batch_size if kind == "own" else 1
    return 1 - 2 * rate + rate**2 * (DIM + independent - 1) / independent


def _finish_many(size: Size, results: Results, directory: Path) -> list[Observation]:
    rows = []
    for number in NUM_DIRECTIONS:
        config = _many(number, size)
        norms = results[f"decomfl_{number}"]["squared_gradient_norm"].astype(np.float64)
        means = norms[:, :-1].mean(axis=1)
        corrected, printed = _bounds(config)
        rows.append(
            {
                "num_directions": number,
                "learning_rate": config.algorithm.learning_rate,
                "measured": means.mean(),
                "standard_error": means.std(ddof=1) / np.sqrt(len(means)),
                "printed": float(printed.total),
                "printed_holds": bool(printed.holds),
                "corrected": float(corrected.total),
                "corrected_holds": bool(corrected.holds),
            }
        )
    write_rows(directory / "claims_decomfl.csv", rows)
    figure = Figure(figsize=(5.4, 3.8), layout="constrained")
    panel = figure.subplots()
    number = [row["num_directions"] for row in rows]
    panel.errorbar(
        number,
        [row["measured"] for row in rows],
        [2 * row["standard_error"] for row in rows],
        fmt="o-",
        color="black",
        capsize=3,
        markersize=4,
        label="measured, ± 2 standard errors",
    )
    panel.plot(number, [row["printed"] for row in rows], color=PALETTE[1], label="Theorem 1 as printed")
    panel.plot(
        number,
        [row["corrected"] for row in rows],
        color=PALETTE[2],
        linestyle="--",
        label="corrected, at the same rate",
    )
    panel.set_xscale("log")
    panel.set_yscale("log")
    panel.set_xlabel("directions P")
    panel.set_ylabel("mean of ||grad f||² over the rounds")
    panel.set_title(f"DeComFL, d = {FEW_DIM}, m = K = 1, its Theorem 1's largest learning rate", fontsize=9)
    panel.legend(frameon=False, fontsize=8)
    panel.grid(alpha=0.3, linewidth=0.6)
    save(figure, directory / "claims_decomfl.png")
    most = rows[-1]
    lower = most["measured"] - 3 * most["standard_error"]
    return [
        Observation(
            f"DeComFL's Theorem 1 as printed does not hold for P = {NUM_DIRECTIONS[-1]} and d = {FEW_DIM}",
            "its condition holds, and what is measured is above it by more than 3 standard errors",
            bool(most["printed_holds"] and lower > most["printed"]),
            "; ".join(
                f"P = {row['num_directions']}: measured {row['measured']:.4g} ± {row['standard_error']:.1g}, printed "
                f"{row['printed']:.4g}, corrected {row['corrected']:.4g}"
                + ("" if row["corrected_holds"] else " (outside its conditions)")
                for row in rows
            ),
        )
    ]


FIGURE = PointsFigure(
    name="claims",
    title="Two claims about rates",
    sizes={"quick": Size(500, 4), "cpu": Size(2000, 8), "full": Size(4000, 64)},
    points=points,
    finish=finish,
)

if __name__ == "__main__":
    command(FIGURE)
