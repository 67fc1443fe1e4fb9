"""FedZO's black-box attack: the number of participants M (the paper's figure 1(b)).

python -m experiments.figures.fedzo_fig1b --workdir=runs/fedzo_fig1b [--quick | --cpu]

The full size (neither option) is 12 runs of 300 rounds, as many as the authors' code has: 8.5e8 evaluations of the
classifier, 2.1e16 floating point operations. It was not run. The smaller sizes have H = 10, fewer rounds, examples and
directions, and a part of the images.
"""

from experiments.figures.attacks import PANELS, of_fifty, sizes
from experiments.figures.command_line import command
from experiments.figures.curves import Curve, Figure, Study
from experiments.figures.drawing import Look
from experiments.figures.observations import Curves, Observation, falling, faster_in_turn

COHORT_SIZES = (5, 10, 25, 50)


def label(cohort_size: int) -> str:
    return f"FedZO, M = {cohort_size}"


def observe(curves: Curves) -> list[Observation]:
    labels = [label(size) for size in COHORT_SIZES]
    return [
        falling("FedZO reduces the attack loss for every M", curves, labels),
        faster_in_turn("FedZO is faster with more participants", curves, labels),
    ]


FIGURE = Figure(
    name="fedzo_fig1b",
    title="Black-box attack on a CIFAR-10 classifier: participants M",
    caption="One perturbation of 4,131 deer, d = 3,072, N = 50, H = 20, η = µ = 1e-3, b₁ = 25, b₂ = 20, c = 1.",
    studies=(Study("fedzo", of_fifty(), (f"cohort_size={list(COHORT_SIZES)}",)),),
    curves=tuple(
        Curve(label(size), "fedzo", {"cohort_size": size}, Look(number)) for number, size in enumerate(COHORT_SIZES)
    ),
    observe=observe,
    sizes=sizes(cpu_rounds=6, full_rounds=300, local_steps=10),
    panels=PANELS,
)

if __name__ == "__main__":
    command(FIGURE)
