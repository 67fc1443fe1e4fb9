"""Memory of servers and clients, from the compiled programs, against Table 4 of DeComFL's paper.

python -m experiments.figures.decomfl_tab4 --workdir=runs/decomfl_tab4 [--quick | --cpu]

One client's round (K = 1) and one server's step are compiled, not run, for batches of one example, so that activations
are few: a program holds what it is given, what it hands back, and temporaries. Directions are held one at a time.
`table.csv` has them in units of the model's size d. The networks are those of DeComFL's figures and one of 16 equal
layers, whose largest leaf is a small part of it; --quick has the smaller ones. On a CPU programs are compiled for the
least memory, for which XLA has an option (for any command: XLA_FLAGS=--xla_cpu_scheduler_type=
CPU_SCHEDULER_TYPE_MEMORY_OPTIMIZED, one word): a leaf's direction is then drawn when the loss gets to the leaf, and
dropped before the next. What one evaluation of the loss needs besides the model, for any method, has its own column.
"""

from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from experiments.figures.command_line import Size, command
from experiments.figures.observations import Observation
from experiments.figures.points import PointsFigure, Results
from experiments.files import write_rows
from zofed import ClientData, decomfl, fedavg, fedzo, rng
from zofed.base import Algorithm, Cohort, LossFn, Params, dimension
from zofed.models.classifier import Classifier
from zofed.models.cnn import fashion_cnn, mnist_cnn
from zofed.replay import History

LAYERS, WIDTH, STEPS = 16, 256, 1
HISTORY_ROUNDS = 1000
LEAST_MEMORY: dict[str, dict[str, str | bool]] = {
    "cpu": {"xla_cpu_scheduler_type": "CPU_SCHEDULER_TYPE_MEMORY_OPTIMIZED"},
}
"""By backend: XLA's option to order operations for memory, not for concurrency; on other backends it does so anyway."""

NEAR = 0.25
"""Of a number of models that is near another, as a share of the latter."""


class Model(NamedTuple):
    name: str
    params: Any
    loss: LossFn
    example: Any


def equal_layers() -> Model:
    """ReLU layers of one width, and the mean square of what comes out."""
    params = {f"layer{number}": jax.ShapeDtypeStruct((WIDTH, WIDTH), jnp.float32) for number in range(LAYERS)}

    def loss(params: Params, batch: jax.Array) -> jax.Array:
        for weights in params.values():
            batch = jax.nn.relu(batch @ weights)
        return jnp.mean(jnp.square(batch), axis=-1)

    return Model(f"{LAYERS} layers of {WIDTH} x {WIDTH}", params, loss, jnp.zeros((1, WIDTH)))


def classifier(name: str, model: Classifier) -> Model:
    def loss(params: Params, batch: Any) -> jax.Array:
        return -jax.nn.log_softmax(model.apply(params, batch))[:, 0]

    return Model(name, jax.eval_shape(model.init, jax.random.key(0)), loss, jnp.zeros((1, *model.image_shape)))


def algorithms(loss: LossFn, num_directions: int) -> dict[str, Algorithm]:
    return {
        "DeComFL": decomfl(loss, 1e-3, 1e-3, STEPS, num_directions, 1, direction_chunk=1),
        "FedZO": fedzo(loss, 1e-3, 1e-3, STEPS, num_directions, 1, direction_chunk=1),
        "FedAvg": fedavg(loss, 1e-3, STEPS, 1),
    }


class Memory(NamedTuple):
    """Bytes of a compiled program."""

    given: int
    returned: int
    temporaries: int

    @property
    def total(self) -> int:
        return sum(self)


def memory_of(program: Callable[..., Any], *shapes: Any, donate: tuple[int, ...] = ()) -> Memory:
    """Of the program, compiled for arrays of these shapes; what is donated is held once."""
    lowered = jax.jit(program, donate_argnums=donate).lower(*shapes)
    analysis = lowered.compile(compiler_options=LEAST_MEMORY.get(jax.default_backend())).memory_analysis()
    assert analysis is not None
    returned = analysis.output_size_in_bytes - analysis.alias_size_in_bytes
    return Memory(analysis.argument_size_in_bytes, returned, analysis.temp_size_in_bytes)


def client_memory(algorithm: Algorithm, model: Model) -> Memory:
    """Of a client's round: it is given the model and hands back its message."""
    data = ClientData.from_partition(model.example, [[0]])
    state = jax.eval_shape(lambda params: algorithm.init(params, 1), model.params)

    def local(server: Any, memory: Any) -> Any:
        keys = rng.round_keys(rng.seed_key(0), 0)
        own = jax.tree.map(lambda leaf: leaf[0], memory)
        return algorithm.local(keys, server, own, data.client(jnp.int32(0)))[0]

    return memory_of(local, state.server, state.memory)


def evaluation_memory(model: Model) -> Memory:
    """Of one evaluation of the loss: what any method needs."""
    return memory_of(model.loss, model.params, model.example)


