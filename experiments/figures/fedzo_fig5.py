"""FedZO over the air, softmax regression: the signal-to-noise ratio (the paper's third "Fig. 5").

python -m experiments.figures.fedzo_fig5 --workdir=runs/fedzo_fig5 [--quick | --cpu]

The noise-free runs have the same participants in every round: the channel is there, its noise is not.

The full size (neither option) is 40 runs of 300 rounds: 9.9e11 normal numbers, 5.2e13 floating point operations in
products. It was not run.
"""

from experiments.configs import fedzo_fashion_aircomp
from experiments.figures.command_line import command
from experiments.figures.curves import Curve, Figure, Study
from experiments.figures.drawing import Look
from experiments.figures.observations import Curves, Observation, comparable, falling, faster_in_turn, most_of

SNR_DB = (-10.0, -5.0, 0.0)
NOISE_FREE = "noise-free"


def label(snr_db: float) -> str:
    return f"SNR {snr_db:.0f} dB"


def observe(curves: Curves) -> list[Observation]:
    return [
        falling("AirComp-assisted FedZO converges at every SNR shown", curves, [label(snr) for snr in SNR_DB]),
        most_of("it performs well at an SNR of -5 and 0 dB", curves, [label(-5.0), label(0.0)], NOISE_FREE),
        faster_in_turn("it is faster with a higher SNR", curves, [label(snr) for snr in SNR_DB]),
        comparable("at 0 dB it is comparable to the noise-free case", curves, label(0.0), NOISE_FREE),
    ]


FIGURE = Figure(
    name="fedzo_fig5",
    title="FedZO over the air on Fashion-MNIST: signal-to-noise ratio, H = 20 local steps",
    caption="Softmax regression, d = 7,850, N = 50, H = 20, h ~ CN(0, 1), h_min = 0.8, 100 label shards, "
    "η = µ = 1e-3, b₁ = 25, b₂ = 20.",
    studies=(
        Study("aircomp", fedzo_fashion_aircomp.get_config(), (f"channel.snr_db={list(SNR_DB)}",)),
        Study("noise_free", fedzo_fashion_aircomp.get_config(), ('aggregation.name=["mean"]',)),
    ),
    curves=(
        *(Curve(label(snr), "aircomp", {"channel.snr_db": snr}, Look(number)) for number, snr in enumerate(SNR_DB)),
        Curve(NOISE_FREE, "noise_free", {"aggregation.name": "mean"}, Look(6, dashed=True)),
    ),
    observe=observe,
    reference=NOISE_FREE,
)

if __name__ == "__main__":
    command(FIGURE)
