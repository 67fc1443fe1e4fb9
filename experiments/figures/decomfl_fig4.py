"""DeComFL with finite differences against gradient projection, over learning rates (the paper's figure 4).

python -m experiments.figures.decomfl_fig4 --workdir=runs/decomfl_fig4 [--quick | --cpu]

Gradient projection (Algorithm 5) has the exact derivative along each direction in the place of a finite difference.
The paper names no rates: here from its own, 1e-3, to 30 times that. The size cpu has 4 clients in a round instead of 10
and every fifth image.

The full size (neither option) is 24 runs of 2,000 rounds: 5.6e10 normal numbers and 3.2e8 evaluations of the loss of
one example, 1.8e15 floating point operations. It was not run.
"""

from experiments.configs import decomfl_mnist_cnn
from experiments.figures.command_line import Size, command
from experiments.figures.curves import Curve, Figure, Study
from experiments.figures.decomfl_observations import better_in_pairs, less_steady
from experiments.figures.drawing import Look, Panel
from experiments.figures.observations import Curves, Observation

RATES = (1e-3, 3e-3, 1e-2, 3e-2)
NAMES = {"forward": "finite differences", "jvp": "projection"}

SIZES = {
    "quick": Size(4, 1, 2, {"cohort_size": 2, "data.keep_every": 60, "algorithm.num_directions": 5}),
    "cpu": Size(100, 3, 25, {"cohort_size": 4, "data.keep_every": 5, "algorithm.num_directions": 10}),
    "full": Size(2000, 3, 100),
}


def label(estimator: str, rate: float) -> str:
    return f"{NAMES[estimator]}, η = {rate:g}"


def observe(curves: Curves) -> list[Observation]:
    pairs = [(label("forward", rate), label("jvp", rate)) for rate in RATES]
    return [
        better_in_pairs("finite differences are consistently better than projection", curves, pairs),
        less_steady(
            "projection is unstable over learning rates, finite differences are not",
            curves,
            [worse for _, worse in pairs],
            [better for better, _ in pairs],
        ),
    ]


FIGURE = Figure(
    name="decomfl_fig4",
    title="DeComFL on MNIST: finite differences and gradient projection",
    caption="Convolutional network, d = 28,938, N = 100, Dirichlet(1), K = 1, momentum 0.5, µ = 1e-3, batches of 32.",
    studies=(
        Study(
            "rates",
            decomfl_mnist_cnn.get_config(),
            (f"algorithm.estimator={list(NAMES)}", f"algorithm.learning_rate={list(RATES)}"),
        ),
    ),
    curves=tuple(
        Curve(
            label(estimator, rate),
            "rates",
            {"algorithm.estimator": estimator, "algorithm.learning_rate": rate},
            Look(number, dashed=estimator == "jvp"),
        )
        for estimator in NAMES
        for number, rate in enumerate(RATES)
    ),
    observe=observe,
    sizes=SIZES,
    panels=(Panel("rounds", "test_accuracy"), Panel("vector_length", "test_accuracy")),
)

if __name__ == "__main__":
    command(FIGURE)
