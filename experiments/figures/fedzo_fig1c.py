"""FedZO's black-box attack over the air: the signal-to-noise ratio (the paper's figure 1(c)).

python -m experiments.figures.fedzo_fig1c --workdir=runs/fedzo_fig1c [--quick | --cpu]

The noise-free runs have the same participants in every round as those with noise of the same seed.

The full size (neither option) is 12 runs of 100 rounds, as many as the authors' code has: 3.3e8 evaluations of the
classifier, 8.3e15 floating point operations. It was not run. The smaller sizes have H = 10, fewer rounds, examples and
directions, and a part of the images.
"""

from experiments.figures.attacks import PANELS, aircomp, sizes
from experiments.figures.command_line import command
from experiments.figures.curves import Curve, Figure, Study
from experiments.figures.drawing import Look
from experiments.figures.observations import Curves, Observation, falling, faster_in_turn, near

SNR_DB = (-10.0, -5.0, 0.0)
NOISE_FREE = "noise-free"


def label(snr_db: float) -> str:
    return f"SNR {snr_db:.0f} dB"


def observe(curves: Curves) -> list[Observation]:
    labels = [label(snr) for snr in SNR_DB]
    return [
        falling("AirComp-assisted FedZO preserves convergence at every SNR", curves, labels),
        faster_in_turn("it is faster with a higher SNR", curves, labels),
        near("at 0 dB it is comparable to the noise-free case", curves, label(0.0), NOISE_FREE),
    ]


FIGURE = Figure(
    name="fedzo_fig1c",
    title="Black-box attack on a CIFAR-10 classifier over the air: signal-to-noise ratio",
    caption="One perturbation of 4,131 deer, d = 3,072, N = 50, H = 20, h ~ CN(0, 1), h_min = 0.8, η = µ = 1e-3, "
    "b₁ = 25, b₂ = 20, c = 1.",
    studies=(
        Study("aircomp", aircomp(), (f"channel.snr_db={list(SNR_DB)}",)),
        Study("noise_free", aircomp(), ('aggregation.name=["mean"]',)),
    ),
    curves=(
        *(Curve(label(snr), "aircomp", {"channel.snr_db": snr}, Look(number)) for number, snr in enumerate(SNR_DB)),
        Curve(NOISE_FREE, "noise_free", {"aggregation.name": "mean"}, Look(6, dashed=True)),
    ),
    observe=observe,
    reference=NOISE_FREE,
    sizes=sizes(cpu_rounds=6, full_rounds=100, local_steps=10),
    panels=PANELS,
)

if __name__ == "__main__":
    command(FIGURE)
