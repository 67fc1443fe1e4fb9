"""DeComFL on MNIST: the numbers of perturbations P and of local steps K, against FedAvg (the paper's figure 2).

python -m experiments.figures.decomfl_fig2 --workdir=runs/decomfl_fig2 [--quick | --cpu]

FedAvg's rate is the one of the published curves, 0.1, in all sizes. The size cpu has 3 clients in a round instead of
10, twice the paper's rate, and every fifth image. (At five times the paper's rate runs of K > 1 diverge.)

The full size (neither option) is 18 runs of 2,000 rounds: 1.2e11 normal numbers and 7.1e8 evaluations of the loss of
one example, 4.0e15 floating point operations. It was not run.
"""

from experiments.configs import decomfl_mnist_cnn, fedavg_mnist_cnn
from experiments.figures.command_line import Size, command
from experiments.figures.curves import Curve, Figure, Study
from experiments.figures.decomfl_observations import (
    behind_at_equal_length,
    ends_higher_in_turn,
    far_shorter,
    matters_more,
)
from experiments.figures.drawing import Look, Panel
from experiments.figures.observations import Curves, Observation

DIRECTIONS, LOCAL_STEPS = (10, 20, 40), (1, 4, 10)
USUAL_DIRECTIONS, USUAL_STEPS = 20, 1
FEDAVG, FEDAVG_RATE = "FedAvg", 0.1

SIZES = {
    "quick": Size(4, 1, 2, {"cohort_size": 2, "data.keep_every": 60, "algorithm.learning_rate": 5e-3}),
    "cpu": Size(150, 3, 15, {"cohort_size": 3, "data.keep_every": 5, "algorithm.learning_rate": 2e-3}),
    "full": Size(2000, 3, 100),
}
PANELS = (Panel("rounds", "test_accuracy"), Panel("vector_length", "test_accuracy"))


def label(local_steps: int, num_directions: int) -> str:
    return f"DeComFL, K = {local_steps}, P = {num_directions}"


def observe(curves: Curves) -> list[Observation]:
    by_directions = [label(USUAL_STEPS, count) for count in DIRECTIONS]
    by_steps = [label(steps, USUAL_DIRECTIONS) for steps in LOCAL_STEPS]
    return [
        ends_higher_in_turn("more perturbations lead to a higher final test accuracy", curves, by_directions),
        behind_at_equal_length("more perturbations are slightly slower at the beginning", curves, by_directions),
        matters_more("perturbations are more influential than local steps", curves, by_directions, by_steps),
        far_shorter("DeComFL sends orders of magnitude fewer numbers than FedAvg", curves, by_directions[1], [FEDAVG]),
    ]


FIGURE = Figure(
    name="decomfl_fig2",
    title="DeComFL on MNIST: perturbations P and local steps K",
    caption="Convolutional network, d = 28,938, N = 100, Dirichlet(1), momentum 0.5, µ = 1e-3, batches of 32.",
    studies=(
        Study("directions", decomfl_mnist_cnn.get_config(), (f"algorithm.num_directions={list(DIRECTIONS)}",)),
        Study("local_steps", decomfl_mnist_cnn.get_config(), (f"algorithm.local_steps={list(LOCAL_STEPS[1:])}",)),
        Study("fedavg", fedavg_mnist_cnn.get_config(), (f"algorithm.learning_rate=[{FEDAVG_RATE}]",)),
    ),
    curves=(
        *(
            Curve(label(USUAL_STEPS, count), "directions", {"algorithm.num_directions": count}, Look(number))
            for number, count in enumerate(DIRECTIONS)
        ),
        *(
            Curve(
                label(steps, USUAL_DIRECTIONS),
                "local_steps",
                {"algorithm.local_steps": steps},
                Look(number + len(DIRECTIONS), dashed=True),
            )
            for number, steps in enumerate(LOCAL_STEPS[1:])
        ),
        Curve(FEDAVG, "fedavg", {"algorithm.learning_rate": FEDAVG_RATE}, Look(6)),
    ),
    observe=observe,
    sizes=SIZES,
    panels=PANELS,
)

if __name__ == "__main__":
    command(FIGURE)
