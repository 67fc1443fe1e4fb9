"""What travels: exact counts, made on the host from the recorded numbers of participants and of rounds."""

from typing import Any, NamedTuple

import jax
import numpy as np

from zofed.base import Params

__all__ = ["Costs", "Traffic", "model_exchange", "over_the_air"]


class Traffic(NamedTuple):
    """What the clients send and receive; each an integer, or an int64 array.

    Attributes:
        uplink_bytes: digital messages to the server.
        downlink_bytes: digital messages from the server.
        uplink_scalars: numbers sent, digital or over the air.
        downlink_scalars: numbers received.
        uplink_channel_uses: symbols that the updates take in the uplink; side information is not counted.
    """

    uplink_bytes: Any
    downlink_bytes: Any
    uplink_scalars: Any
    downlink_scalars: Any
    uplink_channel_uses: Any


class Costs(NamedTuple):
    """Traffic of a round: a part for each participant, and a part that a round with participants has once."""

    per_participant: Traffic
    per_round: Traffic

    def over(self, participants: Any, rounds: Any) -> Traffic:
        """Cumulative traffic of all clients, int64.

        Args:
            participants: numbers of participants, since the entry before, along the last axis.
            rounds: numbers of rounds with a participant, likewise.

        Example:
            >>> model_exchange(np.zeros(10, np.float32)).over([0, 5, 5], [0, 1, 1]).uplink_bytes
            array([  0, 200, 400])
        """
        participants = np.cumsum(np.asarray(participants, np.int64), axis=-1)
        rounds = np.cumsum(np.asarray(rounds, np.int64), axis=-1)
        pairs = zip(self.per_participant, self.per_round, strict=True)
        return Traffic(*(participants * own + rounds * shared for own, shared in pairs))


NOTHING = Traffic(0, 0, 0, 0, 0)


def _size(params: Params) -> tuple[int, int]:
    leaves = jax.tree.leaves(params)
    dim = sum(leaf.size for leaf in leaves)
    return dim, sum(leaf.size * np.dtype(leaf.dtype).itemsize for leaf in leaves)


def model_exchange(params: Params) -> Costs:
    """A participant receives the model and sends an update of its size, by orthogonal access: d symbols of its own.

    Args:
        params: the model, arrays or their shapes (`jax.eval_shape`).

    Example:
        >>> model_exchange({"weights": np.zeros((10, 784), np.float32), "bias": np.zeros(10, np.float32)})[0]
        Traffic(uplink_bytes=31400, downlink_bytes=31400, uplink_scalars=7850, downlink_scalars=7850, \
uplink_channel_uses=7850)
    """
    dim, size = _size(params)
    return Costs(Traffic(size, size, dim, dim, dim), NOTHING)


def over_the_air(params: Params) -> Costs:
    """AirComp: all updates share d symbols (FedZO IV-B); the side information is digital, in float32.

    A participant sends the squared norm of its update and receives, besides the model, Delta_max and its complex gain.
    """
    dim, size = _size(params)
    return Costs(Traffic(4, size + 12, 1 + dim, dim + 3, 0), Traffic(0, 0, 0, 0, dim))
