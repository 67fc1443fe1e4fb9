"""Sweeps: grids, groups, and cells that one program plays as if each were alone."""

import functools
from collections.abc import Callable, Sequence
from typing import Any

import chex
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from zofed import fedzo, sweep, tasks

TASK = tasks.quadratic(dim=10, num_clients=4, samples_per_client=4, noise=0.1)
TRACED = {"seed": np.uint32(0), "rate": np.float32(0.02), "smoothing": np.float32(0.1)}


def quadratic_cell(eval_every: int = 2) -> sweep.Cell:
    def algorithm(settings: Any) -> Any:
        return fedzo(
            TASK.loss,
            settings["rate"],
            settings["smoothing"],
            local_steps=2,
            num_directions=3,
            batch_size=2,
        )

    return sweep.federated(TASK.init, TASK.evaluate, algorithm, eval_every)


@functools.cache
def program_of(num_cells: int, num_devices: int = 1, eval_every: int = 2) -> sweep.Program:
    return sweep.vectorise(quadratic_cell(eval_every), num_cells, jax.devices()[:num_devices])


def play(
    axes: Sequence[sweep.Axis],
    segments: int = 2,
    num_devices: int = 1,
    eval_every: int = 2,
    program: sweep.Program | None = None,
) -> tuple[Any, dict[str, np.ndarray]]:
    """States after, and the last record of, the only group of a sweep."""
    (group,) = sweep.split(sweep.product(axes), TRACED)
    program = program or program_of(len(group.cells), num_devices, eval_every)
    data, settings = program.place(TASK.data), program.pad(group.traced)
    states, record = program.start(settings, data)
    for _ in range(segments):
        states, record = program.advance(states, settings, data)
    return program.trim(states), program.trim(record)


def test_product_runs_its_last_axis_fastest() -> None:
    grid = sweep.product([sweep.Axis("a", (1, 2)), sweep.Axis("b", ("x", "y", "z"))])
    assert grid.shape == (2, 3)
    assert [tuple(cell.values()) for cell in grid.cells()][:4] == [(1, "x"), (1, "y"), (1, "z"), (2, "x")]
    assert sweep.product([]).cells() == [{}]


