"""Times one FedZO round of softmax regression (N = M = 50, H = 5, b1 = 25, b2 = 20, d = 7,850).

    python -m experiments.benchmarks.fedzo_round [--repeats=9]

Beside it, in the same run: the same program with plain `jax.random.normal`, and the floor: the round's 39 million
random numbers alone, fused into a reduction, plus its matrix products at the rate of one product of their shape.
The data is random of Fashion-MNIST's shape: speed does not depend on its values.
"""

from collections.abc import Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from absl import app, flags

from experiments.benchmarks.problems import random_images_task
from experiments.benchmarks.timing import compile_program, interleaved_medians
from zofed import ClientData, fedzo, rng, simulate
from zofed.base import Params, State, squared_norm
from zofed.directions import Direction, Directions, sphere
from zofed.tasks import Task

REPEATS = flags.DEFINE_integer("repeats", 9, "Timed runs of each program; the median is shown.", lower_bound=1)

CLIENTS, LOCAL_STEPS, BATCH, DIRECTIONS = 50, 5, 25, 20
CHUNKS = (1, 2, 10)


def plain_sphere() -> Directions:
    """The law `sphere()` from the same keys, drawn by `jax.random` where XLA likes."""

    def sample(key: jax.Array, index: jax.Array, like: Params) -> Direction:
        del index
        keys = rng.leaf_keys(key, like)
        raw = jax.tree.map(lambda leaf_key, leaf: jax.random.normal(leaf_key, leaf.shape), keys, like)
        return Direction(raw, jax.lax.rsqrt(squared_norm(raw)))

    return Directions(sample, lambda dim: 1.0)


def play_round(task: Task, directions: Directions, chunk: int) -> Any:
    """`(key, state, clients) -> next state`, one round."""
    algorithm = fedzo(task.loss, 1e-3, 1e-3, LOCAL_STEPS, DIRECTIONS, BATCH, directions=directions)

    def play(key: jax.Array, state: State, clients: ClientData) -> State:
        return simulate(key, algorithm, state, clients, 1, client_chunk=chunk)[0]

    return play, algorithm


def main(arguments: Sequence[str]) -> None:
    if len(arguments) > 1:
        raise app.UsageError(f"{list(arguments[1:])} are no options")
    task, key = random_images_task(CLIENTS), rng.seed_key(0)
    params = task.init(key)
    dim = sum(leaf.size for leaf in jax.tree.leaves(params))
    clients = task.data.clients

    programs = {}
    for name, law in (("zofed", sphere()), ("plain", plain_sphere())):
        for chunk in CHUNKS:
            play, algorithm = play_round(task, law, chunk)
            state = algorithm.init(params, CLIENTS)
            programs[f"{name}, {chunk} clients at once"] = compile_program(play, key, state, clients)

    steps = CLIENTS * LOCAL_STEPS
    numbers = steps * DIRECTIONS * dim
    programs["random numbers alone"] = compile_program(lambda key: jnp.sum(rng.normal(key, (numbers,))), key)
    left, right = jnp.ones((BATCH, 784)), jnp.ones((784, DIRECTIONS * 10))
    products = 1000
    programs["products"] = compile_program(
        lambda left, right: jax.lax.fori_loop(
            0, products, lambda _, total: total + (left + total[0, 0] * 1e-30) @ right, jnp.zeros((BATCH, 200))
        ),
        left,
        right,
    )
    results = {name: program.call() for name, program in programs.items() if "clients" in name}
    medians = interleaved_medians({name: program.call for name, program in programs.items()}, REPEATS.value)

    product_seconds = medians["products"] / products * steps
    floor = medians["random numbers alone"] + product_seconds
    best = {law: min((name for name in results if law in name), key=medians.__getitem__) for law in ("zofed", "plain")}
    reference = np.float64(results[best["plain"]].server.params["weights"])
    print(f"{numbers / 1e6:.1f} million random numbers a round, dim {dim}, {jax.devices()[0].device_kind}")
    print(f"{'program':30} {'median ms':>10} {'compile s':>10} {'temporaries MB':>15} {'max |x - plain x|':>18}")
    for name, result in results.items():
        difference = np.abs(np.float64(result.server.params["weights"]) - reference).max()
        program = programs[name]
        print(
            f"{name:30} {medians[name] * 1e3:10.1f} {program.compile_seconds:10.2f} "
            f"{program.temporary_bytes / 1e6:15.2f} {difference:18.1e}"
        )
    print(f"{'floor: random numbers':30} {medians['random numbers alone'] * 1e3:10.1f}")
    print(f"{'floor: matrix products':30} {product_seconds * 1e3:10.1f}")
    ours, plain = medians[best["zofed"]], medians[best["plain"]]
    print(
        f"plain / zofed = {plain / ours:.2f} (aim: at least 1.8); zofed / floor = {ours / floor:.2f} (aim: at most 1.4)"
    )
    print(f"largest weight after the round: {np.abs(reference).max():.1e}")


if __name__ == "__main__":
    app.run(main)
