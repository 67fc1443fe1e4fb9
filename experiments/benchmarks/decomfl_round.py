"""Times DeComFL rounds of the paper's CNNs (m = 10 clients, batches of 32), replay and aggregation included.

    python -m experiments.benchmarks.decomfl_round [--cases=mnist_cnn:1:5,mnist_cnn:5:10,fashion_cnn:5:25] [--repeats=5]

A case is model:local steps K:directions P. Beside each round, in the same run: the rate of float32 matrix products of
2048 x 2048, of which the round's rate is a fraction; and a plain Python loop over clients, steps and directions of
jitted functions. A round counts as the floating-point operations of its m K (P + 1) forward passes of 32 images, those
of the models' convolutions and products alone. The data is random of MNIST's shape: speed does not depend on it.
"""

from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax
from absl import app, flags

from experiments.benchmarks.timing import compile_program, interleaved_medians
from experiments.image_tasks import MODELS
from zofed import cohorts, data, decomfl, rng, simulate, sweep, tasks
from zofed.base import Params, State
from zofed.directions import gaussian
from zofed.sequential import one_model_at_a_time
from zofed.tasks import Task

CASES = flags.DEFINE_list(
    "cases", ["mnist_cnn:1:5", "mnist_cnn:5:10", "fashion_cnn:5:25"], "Cases, model:local steps:directions."
)
REPEATS = flags.DEFINE_integer("repeats", 5, "Timed runs of each program; the median is shown.", lower_bound=1)
LOOP = flags.DEFINE_bool("loop", True, "Time the plain Python loop, too.")
MEMORY = flags.DEFINE_bool("memory", True, "Compile the Fashion CNN with 200 directions, and say what it needs.")

CLIENTS, COHORT, BATCH = 100, 10, 32
RATE, SMOOTHING = 1e-3, 1e-3
PRODUCT = 2048

FORWARD = {
    "mnist_cnn": 2 * (28 * 28 * 25 * 16 + 14 * 14 * 25 * 16 * 32 + 1568 * 10),
    "fashion_cnn": 2 * (26 * 26 * 9 * 32 + 24 * 24 * 9 * 32 * 64 + 9216 * 128 + 128 * 62),
}
"""Floating-point operations of one image's forward pass."""


def task_of(model_name: str) -> Task:
    """The model on random images, six for each of the clients."""
    generator = np.random.default_rng(0)
    size = 6 * CLIENTS
    split = {
        "image": generator.integers(0, 256, (size, 28, 28), np.uint8),
        "label": generator.integers(0, 10, size, np.int32),
    }
    model = MODELS[model_name]
    return tasks.classification(
        model.init, model.apply, data.Dataset("random", split, split, 10, 255), data.iid(size, CLIENTS, 0)
    )