def server_memory(algorithm: Algorithm, model: Model, message: Any) -> Memory:
    """Of a server that moves its model in place by the mean message."""
    state = jax.eval_shape(lambda params: algorithm.init(params, 1), model.params)
    cohort = Cohort(jnp.zeros(1, jnp.int32), 1)

    def step(state: Any, aggregate: Any) -> Any:
        return algorithm.server(rng.round_keys(rng.seed_key(0), 0), state, aggregate, cohort)

    return memory_of(step, state, message, donate=(0,))


def row(model: Model, name: str, algorithm: Algorithm, num_directions: int) -> dict[str, Any]:
    dim = dimension(model.params)
    scalars = jax.ShapeDtypeStruct((STEPS, num_directions), jnp.float32)
    client, evaluation = client_memory(algorithm, model), evaluation_memory(model)
    server = server_memory(algorithm, model, scalars if name == "DeComFL" else model.params)
    return {
        "model": model.name,
        "algorithm": name,
        "dim": dim,
        "largest_leaf": max(leaf.size for leaf in jax.tree.leaves(model.params)) / dim,
        "client": client.total / (4 * dim),
        "client_temporaries": client.temporaries / (4 * dim),
        "evaluation_temporaries": evaluation.temporaries / (4 * dim),
        "server": server.total / (4 * dim),
        "server_temporaries": server.temporaries / (4 * dim),
    }


def history_bytes(num_directions: int) -> int:
    """Of the rounds that a server keeps which has no model."""
    shapes = jax.eval_shape(
        lambda: History(
            *(jnp.zeros(HISTORY_ROUNDS, jnp.int32), jnp.zeros((HISTORY_ROUNDS, 2), jnp.uint32)),
            jnp.zeros((HISTORY_ROUNDS, STEPS, num_directions)),
            *(jnp.zeros(HISTORY_ROUNDS, jnp.int32), jnp.zeros(HISTORY_ROUNDS)),
        )
    )
    return sum(leaf.size * leaf.dtype.itemsize for leaf in jax.tree.leaves(shapes))


def finish(size: Size, results: Results, directory: Path) -> list[Observation]:
    del results
    models = [equal_layers(), classifier("mnist_cnn", mnist_cnn()), classifier("fashion_cnn", fashion_cnn())]
    num_directions = size.num_seeds
    rows = [
        row(model, name, algorithm, num_directions)
        for model in models[: size.num_rounds]
        for name, algorithm in algorithms(model.loss, num_directions).items()
    ]
    write_rows(directory / "table.csv", rows)
    ours, theirs = ([own for own in rows if own["algorithm"] == name] for name in ("DeComFL", "FedZO"))
    kept = history_bytes(num_directions)

    def numbers(column: str, own: list[dict[str, Any]]) -> str:
        return "; ".join(f"{one['model']}: {one[column]:.2f} d" for one in own)

    return [
        Observation(
            "DeComFL's client needs d and a largest leaf",
            f"what the compiled program holds besides an evaluation's temporaries is within {NEAR:.0%} of it, or less",
            all(
                own["client"] - own["evaluation_temporaries"] <= (1 + own["largest_leaf"]) * (1 + NEAR) for own in ours
            ),
            f"{numbers('client', ours)} (largest leaf {numbers('largest_leaf', ours)}; an evaluation's temporaries "
            f"{numbers('evaluation_temporaries', ours)})",
        ),
        Observation(
            "FedZO's client needs 3 d",
            f"what the compiled program holds is within {NEAR:.0%} of it",
            all(abs(own["client"] / 3 - 1) <= NEAR for own in theirs),
            numbers("client", theirs),
        ),
        Observation(
            "DeComFL's client needs less than FedZO's",
            "what the compiled program holds is less, for every model",
            all(own["client"] < other["client"] for own, other in zip(ours, theirs, strict=True)),
            f"DeComFL: {numbers('client', ours)}. FedZO: {numbers('client', theirs)}",
        ),
        Observation(
            "FedZO's server needs at least 2 d",
            "so does the compiled program",
            all(own["server"] >= 2 for own in theirs),
            numbers("server", theirs),
        ),
        Observation(
            "DeComFL's server needs a negligible amount without a model",
            f"keys, scalars and rates of {HISTORY_ROUNDS} rounds are less than a tenth of the largest model",
            kept < 0.1 * 4 * max(own["dim"] for own in rows),
            f"{kept} bytes; a server that moves a model: {numbers('server', ours)}",
        ),
    ]


FIGURE = PointsFigure(
    name="decomfl_tab4",
    title="Table 4 of DeComFL: memory of servers and clients",
    sizes={"quick": Size(2, 5), "cpu": Size(3, 5), "full": Size(3, 5)},
    points=lambda size: [],
    finish=finish,
    words=("models", "directions"),
)

if __name__ == "__main__":
    command(FIGURE)
