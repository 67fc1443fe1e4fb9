"""Rates of convergence: measured exponents, with confidence intervals, beside those of theory.

python -m experiments.figures.rates --workdir=runs/rates [--quick | --cpu]

On federated quadratics, with the learning rate that theory prescribes (zofed.theory.rate), the mean squared gradient
norm falls as 1/sqrt(M), 1/sqrt(H), 1/sqrt(b2), and grows as sqrt(d), or sqrt(kappa) where the effective rank is kappa:
its rate is sqrt(d / (M b2 H T)). Where the problem itself grows with d or kappa the norm is relative to its start. Over
the air the excess over a noise-free link goes as 1/gamma. A forward difference along a unit vector is off by O(mu), a
central one by O(mu^2); the mean over a symmetric law of directions is off by O(mu^2) in either case.

The full size (neither option) is 28 points of 20,000 rounds and 64 seeds, 80 times the work of --cpu. It was not
run.
"""

import functools
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from experiments.bounds_of import bounds_of, constants_of, setting_of
from experiments.build import task_of
from experiments.configs import quadratic
from experiments.figures.command_line import Size, command
from experiments.figures.observations import Observation
from experiments.figures.points import Point, PointsFigure, Results
from experiments.figures.power_laws import Law, Panel, draw, draw_all, interval
from experiments.files import write_rows
from experiments.metrics import Records
from experiments.plots import save
from experiments.settings import Config
from zofed import rng
from zofed.directions import sphere
from zofed.estimators import central, estimator, forward, jvp
from zofed.theory.rates import fit_exponent

__all__ = ["FIGURE", "RATES", "Rate", "difference_errors"]

NEAR = 0.1
"""A fitted exponent at most this far from theory's agrees with it."""


class Rate(NamedTuple):
    """An exponent to be measured.

    Attributes:
        name: of its points and of its figure.
        label: of the varied quantity, for the axis.
        measured: what its y axis is.
        values: of the quantity.
        config: `(value, size) -> config`.
        theory: its exponent.
        reduce: `(records, num_rounds) -> [seeds]`, what is measured of a run.
        reference: the value whose measurement is taken off from all others, or None.
    """

    name: str
    label: str
    measured: str
    values: tuple[float, ...]
    config: Callable[[Any, Size], Config]
    theory: float
    reduce: Callable[[Records, int], np.ndarray]
    reference: float | None = None


def _mean(records: Records, num_rounds: int) -> np.ndarray:
    """(1/T) sum_{t<T}, from some rounds by the trapezoidal rule; half of the ends' difference makes the sum of it."""
    norms = records["squared_gradient_norm"].astype(np.float64)
    every = num_rounds / (norms.shape[1] - 1)
    return (every * np.trapezoid(norms, axis=1) + (norms[:, 0] - norms[:, -1]) / 2) / num_rounds


def _relative_mean(records: Records, num_rounds: int) -> np.ndarray:
    return _mean(records, num_rounds) / records["squared_gradient_norm"][:, 0]