def round_of(task: Task, local_steps: int, num_directions: int, num_devices: int) -> tuple[Any, State]:
    """`(key, state, clients) -> state`, one round, and the state it starts from."""
    algorithm = decomfl(
        one_model_at_a_time(task.loss),
        RATE,
        SMOOTHING,
        local_steps,
        num_directions,
        BATCH,
        optimizer=optax.ema(0.5, debias=False),
        sample_cohort=cohorts.uniform(COHORT),
        direction_chunk=max(1, 2**18 // sum(leaf.size for leaf in jax.tree.leaves(shapes_of(task)))),
    )
    mesh = sweep.client_mesh(jax.devices()[:num_devices]) if num_devices > 1 else None

    def play(key: jax.Array, state: State, clients: Any) -> State:
        return simulate(key, algorithm, state, clients, 1, mesh=mesh)[0]

    return play, algorithm.init(task.init(rng.seed_key(0)), CLIENTS)


def shapes_of(task: Task) -> Params:
    return jax.eval_shape(task.init, jax.random.key(0))


def plain_loop(task: Task, local_steps: int, num_directions: int) -> Callable[[], Params]:
    """A round as one would write it first: each client, step and direction in turn, from the same functions."""
    law = gaussian()

    @jax.jit
    def moved(params: Params, key: jax.Array, length: jax.Array) -> Params:
        raw = law.sample(key, jnp.int32(0), params).raw
        return jax.tree.map(lambda leaf, own: leaf + length * own, params, raw)

    loss = jax.jit(lambda params, batch: jnp.mean(task.loss(params, batch)))
    clients, start = task.data.clients, task.init(rng.seed_key(0))

    def step(params: Params, scalars: Sequence[Any], number: int) -> Params:
        for direction, scalar in enumerate(scalars):
            length = jnp.float32(-RATE * float(scalar) / num_directions)
            params = moved(params, rng.fold(rng.seed_key(number), direction), length)
        return params

    def play() -> Params:
        total = np.zeros((local_steps, num_directions), np.float32)
        generator = np.random.default_rng(0)
        for client in range(COHORT):
            params = start
            for number in range(local_steps):
                places = client * 6 + generator.integers(0, 6, BATCH)
                batch = jax.tree.map(lambda field, places=places: field[places], clients.samples)
                base = loss(params, batch)
                scalars = []
                for direction in range(num_directions):
                    key = rng.fold(rng.seed_key(number), direction)
                    above = moved(params, key, jnp.float32(SMOOTHING))
                    scalars.append((loss(above, batch) - base) / SMOOTHING)
                total[number] += np.asarray(scalars) / COHORT
                params = step(params, scalars, number)
        params = start
        for number in range(local_steps):
            params = step(params, total[number], number)
        return jax.block_until_ready(params)

    return play


def main(arguments: Sequence[str]) -> None:
    if len(arguments) > 1:
        raise app.UsageError(f"{list(arguments[1:])} are no options")
    jax.config.update("jax_num_cpu_devices", 2)
    square = jnp.ones((PRODUCT, PRODUCT))
    product = compile_program(lambda left, right: left @ right, square, square).call
    print(f"m = {COHORT} of {CLIENTS} clients, batches of {BATCH}, {jax.devices()[0].device_kind}")
    header = (
        f"{'case':24} {'way':22} {'median s':>9} {'GFLOP/s':>8} {'of GEMM':>8} {'compile s':>10} {'temporaries MB':>15}"
    )
    print(header)
    for case in CASES.value:
        name, local_steps, num_directions = case.split(":")
        counts = int(local_steps), int(num_directions)
        task, key = task_of(name), rng.seed_key(0)
        operations = COHORT * counts[0] * (counts[1] + 1) * BATCH * FORWARD[name]
        programs = {}
        for num_devices in (1, 2):
            play, state = round_of(task, *counts, num_devices)
            programs[f"zofed, {num_devices} devices"] = compile_program(play, key, state, task.data.clients)
        calls = {way: program.call for way, program in programs.items()} | {"product": product}
        if LOOP.value:
            calls["plain loop"] = plain_loop(task, *counts)
        medians = interleaved_medians(calls, REPEATS.value)
        peak = 2 * PRODUCT**3 / medians.pop("product")
        for way, seconds in medians.items():
            known = programs.get(way)
            compiled = f"{known.compile_seconds:10.1f} {known.temporary_bytes / 1e6:15.1f}" if known else ""
            rate = operations / seconds
            print(f"{case:24} {way:22} {seconds:9.3f} {rate / 1e9:8.1f} {rate / peak:8.2f} {compiled}", flush=True)
        print(f"{case:24} {'GEMM':22} {2 * PRODUCT**3 / peak:9.3f} {peak / 1e9:8.1f} {1.0:8.2f}", flush=True)
    if MEMORY.value:
        task = task_of("fashion_cnn")
        play, state = round_of(task, 5, 200, 2)
        needed = compile_program(play, rng.seed_key(0), state, task.data.clients).temporary_bytes
        print(f"fashion_cnn:5:200: temporaries {needed / 2**20:.0f} MiB on two devices together (aim: at most 4 GiB)")


if __name__ == "__main__":
    app.run(main)
