"""What a paper says of its figure, each statement marked seen or not seen by a criterion on the measured curves.

A criterion that meets a value that is not finite is not met: a comparison with nan is false.
"""

import itertools
from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

import numpy as np

__all__ = [
    "Curves",
    "Measured",
    "Observation",
    "ahead",
    "comparable",
    "falling",
    "faster_in_turn",
    "most_of",
    "near",
    "slightly_slower",
]

COMPARABLE_DECREASE = 0.10
"""Decreases of the training loss that differ by at most this share of the reference's are comparable."""

COMPARABLE_ACCURACY = 0.03
"""And so are test accuracies that differ by at most this."""

SLIGHTLY_SLOWER = 0.75
"""A curve is no more than slightly slower while its score improves by this share of the other's."""

MOST = 0.80
"""Share of the reference's decrease that counts as most of it."""


class _Score(NamedTuple):
    name: str
    better: str
    worse: str
    sign: int


_BETTER = {
    "train_loss": _Score("training loss", "lower", "higher", -1),
    "test_accuracy": _Score("test accuracy", "higher", "lower", 1),
    "attack_accuracy": _Score("attack accuracy", "higher", "lower", 1),
    "distortion": _Score("distortion", "larger", "smaller", 1),
}


class Measured(NamedTuple):
    """A curve of a figure.

    Attributes:
        rounds: [evaluations], from 0.
        train_loss: [seeds, evaluations]
        test_accuracy: [seeds, evaluations]
        vector_length: [evaluations] 4-byte numbers that a client has sent if it was in every round, by the ledger's
            account of DeComFL's paper.
        attack_accuracy: [seeds, evaluations] of attacks; their test_accuracy is nan.
        distortion: [seeds, evaluations] likewise.
        queries: [evaluations] losses of one example that the clients have asked for.
    """

    rounds: np.ndarray
    train_loss: np.ndarray
    test_accuracy: np.ndarray
    vector_length: np.ndarray
    attack_accuracy: np.ndarray = np.array(np.nan)
    distortion: np.ndarray = np.array(np.nan)
    queries: np.ndarray = np.array(np.nan)


Curves = Mapping[str, Measured]
"""By label."""


class Observation(NamedTuple):
    """A statement of the paper, how it was judged, the verdict, and the numbers that it rests on."""

    statement: str
    criterion: str
    seen: bool
    numbers: str


def average(curve: Measured, score: str = "train_loss") -> np.ndarray:
    """[seeds] mean over the evaluations after the start: the better, the faster the curve."""
    values: np.ndarray = getattr(curve, score)
    return values[:, 1:].mean(axis=1)


def progress(curve: Measured, score: str = "train_loss") -> np.ndarray:
    """[seeds] by how much the score is better at the end than at the start."""
    values: np.ndarray = getattr(curve, score)
    return _BETTER[score].sign * (values[:, -1] - values[:, 0])


def spread(values: np.ndarray) -> str:
    """Mean over the seeds, and their range.

    Example:
        >>> spread(np.array([1.0, 3.0]))
        '2.0000 [1.0000, 3.0000]'
    """
    return f"{values.mean():.4f} [{values.min():.4f}, {values.max():.4f}]"


def faster_in_turn(statement: str, curves: Curves, labels: Sequence[str], score: str = "train_loss") -> Observation:
    """Each curve is faster than the one before it, in every seed. Equal seeds draw equal batches and directions.

    Args:
        statement: the paper's.
        curves: of the figure.
        labels: from the slowest to the fastest.
        score: train_loss or test_accuracy.
    """
    name, better, _, sign = _BETTER[score]
    averages = [average(curves[label], score) for label in labels]
    ahead = [sign * later > sign * earlier for earlier, later in itertools.pairwise(averages)]
    verdicts = ["", *(f", {better} in {seeds.sum()} of {seeds.size} seeds" for seeds in ahead)]
    return Observation(
        statement,
        f"averaged over the rounds, the {name} is {better} than the previous curve's, in every seed",
        all(bool(seeds.all()) for seeds in ahead),
        "; ".join(
            f"{label}: {spread(values)}{verdict}"
            for label, values, verdict in zip(labels, averages, verdicts, strict=True)
        ),
    )


def ahead(statement: str, curves: Curves, pairs: Iterable[tuple[str, str]], score: str = "train_loss") -> Observation:
    """The first of each pair is better than the second, in every seed."""
    name, better, _, sign = _BETTER[score]
    seen, numbers = True, []
    for ours, theirs in pairs:
        averages = [average(curves[label], score) for label in (ours, theirs)]
        wins = sign * averages[0] > sign * averages[1]
        seen = seen and bool(wins.all())
        numbers.append(
            f"{ours} against {theirs}: {spread(averages[0])} against {spread(averages[1])}, {better} in "
            f"{wins.sum()} of {wins.size} seeds"
        )
    criterion = f"averaged over the rounds, the {name} is {better} in every seed"
    return Observation(statement, criterion, seen, "; ".join(numbers))


