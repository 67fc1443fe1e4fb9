"""Times a sweep of 16 FedZO runs (4 learning rates x 4 seeds) against one run, and the ways to spread them.

    python -m experiments.benchmarks.sweep_cells [--data=digits|random_images] [--repeats=5]

Ways: one CPU device for all cells, one XLA CPU device per core with the cells spread over them, and for the single run
the clients spread over them. All in one process, which has one XLA CPU device per core; compile time is apart, and the
final training losses of all ways are compared.
"""

import os
import time
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from absl import app, flags

from experiments.benchmarks.problems import digits_task, random_images_task
from experiments.benchmarks.timing import interleaved_medians
from zofed import fedzo, rng, simulate, sweep
from zofed.base import State
from zofed.sweep.cell import Settings
from zofed.tasks import Task, TaskData

DATA = flags.DEFINE_enum("data", "digits", ["digits", "random_images"], "Digits, or images of Fashion-MNIST's size.")
REPEATS = flags.DEFINE_integer("repeats", 5, "Timed runs of each way; the median is shown.", lower_bound=1)
ROUNDS = flags.DEFINE_integer("rounds", 10, "Rounds of a run.", lower_bound=1)

CHUNKS = flags.DEFINE_list("chunks", ["1", "10"], "Clients at once.")

CELLS = 16


class Way(NamedTuple):
    """A way to run cells: `call()` plays a whole run; `traces` counts how often the cell was traced."""

    call: Callable[[], Any]
    compile_seconds: float
    traces: int


def cells_way(
    task: Task,
    num_cells: int,
    devices: Sequence[Any],
    client_chunk: int,
    client_devices: int = 1,
    cell_chunk: int | None = None,
) -> Way:
    """`num_cells` cells as one program over `devices`, and the clients of each cell over `client_devices`."""
    traces = 0
    mesh = sweep.client_mesh(jax.devices()[:client_devices]) if client_devices > 1 else None

    def algorithm(settings: Settings) -> Any:
        return fedzo(task.loss, settings["learning_rate"], 1e-3, local_steps=5)

    def start(settings: Settings, task_data: TaskData) -> tuple[State, Any]:
        params = task.init(rng.seed_key(0))
        return algorithm(settings).init(params, task_data.clients.num_clients), {}

    def advance(state: State, settings: Settings, task_data: TaskData) -> tuple[State, Any]:
        nonlocal traces
        traces += 1
        key = rng.seed_key(settings["seed"])
        built = algorithm(settings)
        clients = task_data.clients
        state, _ = simulate(key, built, state, clients, ROUNDS.value, client_chunk=client_chunk, mesh=mesh)
        return state, task.evaluate(built.params(state), task_data)

    program = sweep.vectorise(sweep.Cell(start, advance), num_cells, devices, mesh, cell_chunk)
    numbers = np.arange(num_cells)
    settings = program.pad(
        {
            "learning_rate": jnp.asarray(10.0 ** (-3 + numbers % 4 / 2), jnp.float32),
            "seed": jnp.asarray(numbers // 4, jnp.uint32),
        }
    )
    placed = program.place(task.data)
    began = time.perf_counter()
    shapes = jax.eval_shape(program.start, settings, placed)[0]
    compiled = program.advance.lower(shapes, settings, placed).compile()
    seconds = time.perf_counter() - began

    def call() -> Any:
        states, _ = program.start(settings, placed)
        return program.trim(compiled(states, settings, placed)[1]["train_loss"])

    return Way(call, seconds, traces)


def main(arguments: Sequence[str]) -> None:
    if len(arguments) > 1:
        raise app.UsageError(f"{list(arguments[1:])} are no options")
    cores = len(os.sched_getaffinity(0))
    jax.config.update("jax_num_cpu_devices", cores)
    task = digits_task(20) if DATA.value == "digits" else random_images_task(50)
    one, all_ = jax.devices()[:1], jax.devices()
    ways = {}
    for chunk in map(int, CHUNKS.value):
        ways[f"1 cell, {chunk} clients at once"] = cells_way(task, 1, one, chunk)
        ways[f"1 cell, clients on {cores} devices, {chunk} at once"] = cells_way(task, 1, one, chunk, cores)
        for cell_chunk, which in ((None, "all"), (1, "one")):
            for devices in (one, all_):
                name = f"{CELLS} cells on {len(devices)} devices, {which} cells, {chunk} clients at once"
                ways[name] = cells_way(task, CELLS, devices, chunk, cell_chunk=cell_chunk)
    losses = {name: np.asarray(way.call(), np.float64) for name, way in ways.items()}
    medians = interleaved_medians({name: way.call for name, way in ways.items()}, REPEATS.value)

    single = min(median for name, median in medians.items() if name.startswith("1 cell"))
    single_compile = min(way.compile_seconds for name, way in ways.items() if name.startswith("1 cell"))
    print(f"{DATA.value}: {ROUNDS.value} rounds, {cores} cores, {jax.devices()[0].device_kind}")
    print(
        f"{'way':56} {'median s':>9} {'x best 1 cell':>14} {'compile s':>10} {'ratio':>6} {'traces':>7} {'loss off':>9}"
    )
    reference = next(value for value in losses.values() if value.size == CELLS)
    for name, way in ways.items():
        off = np.abs(losses[name] - reference[: losses[name].size]).max()
        print(
            f"{name:56} {medians[name]:9.3f} {medians[name] / single:14.2f} {way.compile_seconds:10.2f} "
            f"{way.compile_seconds / single_compile:6.2f} {way.traces:7d} {off:9.1e}"
        )


if __name__ == "__main__":
    app.run(main)
