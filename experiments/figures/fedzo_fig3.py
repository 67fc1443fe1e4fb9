"""FedZO, softmax regression: the number of local steps H, against FedAvg (the paper's first "Fig. 5").

python -m experiments.figures.fedzo_fig3 --workdir=runs/fedzo_fig3 [--quick | --cpu]

The full size (neither option) is 80 runs of 300 rounds: 2.0e12 normal numbers, 1.2e14 floating point operations in
products. It was not run.
"""

from experiments.configs import fedzo_fashion_softmax
from experiments.figures.command_line import command
from experiments.figures.curves import Curve, Figure, Study
from experiments.figures.drawing import Look
from experiments.figures.observations import Curves, Observation, comparable, faster_in_turn, slightly_slower

LOCAL_STEPS = (5, 10, 20, 50)
NAMES = {"fedzo": "FedZO", "fedavg": "FedAvg"}


def label(algorithm: str, local_steps: int) -> str:
    return f"{NAMES[algorithm]}, H = {local_steps}"


def observe(curves: Curves) -> list[Observation]:
    pairs = [(label("fedzo", steps), label("fedavg", steps)) for steps in LOCAL_STEPS]
    statement = "FedZO is slightly slower than FedAvg with the same number of local steps"
    return [
        slightly_slower(f"{statement}: training loss", curves, pairs),
        slightly_slower(f"{statement}: test accuracy", curves, pairs, "test_accuracy"),
        comparable(
            "FedZO with H = 20 is comparable to FedAvg with H = 5", curves, label("fedzo", 20), label("fedavg", 5)
        ),
        faster_in_turn(
            "FedZO is faster with more local steps", curves, [label("fedzo", steps) for steps in LOCAL_STEPS]
        ),
    ]


FIGURE = Figure(
    name="fedzo_fig3",
    title="FedZO and FedAvg on Fashion-MNIST: local steps H, all clients taking part",
    caption="Softmax regression, d = 7,850, N = M = 50, 100 label shards, η = µ = 1e-3, b₁ = 25, b₂ = 20.",
    studies=(
        Study(
            "local_steps",
            fedzo_fashion_softmax.get_config(),
            (f"algorithm.local_steps={list(LOCAL_STEPS)}", f"algorithm.name={list(NAMES)}"),
        ),
    ),
    curves=tuple(
        Curve(
            label(algorithm, steps),
            "local_steps",
            {"algorithm.name": algorithm, "algorithm.local_steps": steps},
            Look(number, dashed=algorithm == "fedavg"),
        )
        for algorithm in NAMES
        for number, steps in enumerate(LOCAL_STEPS)
    ),
    observe=observe,
)

if __name__ == "__main__":
    command(FIGURE)
