"""Criteria of what DeComFL's paper says of its figures: what is sent for an accuracy, and what an ablation changes."""

import itertools
from collections.abc import Sequence

import numpy as np

from experiments.figures.observations import Curves, Measured, Observation, spread

__all__ = [
    "behind_at_equal_length",
    "better_in_pairs",
    "ends_higher_in_turn",
    "far_shorter",
    "less_steady",
    "matters_more",
]

MAGNITUDES = 100.0
"""A vector is orders of magnitude shorter than one of this many times its length."""

LEVEL = 0.9
"""Lengths are compared where curves reach this share of the lowest of their final accuracies."""

STEADIER = 2.0
"""Accuracies are less steady if they range over more than this many times as much."""


def _final(curve: Measured) -> float:
    return float(curve.test_accuracy[:, -1].mean())


def _range(curves: Curves, labels: Sequence[str]) -> float:
    return float(np.ptp([_final(curves[label]) for label in labels]))


def ends_higher_in_turn(statement: str, curves: Curves, labels: Sequence[str]) -> Observation:
    """Each curve's final accuracy, mean over the seeds, is higher than that of the one before it."""
    finals = [_final(curves[label]) for label in labels]
    return Observation(
        statement,
        "the final test accuracy, mean over the seeds, is higher than the previous curve's",
        all(later > earlier for earlier, later in itertools.pairwise(finals)),
        "; ".join(f"{label}: {spread(curves[label].test_accuracy[:, -1])}" for label in labels),
    )


def behind_at_equal_length(statement: str, curves: Curves, labels: Sequence[str]) -> Observation:
    """Once as much was sent as the last curve sends up to its first evaluation, each is behind the one before it."""
    length = curves[labels[-1]].vector_length[1]
    reached = [
        float(np.interp(length, curves[label].vector_length, curves[label].test_accuracy.mean(axis=0)))
        for label in labels
    ]
    return Observation(
        statement,
        "where the last curve is evaluated first, at an equal communicated vector length (interpolated), the mean test "
        "accuracy is lower than the previous curve's",
        all(later < earlier for earlier, later in itertools.pairwise(reached)),
        f"at {length:.0f} numbers: "
        + "; ".join(f"{label}: {accuracy:.4f}" for label, accuracy in zip(labels, reached, strict=True)),
    )


def matters_more(statement: str, curves: Curves, more: Sequence[str], less: Sequence[str]) -> Observation:
    """Final accuracies range over more among the first curves than among the second."""
    ranges = _range(curves, more), _range(curves, less)
    return Observation(
        statement,
        "the final test accuracies, means over the seeds, range over more among the first curves",
        ranges[0] > ranges[1],
        f"{', '.join(more)}: over {ranges[0]:.4f}; {', '.join(less)}: over {ranges[1]:.4f}",
    )


def far_shorter(statement: str, curves: Curves, short: str, others: Sequence[str]) -> Observation:
    """Each of the others sends many times as much to reach an accuracy that all of them reach."""
    level = LEVEL * min(_final(curves[label]) for label in (short, *others))

    def length(label: str) -> float:
        reached = curves[label].test_accuracy.mean(axis=0) >= level
        # At the start nothing is sent: whoever is there already has sent what the first evaluation says.
        return float(curves[label].vector_length[max(int(np.argmax(reached)), 1)]) if reached.any() else np.nan

    lengths = {label: length(label) for label in (short, *others)}
    return Observation(
        statement,
        f"to reach a mean test accuracy of {level:.4f}, {LEVEL:.0%} of the lowest final one, each of the others sends "
        f"at least {MAGNITUDES:.0f} times as many numbers per client",
        all(lengths[label] >= MAGNITUDES * lengths[short] for label in others),
        "; ".join(f"{label}: {lengths[label]:.0f}, {lengths[label] / lengths[short]:.0f} times" for label in lengths),
    )


def less_steady(statement: str, curves: Curves, unsteady: Sequence[str], steady: Sequence[str]) -> Observation:
    """Final accuracies of the first curves, of different rates, range over much more than those of the second."""
    ranges = _range(curves, unsteady), _range(curves, steady)
    return Observation(
        statement,
        "over the learning rates, the final test accuracies, means over the seeds, range over more than "
        f"{STEADIER:.0f} times as much",
        ranges[0] > STEADIER * ranges[1],
        "; ".join(
            f"{', '.join(f'{label}: {_final(curves[label]):.4f}' for label in labels)}: over {own:.4f}"
            for labels, own in zip((unsteady, steady), ranges, strict=True)
        ),
    )


def better_in_pairs(statement: str, curves: Curves, pairs: Sequence[tuple[str, str]]) -> Observation:
    """The first of each pair ends at a higher accuracy than the second, in every seed."""
    ahead = [curves[better].test_accuracy[:, -1] > curves[worse].test_accuracy[:, -1] for better, worse in pairs]
    return Observation(
        statement,
        "the final test accuracy is higher in every pair and every seed",
        all(bool(seeds.all()) for seeds in ahead),
        "; ".join(
            f"{better} against {worse}: {_final(curves[better]):.4f} against {_final(curves[worse]):.4f}, higher in "
            f"{seeds.sum()} of {seeds.size} seeds"
            for (better, worse), seeds in zip(pairs, ahead, strict=True)
        ),
    )
