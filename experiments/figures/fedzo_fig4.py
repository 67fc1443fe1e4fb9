"""FedZO, softmax regression: the number of participants M at H = 5 (the paper's second "Fig. 5").

python -m experiments.figures.fedzo_fig4 --workdir=runs/fedzo_fig4 [--quick | --cpu]

The full size (neither option) is 50 runs of 300 rounds: 2.1e11 normal numbers, 1.2e13 floating point operations in
products. It was not run.
"""

from experiments.configs import fedzo_fashion_softmax
from experiments.figures.command_line import command
from experiments.figures.curves import Curve, Figure, Study
from experiments.figures.drawing import Look
from experiments.figures.observations import Curves, Observation, comparable, faster_in_turn

COHORT_SIZES = (5, 10, 25, 50)
FEDAVG = "FedAvg, M = 50"


def label(cohort_size: int) -> str:
    return f"FedZO, M = {cohort_size}"


def observe(curves: Curves) -> list[Observation]:
    labels = [label(size) for size in COHORT_SIZES]
    return [
        faster_in_turn("FedZO is faster with more participants: training loss", curves, labels),
        faster_in_turn("FedZO is faster with more participants: test accuracy", curves, labels, "test_accuracy"),
        comparable("FedZO with M = 50 is comparable to FedAvg with M = 50", curves, label(50), FEDAVG),
    ]


FIGURE = Figure(
    name="fedzo_fig4",
    title="FedZO on Fashion-MNIST: participants M, H = 5 local steps",
    caption="Softmax regression, d = 7,850, N = 50, H = 5, 100 label shards, η = µ = 1e-3, b₁ = 25, b₂ = 20.",
    studies=(
        Study("fedzo", fedzo_fashion_softmax.get_config(), (f"cohort_size={list(COHORT_SIZES)}",)),
        Study("fedavg", fedzo_fashion_softmax.get_config(), ('algorithm.name=["fedavg"]',)),
    ),
    curves=(
        *(Curve(label(size), "fedzo", {"cohort_size": size}, Look(number)) for number, size in enumerate(COHORT_SIZES)),
        Curve(FEDAVG, "fedavg", {"algorithm.name": "fedavg"}, Look(6, dashed=True)),
    ),
    observe=observe,
    reference=FEDAVG,
)

if __name__ == "__main__":
    command(FIGURE)