def slightly_slower(
    statement: str, curves: Curves, pairs: Iterable[tuple[str, str]], score: str = "train_loss"
) -> Observation:
    """The first of each pair is slower than the second in every seed, but not by much."""
    name, _, worse, sign = _BETTER[score]
    seen, numbers = True, []
    for slow, fast in pairs:
        share = progress(curves[slow], score).mean() / progress(curves[fast], score).mean()
        averages = [average(curves[label], score) for label in (slow, fast)]
        behind = sign * averages[0] < sign * averages[1]
        seen = seen and bool(behind.all()) and bool(share >= SLIGHTLY_SLOWER)
        numbers.append(
            f"{slow} against {fast}: averaged {averages[0].mean():.4f} against {averages[1].mean():.4f}, {worse} in "
            f"{behind.sum()} of {behind.size} seeds, progress {share:.1%} of it"
        )
    return Observation(
        statement,
        f"averaged over the rounds, the {name} is {worse} in every seed, and its mean progress from start to end is at "
        f"least {SLIGHTLY_SLOWER:.0%} of the other's",
        seen,
        "; ".join(numbers),
    )


def comparable(statement: str, curves: Curves, label: str, reference: str) -> Observation:
    """A curve ends neither much worse nor much better than the reference."""
    ours, theirs = curves[label], curves[reference]
    share = progress(ours).mean() / progress(theirs).mean()
    accuracies = [float(curve.test_accuracy[:, -1].mean()) for curve in (ours, theirs)]
    loss_is_near = abs(share - 1) <= COMPARABLE_DECREASE
    accuracy_is_near = abs(accuracies[0] - accuracies[1]) <= COMPARABLE_ACCURACY
    return Observation(
        statement,
        f"the mean decrease of the training loss is within {COMPARABLE_DECREASE:.0%} of the reference's, and the mean "
        f"final test accuracy within {COMPARABLE_ACCURACY}",
        bool(loss_is_near and accuracy_is_near),
        f"{label} against {reference}: final training loss {spread(ours.train_loss[:, -1])} against "
        f"{spread(theirs.train_loss[:, -1])}, decrease {share:.1%} of it, test accuracy {accuracies[0]:.4f} against "
        f"{accuracies[1]:.4f}",
    )


def near(statement: str, curves: Curves, label: str, reference: str) -> Observation:
    """A curve's loss decreases by about as much as the reference's."""
    ours, theirs = curves[label], curves[reference]
    share = progress(ours).mean() / progress(theirs).mean()
    return Observation(
        statement,
        f"the mean decrease of the training loss is within {COMPARABLE_DECREASE:.0%} of the reference's",
        bool(abs(share - 1) <= COMPARABLE_DECREASE),
        f"{label} against {reference}: final training loss {spread(ours.train_loss[:, -1])} against "
        f"{spread(theirs.train_loss[:, -1])}, decrease {share:.1%} of it",
    )


def most_of(statement: str, curves: Curves, labels: Sequence[str], reference: str) -> Observation:
    """The curves' losses decrease by most of what the reference's does."""
    whole = progress(curves[reference]).mean()
    shares = {label: float(progress(curves[label]).mean() / whole) for label in labels}
    return Observation(
        statement,
        f"the mean decrease of the training loss is at least {MOST:.0%} of that of {reference}",
        all(share >= MOST for share in shares.values()),
        "; ".join(f"{label}: {share:.1%}" for label, share in shares.items()),
    )


def falling(statement: str, curves: Curves, labels: Sequence[str]) -> Observation:
    """The curves' losses fall all the way."""

    def thirds(label: str) -> np.ndarray:
        parts = np.array_split(curves[label].train_loss[:, 1:], 3, axis=1)
        return np.stack([curves[label].train_loss[:, 0], *(part.mean(axis=1) for part in parts)])

    means = {label: thirds(label) for label in labels}
    return Observation(
        statement,
        "from the start to the first third of the rounds, and from third to third, the mean training loss falls, in "
        "every seed",
        all(bool((np.diff(values, axis=0) < 0).all()) for values in means.values()),
        "; ".join(
            f"{label}: " + ", ".join(f"{value:.4f}" for value in values.mean(axis=1)) for label, values in means.items()
        ),
    )
