"""DeComFL against FedAvg, FedCom and Top-k on Fashion-MNIST, with P doubled on the way (the paper's figure 3).

python -m experiments.figures.decomfl_fig3 --workdir=runs/decomfl_fig3 [--quick | --cpu]

All have the paper's one learning rate. The size cpu has one local step instead of 5, 2 clients in a round instead of
10, four times the rate, P = 10 instead of 25, doubled at rounds 10 and 20, and every tenth image.

The full size (neither option) is 12 runs of 3,000 rounds: 1.2e13 normal numbers and 1.8e9 evaluations of the loss of
one example, 4.2e16 floating point operations. It was not run.
"""

from experiments.configs import decomfl_fashion_cnn, fedavg_fashion_cnn
from experiments.figures.command_line import Size, command
from experiments.figures.curves import Curve, Figure, Study
from experiments.figures.decomfl_observations import far_shorter
from experiments.figures.drawing import Look, Panel
from experiments.figures.observations import Curves, Observation, faster_in_turn

DECOMFL, FEDAVG, FEDCOM, TOP_K = "DeComFL", "FedAvg", "FedCom, 8 bits", "FedAvg, largest 10%"
SMALL = {"cohort_size": 2, "algorithm.local_steps": 1, "algorithm.learning_rate": 1e-2}

SIZES = {
    "quick": Size(
        4,
        1,
        2,
        {**SMALL, "data.keep_every": 100, "schedule.rounds": (2,), "schedule.num_directions_factors": (2,)},
    ),
    "cpu": Size(
        60,
        2,
        10,
        {
            **SMALL,
            "algorithm.learning_rate": 4e-3,
            "algorithm.num_directions": 10,
            "data.keep_every": 10,
            "schedule.rounds": (10, 20),
            "schedule.num_directions_factors": (2, 4),
        },
    ),
    "full": Size(3000, 3, 100),
}


def observe(curves: Curves) -> list[Observation]:
    return [
        faster_in_turn("DeComFL is slower per round than FedAvg", curves, [DECOMFL, FEDAVG]),
        faster_in_turn("DeComFL is slower per round than FedCom", curves, [DECOMFL, FEDCOM]),
        faster_in_turn("DeComFL is faster per round than Top-k", curves, [TOP_K, DECOMFL]),
        far_shorter(
            "DeComFL sends vectors that are orders of magnitude shorter", curves, DECOMFL, [FEDAVG, FEDCOM, TOP_K]
        ),
    ]


FIGURE = Figure(
    name="decomfl_fig3",
    title="DeComFL and compressed first-order methods on Fashion-MNIST",
    caption="Convolutional network, d = 1,206,590, N = 100, Dirichlet(1), momentum 0.5, µ = 1e-3, batches of 32, "
    "P = 25 doubled three times.",
    studies=(
        Study("decomfl", decomfl_fashion_cnn.get_config()),
        Study("fedavg", fedavg_fashion_cnn.get_config(), ("aggregation.bits=[32,8]",)),
        Study("top_k", fedavg_fashion_cnn.get_config(), ("aggregation.fraction=[0.1]",)),
    ),
    curves=(
        Curve(DECOMFL, "decomfl", {}, Look(0)),
        Curve(FEDAVG, "fedavg", {"aggregation.bits": 32}, Look(1)),
        Curve(FEDCOM, "fedavg", {"aggregation.bits": 8}, Look(2, dashed=True)),
        Curve(TOP_K, "top_k", {"aggregation.fraction": 0.1}, Look(3)),
    ),
    observe=observe,
    sizes=SIZES,
    panels=(Panel("rounds", "train_loss"), Panel("vector_length", "test_accuracy")),
)

if __name__ == "__main__":
    command(FIGURE)
