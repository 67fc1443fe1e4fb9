"""What is recorded of a run: what each quantity is called in words, its unit, and which way is better."""

from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np

__all__ = ["Metric", "Records", "append", "describe", "scores"]

Records = dict[str, np.ndarray]
"""Arrays [cells, evaluations] by name."""


class Metric(NamedTuple):
    """A recorded quantity. `best` is `np.fmin` or `np.fmax` for what measures success, else None."""

    long_name: str
    units: str
    best: np.ufunc | None = None


_KNOWN = {
    "train_loss": Metric("training loss f(x), mean of the clients' mean losses", "nat", np.fmin),
    "squared_gradient_norm": Metric("squared norm of the gradient of f", "1"),
    "test_loss": Metric("test loss", "nat", np.fmin),
    "test_accuracy": Metric("test accuracy", "1", np.fmax),
    "attack_accuracy": Metric("attack accuracy, the share of all clients' images that are misclassified", "1", np.fmax),
    "distortion": Metric("distortion of the clients' images, mean of its squared norm", "1"),
    "test_attack_accuracy": Metric("attack accuracy on images of the test set, to which it transfers", "1", np.fmax),
    "queries": Metric("losses of one example that the clients asked for in rounds, since the start", "1"),
    "batch_loss": Metric("loss of the participants' batches, mean since the last evaluation", "nat"),
    "zero_differences": Metric("finite differences that are exactly zero, share since the last evaluation", "1"),
    "participants": Metric("clients that took part, summed over the rounds since the last evaluation", "1"),
    "mean_cohort_size": Metric("clients that took part, mean over the rounds since the last evaluation", "1"),
    "nonfinite": Metric("client results left out as not finite, since the last evaluation", "1"),
    "lost_rounds": Metric("rounds without any finite result, since the last evaluation", "1"),
    "empty_rounds": Metric("rounds without a participant, since the last evaluation", "1"),
    "transmit_energy": Metric("participants' mean transmit energy over its limit d P", "1"),
    "peak_transmit_energy": Metric("largest transmit energy of a participant over its limit d P, mean", "1"),
    "received_snr": Metric("energy of the superposed signal over that of the noise, mean", "1"),
    "uplink_channel_uses": Metric("uplink channel uses for updates, since the start", "1"),
    "uplink_scalars": Metric("numbers sent by all clients, over the air or not, since the start", "1"),
    "downlink_scalars": Metric("numbers received by all clients since the start", "1"),
    "replayed_rounds": Metric("rounds that participants had missed and replayed, since the last evaluation", "1"),
    "pulled_models": Metric("models pulled by participants that lagged too far, since the last evaluation", "1"),
    "uplink_bytes_paper": Metric("bytes sent by all clients since the start, as DeComFL's paper counts", "B"),
    "downlink_bytes_paper": Metric("bytes received by all clients since the start, as DeComFL's paper counts", "B"),
    "uplink_bytes": Metric("bytes sent by all clients since the start", "B"),
    "downlink_bytes": Metric("bytes received by all clients since the start", "B"),
}


def describe(name: str) -> Metric:
    """The description of a quantity; one that is not known is described by its name.

    Example:
        >>> describe("test_accuracy").units, describe("receive_snr").long_name
        ('1', 'receive snr')
    """
    return _KNOWN.get(name, Metric(name.replace("_", " "), "1"))


def scores(names: Any) -> list[str]:
    """Those of the names that measure success.

    Example:
        >>> scores(["nonfinite", "test_accuracy", "train_loss"])
        ['test_accuracy', 'train_loss']
    """
    return sorted(name for name in names if describe(name).best is not None)


def append(records: Records, record: Mapping[str, np.ndarray]) -> Records:
    """`records` with one more evaluation; a quantity that is new in it was 0 (integers) or nan before."""
    done = next((values.shape[1] for values in records.values()), 0)

    def column(name: str, values: np.ndarray) -> np.ndarray:
        blank = 0 if np.issubdtype(values.dtype, np.integer) else np.nan
        before = records.get(name, np.full((len(values), done), blank, values.dtype))
        return np.concatenate([before, values[:, None]], axis=1)

    return {name: column(name, np.asarray(values)) for name, values in sorted(record.items())}
