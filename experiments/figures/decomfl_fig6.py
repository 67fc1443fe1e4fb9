"""FedAvg with the largest 10%, 5% and 1% of each update against DeComFL on Fashion-MNIST (the paper's figure 6).

python -m experiments.figures.decomfl_fig6 --workdir=runs/decomfl_fig6 [--quick | --cpu]

Sizes and settings are those of decomfl_fig3.

The full size (neither option) is 12 runs of 3,000 rounds: 1.2e13 normal numbers and 1.8e9 evaluations of the loss of
one example, 4.2e16 floating point operations. It was not run.
"""

from experiments.configs import decomfl_fashion_cnn, fedavg_fashion_cnn
from experiments.figures.command_line import command
from experiments.figures.curves import Curve, Figure, Study
from experiments.figures.decomfl_fig3 import DECOMFL, SIZES
from experiments.figures.decomfl_observations import ends_higher_in_turn, far_shorter
from experiments.figures.drawing import Look, Panel
from experiments.figures.observations import Curves, Observation, faster_in_turn

FRACTIONS = (0.1, 0.05, 0.01)


def label(fraction: float) -> str:
    return f"FedAvg, largest {fraction:.0%}"


def observe(curves: Curves) -> list[Observation]:
    rising = [label(fraction) for fraction in sorted(FRACTIONS)]
    return [
        ends_higher_in_turn("a smaller fraction degrades the accuracy: it ends lower", curves, rising),
        faster_in_turn("a smaller fraction degrades the accuracy: it is slower", curves, rising, "test_accuracy"),
        far_shorter("even the smallest fraction sends far more than DeComFL", curves, DECOMFL, [label(min(FRACTIONS))]),
    ]


FIGURE = Figure(
    name="decomfl_fig6",
    title="DeComFL and FedAvg with the largest entries of each update, on Fashion-MNIST",
    caption="Convolutional network, d = 1,206,590, N = 100, Dirichlet(1), momentum 0.5, µ = 1e-3, batches of 32, "
    "P = 25 doubled three times. What is left out is not kept.",
    studies=(
        Study("decomfl", decomfl_fashion_cnn.get_config()),
        Study("top_k", fedavg_fashion_cnn.get_config(), (f"aggregation.fraction={list(FRACTIONS)}",)),
    ),
    curves=(
        Curve(DECOMFL, "decomfl", {}, Look(0)),
        *(
            Curve(label(fraction), "top_k", {"aggregation.fraction": fraction}, Look(number + 3))
            for number, fraction in enumerate(FRACTIONS)
        ),
    ),
    observe=observe,
    sizes=SIZES,
    panels=(Panel("rounds", "test_accuracy"), Panel("vector_length", "test_accuracy")),
)

if __name__ == "__main__":
    command(FIGURE)