@pytest.mark.parametrize(
    ("axes", "message"),
    [
        ([sweep.Axis("a", (1,)), sweep.Axis("a", (2,))], "swept twice"),
        ([sweep.Axis("a", ())], "no value"),
        ([sweep.Axis("a", (1, 1))], "value twice"),
    ],
)
def test_bad_axes_are_refused(axes: list[sweep.Axis], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        sweep.product(axes)


def test_cells_are_grouped_by_what_shapes_a_program() -> None:
    axes = [sweep.Axis("seed", (3, 4)), sweep.Axis("steps", (1, 5)), sweep.Axis("rate", (0.1, 0.2))]
    groups = sweep.split(sweep.product(axes), TRACED)
    assert [group.static for group in groups] == [{"steps": 1}, {"steps": 5}]
    assert [group.cells for group in groups] == [(0, 1, 4, 5), (2, 3, 6, 7)]
    chex.assert_trees_all_equal(groups[1].traced["seed"], np.array([3, 3, 4, 4], np.uint32))
    chex.assert_trees_all_equal(groups[1].traced["rate"], np.array([0.1, 0.2, 0.1, 0.2], np.float32))
    chex.assert_trees_all_equal(groups[0].traced["smoothing"], np.full(4, 0.1, np.float32))


def test_one_trace_serves_all_segments_and_all_values() -> None:
    chex.clear_trace_counter()
    cell = quadratic_cell()
    once: Any = chex.assert_max_traces(n=1)
    counted = sweep.Cell(once(cell.start), once(cell.advance))
    program = sweep.vectorise(counted, 4)
    for rates in ((0.01, 0.02), (0.03, 0.04)):
        play([sweep.Axis("rate", rates), sweep.Axis("seed", (0, 1))], segments=3, program=program)
    assert program.advance._cache_size() == 1


def test_data_is_an_argument_and_no_constant() -> None:
    state, _ = jax.eval_shape(quadratic_cell().start, TRACED, TASK.data)
    program = jax.make_jaxpr(quadratic_cell().advance)(state, TRACED, TASK.data)
    assert max((np.size(constant) for constant in program.consts), default=0) < TASK.data.clients.samples.size


def test_a_cell_of_many_is_the_run_alone() -> None:
    """Up to round-off: batched products add in another order. The directions and batches are the same."""
    states, record = play([sweep.Axis("seed", (0, 1, 2))])
    alone, record_alone = play([sweep.Axis("seed", (1,))])
    np.testing.assert_allclose(states.server.params[1], alone.server.params[0], atol=1e-5)
    assert record["train_loss"][1] == pytest.approx(record_alone["train_loss"][0], rel=1e-5)
    assert not np.allclose(states.server.params[0], states.server.params[1], atol=1e-3)


@pytest.mark.parametrize("num_devices", [2, 4])
def test_devices_share_the_cells(num_devices: int) -> None:
    """Three cells do not divide over the devices: the last one is repeated, and trimmed away."""
    axes = [sweep.Axis("seed", (0, 1, 2))]
    states, record = play(axes)
    spread, record_spread = play(axes, num_devices=num_devices)
    assert spread.server.params.shape == states.server.params.shape
    np.testing.assert_allclose(spread.server.params, states.server.params, atol=1e-5)
    np.testing.assert_allclose(record_spread["train_loss"], record["train_loss"], rtol=1e-5)


def test_a_diverging_cell_leaves_the_others_alone() -> None:
    states, record = play([sweep.Axis("rate", (0.02, 0.03))])
    mixed, record_mixed = play([sweep.Axis("rate", (0.02, 1e30))])
    assert record_mixed["lost_rounds"][1] > 0
    chex.assert_trees_all_equal(mixed.server.params[0], states.server.params[0])
    chex.assert_trees_all_equal(record_mixed["train_loss"][0], record["train_loss"][0])


def test_short_segments_are_long_ones_bit_for_bit() -> None:
    axes = [sweep.Axis("seed", (0, 1))]
    short, _ = play(axes, segments=4, eval_every=1)
    long, _ = play(axes, segments=1, eval_every=4)
    chex.assert_trees_all_equal(short, long)


def test_a_record_sums_and_averages_the_rounds_of_its_interval() -> None:
    _, record = play([sweep.Axis("seed", (0,))], segments=1)
    assert record["participants"].tolist() == [8]
    assert record["nonfinite"].tolist() == record["lost_rounds"].tolist() == [0]
    assert record["zero_differences"].tolist() == [0.0]
    assert np.isfinite(record["batch_loss"]).all()


def with_a_bad_client(id: int) -> sweep.Cell:
    """The losses of one client's samples are nan: its centres are."""
    cell = quadratic_cell()

    def poisoned(data: Any) -> Any:
        clients = data.clients
        owner = jnp.repeat(jnp.arange(4), clients.sizes, total_repeat_length=clients.samples.shape[0])
        samples = jnp.where((owner == id)[:, None], jnp.nan, clients.samples)
        return data._replace(clients=type(clients)(samples, clients.offsets, clients.sizes, clients.max_size))

    def over(function: Callable[..., Any]) -> Callable[..., Any]:
        return lambda *arguments: function(*arguments[:-1], poisoned(arguments[-1]))

    return sweep.Cell(over(cell.start), over(cell.advance))


def test_clients_that_were_not_heard_are_counted_and_left_out_of_means() -> None:
    states, record = play([sweep.Axis("seed", (0,))], program=sweep.vectorise(with_a_bad_client(2), 1))
    assert record["nonfinite"].tolist() == [2]
    assert record["participants"].tolist() == [8]
    assert record["lost_rounds"].tolist() == [0]
    assert np.isfinite(record["batch_loss"]).all()
    assert np.isfinite(states.server.params).all()
