"""FedZO's black-box attack: the number of local steps H, against DZOPA and ZONE-S (the paper's figure 1(a)).

python -m experiments.figures.fedzo_fig1a --workdir=runs/fedzo_fig1a [--quick | --cpu]

The full size (neither option) is 18 runs of 300 rounds, as many as the authors' code has: 4.1e8 evaluations of the
classifier, 1.0e16 floating point operations. It was not run. The smaller sizes have fewer rounds, examples and
directions, and a part of the images.
"""

from experiments.configs import fedzo_cifar_attack
from experiments.figures.attacks import BASELINES, BY_QUERIES, DZOPA, PANELS, ZONE_S, curves_of_baselines, sizes
from experiments.figures.command_line import command
from experiments.figures.curves import Curve, Figure, Study
from experiments.figures.drawing import Look
from experiments.figures.observations import Curves, Observation, ahead, falling, faster_in_turn

LOCAL_STEPS = (5, 10, 20, 50)


def label(local_steps: int) -> str:
    return f"FedZO, H = {local_steps}"


def observe(curves: Curves) -> list[Observation]:
    labels = [label(steps) for steps in LOCAL_STEPS]
    pairs = [(label(5), DZOPA), (label(5), ZONE_S)]
    return [
        falling("FedZO reduces the attack loss for every H", curves, labels),
        faster_in_turn("FedZO is faster with more local steps", curves, labels),
        ahead("FedZO outperforms the baselines even when H = 5", curves, pairs),
    ]


FIGURE = Figure(
    name="fedzo_fig1a",
    title="Black-box attack on a CIFAR-10 classifier: local steps H, all clients taking part",
    caption="One perturbation of 4,131 deer, d = 3,072, N = M = 10, η = µ = 1e-3, b₁ = 25, b₂ = 20, c = 1; DZOPA on "
    "the complete graph with η = 0.005, ZONE-S with the penalty 500.",
    studies=(
        Study("local_steps", fedzo_cifar_attack.get_config(), (f"algorithm.local_steps={list(LOCAL_STEPS)}",)),
        *BASELINES,
    ),
    curves=(
        *(
            Curve(label(steps), "local_steps", {"algorithm.local_steps": steps}, Look(number))
            for number, steps in enumerate(LOCAL_STEPS)
        ),
        *curves_of_baselines(),
    ),
    observe=observe,
    sizes=sizes(cpu_rounds=8, full_rounds=300),
    panels=(*PANELS, BY_QUERIES),
)

if __name__ == "__main__":
    command(FIGURE)