def _second_half(records: Records, num_rounds: int) -> np.ndarray:
    del num_rounds
    norms = records["squared_gradient_norm"]
    return norms[:, norms.shape[1] // 2 :].mean(axis=1)


def _base(size: Size, changes: dict[str, Any]) -> Config:
    """Clients that are alike up to the noise of their data, and all directions of curvature 1."""
    config = quadratic.get_config()
    config.num_rounds, config.eval_every, config.record_gradient = size.num_rounds, max(1, size.num_rounds // 400), True
    usual = {
        "data.dim": 20,
        "data.condition": 1.0,
        "data.heterogeneity": 0.0,
        "data.noise": 1.0,
        "data.samples_per_client": 100,
        "num_clients": 8,
        "cohort_size": 8,
        "algorithm.local_steps": 1,
        "algorithm.batch_size": 1,
        "algorithm.num_directions": 5,
        "algorithm.smoothing": 1e-2,
    }
    config.update_from_flattened_dict(usual | changes)
    return config


def _prescribed(config: Config, share: float, dim: float) -> Config:
    """With share * sqrt(M b2 / (d H T)) as the learning rate."""
    algorithm = config.algorithm
    work = dim * algorithm.local_steps * config.num_rounds
    algorithm.learning_rate = share * float(np.sqrt(config.cohort_size * algorithm.num_directions / work))
    return config


def _cohort(value: int, size: Size) -> Config:
    return _prescribed(_base(size, {"num_clients": 32, "cohort_size": value}), 0.35, 20)


def _steps(value: int, size: Size) -> Config:
    changes = {"algorithm.local_steps": value, "num_clients": 4, "cohort_size": 4}
    return _prescribed(_base(size, changes), 0.4, 20)


def _directions(value: int, size: Size) -> Config:
    return _prescribed(_base(size, {"algorithm.num_directions": value, "data.dim": 64}), 0.3, 64)


def _dimension(value: int, size: Size) -> Config:
    return _prescribed(_base(size, {"algorithm.num_directions": 1, "data.dim": value}), 0.25, value)


def _rank(value: float, size: Size) -> Config:
    changes = {
        "algorithm.name": "decomfl",
        "algorithm.directions": "sphere_sqrt_dim",
        "algorithm.num_directions": 2,
        "algorithm.smoothing": 1e-3,
        "data.dim": 512,
        "data.effective_rank": value,
    }
    return _prescribed(_base(size, changes), 0.5, value)


def _snr(value: float, size: Size) -> Config:
    changes = {
        "participation": "gain_threshold",
        "channel.gain_threshold": 0.1,
        "aggregation.name": "aircomp" if np.isfinite(value) else "mean",
        "channel.snr_db": float(10 * np.log10(value / 0.1**2)) if np.isfinite(value) else 0.0,
        "data.heterogeneity": 1.0,
        "data.noise": 0.0,
        "data.samples_per_client": 1,
        "algorithm.local_steps": 4,
        "algorithm.learning_rate": 0.005,
    }
    return _base(size, changes)


GRADIENT = "mean of ||grad f||² over rounds"
RATES = (
    Rate("cohort_size", "cohort size M", GRADIENT, (1, 2, 4, 8, 16), _cohort, -0.5, _mean),
    Rate("local_steps", "local steps H", GRADIENT, (1, 2, 4, 8, 16), _steps, -0.5, _mean),
    Rate("num_directions", "shared directions b₂", GRADIENT, (1, 2, 4, 8), _directions, -0.5, _mean),
    Rate("dimension", "dimension d", f"{GRADIENT}, over its start", (8, 16, 32, 64), _dimension, 0.5, _relative_mean),
    Rate(
        "effective_rank",
        "effective rank κ (DeComFL, d = 512)",
        f"{GRADIENT}, over its start",
        (4.0, 8.0, 16.0, 32.0, 64.0),
        _rank,
        0.5,
        _relative_mean,
    ),
    Rate(
        "receive_snr",
        "receive SNR",
        "||grad f||², less that without noise",
        (0.01, 0.03, 0.1, 0.3),
        _snr,
        -1.0,
        _second_half,
        np.inf,
    ),
)
"""All but the effective rank are FedZO's. At the size "cpu" the conditions of the bounds hold, except over the air:
there they ask for rates too small to converge in so few rounds. The table has the margins."""

SMOOTHINGS = (0.05, 0.1, 0.2, 0.4)


def difference_errors(smoothings: Any, num_seeds: int, num_directions: int = 64) -> dict[str, np.ndarray]:
    """[seeds, smoothings] root mean square of a finite difference less the slope along unit vectors, by difference.

    The function is sum_j cos(x_j) in 10 dimensions; all smoothings of a seed have the same directions.
    """
    loss = lambda x, batch: jnp.sum(jnp.cos(x)) + 0 * batch  # noqa: E731
    x, batch = jnp.linspace(0.2, 1.2, 10), jnp.zeros(1)

    def error(difference: Any, seed: jax.Array, smoothing: jax.Array) -> jax.Array:
        def scalars(kind: Any) -> jax.Array:
            estimate = estimator(loss, sphere(), num_directions, smoothing, kind)
            return estimate(lambda number: rng.fold(rng.seed_key(seed), number), x, batch).scalars

        return jnp.sqrt(jnp.mean(jnp.square(scalars(difference) - scalars(jvp()))))

    seeds, values = jnp.arange(num_seeds, dtype=jnp.uint32), jnp.asarray(smoothings, jnp.float32)
    found = {}
    for name, difference in (("forward", forward()), ("central", central())):
        over = jax.vmap(functools.partial(error, difference), in_axes=(None, 0))
        found[name] = np.asarray(jax.jit(jax.vmap(over, in_axes=(0, None)))(seeds, values), np.float64)
    return found


def points(size: Size) -> list[Point]:
    return [
        Point(f"{rate.name}_{value:g}", rate.config(value, size))
        for rate in RATES
        for value in (*rate.values, *([rate.reference] if rate.reference is not None else []))
    ]


def finish(size: Size, results: Results, directory: Path) -> list[Observation]:
    panels, rows = [], []
    for rate in RATES:
        found = [rate.reduce(results[f"{rate.name}_{value:g}"], size.num_rounds) for value in rate.values]
        values = np.stack(found, axis=1)
        if rate.reference is not None:
            values = values - rate.reduce(results[f"{rate.name}_{rate.reference:g}"], size.num_rounds)[:, None]
        law = Law("measured", values, fit_exponent(rate.values, values), rate.theory)
        panels.append(Panel(rate.name, rate.label, rate.measured, np.array(rate.values), [law]))
        margins = [_margin(rate.config(value, size)) for value in rate.values]
        rows += [_row(rate.name, law, place, *of) for place, of in enumerate(zip(rate.values, margins, strict=True))]
    laws = [
        Law(f"{name} difference", errors, fit_exponent(SMOOTHINGS, errors), 1.0 if name == "forward" else 2.0)
        for name, errors in difference_errors(SMOOTHINGS, size.num_seeds).items()
    ]
    for law in laws:
        rows += [_row(f"smoothing, {law.label}", law, place, mu, np.nan) for place, mu in enumerate(SMOOTHINGS)]
    measured = "root mean square error of a difference"
    panels.append(Panel("smoothing", "smoothing µ", measured, np.array(SMOOTHINGS), laws))
    for panel in panels:
        save(draw(panel), directory / f"rates_{panel.name}.png")
    save(draw_all(panels), directory / "rates.png", dpi=80)
    write_rows(directory / "rates.csv", rows)
    return [_observation(panel, law) for panel in panels for law in panel.laws]


def _margin(config: Config) -> float:
    """Allowed over used learning rate, by the bound that covers the config."""
    task = task_of(config)
    bound = bounds_of(config)[0].of(
        constants_of(config, task).mean, setting_of(config, task, config.algorithm.learning_rate, config.num_rounds)
    )
    return float(bound.largest_learning_rate) / config.algorithm.learning_rate


def _observation(panel: Panel, law: Law) -> Observation:
    which = f", {law.label}" if len(panel.laws) > 1 else ""
    return Observation(
        f"{panel.label}{which}: exponent {law.theory:g}",
        f"the fitted exponent is at most {NEAR} from it",
        bool(abs(law.fit.value - law.theory) <= NEAR),
        f"{interval(law.fit)}, 95% confidence",
    )


def _row(name: str, law: Law, place: int, value: float, margin: float) -> dict[str, Any]:
    column = law.values[:, place]
    return {
        "rate": name,
        "value": value,
        "seeds": len(column),
        "mean": float(column.mean()),
        "standard_error": float(column.std(ddof=1) / np.sqrt(len(column))),
        "exponent": law.fit.value,
        "exponent_low": law.fit.low,
        "exponent_high": law.fit.high,
        "theory": law.theory,
        "allowed_over_used_learning_rate": margin,
    }


FIGURE = PointsFigure(
    name="rates",
    title="Exponents of convergence, measured and from theory",
    sizes={"quick": Size(400, 4), "cpu": Size(2000, 8), "full": Size(20_000, 64)},
    points=points,
    finish=finish,
)

if __name__ == "__main__":
    command(FIGURE)
