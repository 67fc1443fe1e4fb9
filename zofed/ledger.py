"""What travels: exact bytes, counted on the host from the recorded number of participants."""

from typing import Any, NamedTuple

import jax
import numpy as np

from zofed.base import Params

__all__ = ["Traffic", "model_exchange"]


class Traffic(NamedTuple):
    """Bytes that one participant sends and receives in one round; over several, sums over all clients."""

    uplink_bytes: Any
    downlink_bytes: Any

    def over(self, participants: Any) -> "Traffic":
        """The cumulative traffic, int64, of a run with these numbers of participants along the last axis.

        Example:
            >>> model_exchange(np.zeros(10, np.float32)).over([[0, 5, 5]]).uplink_bytes
            array([[  0, 200, 400]])
        """
        total = np.cumsum(np.asarray(participants, np.int64), axis=-1)
        return Traffic(total * self.uplink_bytes, total * self.downlink_bytes)


def model_exchange(params: Params) -> Traffic:
    """A participant receives the model and sends an update of its size: 4 d bytes each way in float32.

    Args:
        params: the model, arrays or their shapes (`jax.eval_shape`).

    Example:
        >>> model_exchange({"weights": np.zeros((10, 784), np.float32), "bias": np.zeros(10, np.float32)})
        Traffic(uplink_bytes=31400, downlink_bytes=31400)
    """
    size = sum(leaf.size * np.dtype(leaf.dtype).itemsize for leaf in jax.tree.leaves(params))
    return Traffic(size, size)
