"""FedZO's black-box attack: attack accuracy against DZOPA and ZONE-S, in figure 1(a)'s runs (the paper's figure 2).

python -m experiments.figures.fedzo_fig2 --workdir=runs/fedzo_fig2 [--quick | --cpu]

The full size (neither option) is 18 runs of 300 rounds: 4.1e8 evaluations of the classifier, 1.0e16 floating point
operations. It was not run.
"""

from experiments.figures import fedzo_fig1a
from experiments.figures.attacks import DZOPA, ZONE_S
from experiments.figures.command_line import command
from experiments.figures.fedzo_fig1a import label
from experiments.figures.observations import Curves, Observation, ahead


def observe(curves: Curves) -> list[Observation]:
    pairs = [(label(steps), theirs) for steps in (20, 50) for theirs in (DZOPA, ZONE_S)]
    return [
        ahead("FedZO's attack accuracy is better than the baselines' for H > 10", curves, pairs, "attack_accuracy"),
        ahead("ZONE-S has a higher accuracy than FedZO with H = 5", curves, [(ZONE_S, label(5))], "attack_accuracy"),
        ahead("at a higher attack loss", curves, [(label(5), ZONE_S)]),
        ahead("for its distortion is larger", curves, [(ZONE_S, label(5))], "distortion"),
    ]


FIGURE = fedzo_fig1a.FIGURE._replace(
    name="fedzo_fig2",
    title="Black-box attack on a CIFAR-10 classifier: attack accuracy",
    observe=observe,
)

if __name__ == "__main__":
    command(FIGURE)
