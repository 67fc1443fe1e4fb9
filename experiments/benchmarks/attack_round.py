"""Times FedZO rounds of the CIFAR-10 attack, in evaluations of the classifier, against the classifier alone.

    python -m experiments.benchmarks.attack_round [--clients=4] [--local_steps=1] [--repeats=5]

Each client asks for b1 (b2 + 1) = 525 evaluations a step. The classifier alone runs on images at hand, in batches of
several sizes, and the best of these is what the rounds are measured by: on one XLA device, which has all cores, and on
one device per core, as the apps run. On a CPU both need the same blocks of images; whatever the rounds lose goes into
directions, tanh and the last, smaller block of a batch. Images are random: speed does not depend on them.
"""

import os
from collections.abc import Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from absl import app, flags
from jax.sharding import PartitionSpec as Spec

from experiments.benchmarks.timing import compile_program, interleaved_medians
from zofed import ClientData, fedzo, rng, simulate, sweep
from zofed.attack import attack
from zofed.base import State
from zofed.models.pretrained import resnet8_cifar10
from zofed.models.resnet import resnet8
from zofed.sequential import one_model_at_a_time

CLIENTS = flags.DEFINE_integer("clients", 4, "Clients in a round.", lower_bound=1)
LOCAL_STEPS = flags.DEFINE_integer("local_steps", 1, "H.", lower_bound=1)
REPEATS = flags.DEFINE_integer("repeats", 5, "Timed runs of each program; the median is shown.", lower_bound=1)

BATCH, DIRECTIONS = 25, 20
IMAGES = (25, 100, 400)
"""Images that the classifier alone is given at once."""

TOTAL = 1600


def main(arguments: Sequence[str]) -> None:
    if len(arguments) > 1:
        raise app.UsageError(f"{list(arguments[1:])} are no options")
    jax.config.update("jax_num_cpu_devices", len(os.sched_getaffinity(0)))
    params, model = resnet8_cifar10(), resnet8(num_groups=None)
    generator = np.random.default_rng(0)
    images = generator.uniform(-0.5, 0.5, (TOTAL, 32, 32, 3)).astype(np.float32)
    mesh = sweep.client_mesh(jax.devices())

    def alone(size: int) -> Any:
        def classify(image: jax.Array) -> jax.Array:
            return jax.lax.map(lambda block: model.apply(params, 2 * block), image.reshape(-1, size, 32, 32, 3))

        return classify

    def spread(size: int) -> Any:
        return jax.shard_map(
            alone(size), mesh=mesh, in_specs=Spec("clients"), out_specs=Spec("clients"), check_vma=False
        )

    split = {"image": images[:200], "label": np.full(200, 4, np.int32)}
    partition = np.array_split(np.arange(200), CLIENTS.value)
    task = attack(lambda image: model.apply(params, 2 * image), split, list(partition), split)
    algorithm = fedzo(one_model_at_a_time(task.loss), 1e-3, 1e-3, LOCAL_STEPS.value, DIRECTIONS, BATCH)
    state = algorithm.init(jnp.zeros((32, 32, 3)), CLIENTS.value)

    def round_of(**execution: Any) -> Any:
        def play(key: jax.Array, state: State, clients: ClientData) -> State:
            return simulate(key, algorithm, state, clients, 1, **execution)[0]

        return play

    key, clients = rng.seed_key(0), task.data.clients
    cores = len(jax.devices())
    programs = {f"classifier, {size} at once": compile_program(alone(size), images) for size in IMAGES}
    programs |= {
        f"classifier, {size} at once, {cores} devices": compile_program(spread(size), images) for size in IMAGES
    }
    programs["round"] = compile_program(round_of(), key, state, clients)
    programs[f"round, clients on {cores} devices"] = compile_program(round_of(mesh=mesh), key, state, clients)
    medians = interleaved_medians({name: program.call for name, program in programs.items()}, REPEATS.value)
    asked = CLIENTS.value * LOCAL_STEPS.value * BATCH * (DIRECTIONS + 1)
    rates = {name: (asked if "round" in name else TOTAL) / seconds for name, seconds in medians.items()}
    best = max(rate for name, rate in rates.items() if "classifier" in name)
    print(f"{asked} evaluations a round, {jax.devices()[0].device_kind}")
    print(f"{'program':40} {'evaluations/s':>14} {'of the best':>12} {'compile s':>10}")
    for name, rate in rates.items():
        print(f"{name:40} {rate:14.0f} {rate / best:12.2f} {programs[name].compile_seconds:10.1f}")


if __name__ == "__main__":
    app.run(main)
