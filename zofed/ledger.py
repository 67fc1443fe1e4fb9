"""What travels: exact counts, made on the host from the recorded numbers of participants and of rounds."""

from typing import Any, NamedTuple

import jax
import numpy as np

from zofed import messages
from zofed.base import Params
from zofed.codecs import num_kept

__all__ = [
    "Costs",
    "Traffic",
    "compressed",
    "compressed_paper",
    "largest_cheap_lag",
    "model_exchange",
    "one_agent",
    "over_the_air",
    "peer_to_peer",
    "queries",
    "scalars_up_model_down",
    "shared_directions",
    "shared_directions_over_the_air",
    "shared_directions_paper",
]

WORK_SCALARS = 3
"""What `messages.Work` says of the round itself: two words of its key, and the rate."""

ENTRY_SCALARS = 3
"""What it says of each replayed round besides scalars."""


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


NOTHING = Traffic(0, 0, 0, 0, 0)


class Costs(NamedTuple):
    """Traffic in parts: what each occurrence of something costs.

    Attributes:
        per_participant: of a client in a round.
        per_round: once in a round with participants.
        per_replayed_round: of a round that a client missed and replays (DeComFL).
        per_pulled_model: of a client that pulls the model instead.
    """

    per_participant: Traffic
    per_round: Traffic
    per_replayed_round: Traffic = NOTHING
    per_pulled_model: Traffic = NOTHING

    def over(self, participants: Any, rounds: Any, replayed_rounds: Any = 0, pulled_models: Any = 0) -> Traffic:
        """Cumulative traffic of all clients, int64.

        Args:
            participants: numbers of participants, since the entry before, along the last axis.
            rounds: numbers of rounds with a participant, likewise.
            replayed_rounds: sums of the participants' lags, likewise.
            pulled_models: numbers of models pulled, likewise.

        Example:
            >>> model_exchange(np.zeros(10, np.float32)).over([0, 5, 5], [0, 1, 1]).uplink_bytes
            array([  0, 200, 400])
        """
        occurred = (participants, rounds, replayed_rounds, pulled_models)
        since_start = [np.cumsum(np.asarray(numbers, np.int64), axis=-1) for numbers in occurred]
        return Traffic(
            *(
                sum(np.multiply(*pair) for pair in zip(since_start, costs, strict=True))
                for costs in zip(*self, strict=True)
            )
        )


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


def compressed(costs: Costs, payload: Params, fraction: float = 1.0, bits: int = 32) -> Costs:
    """`costs` with a compressed payload in the uplink, as it would serialise (`wire`).

    A number takes `bits`, and with fewer than 32 each leaf comes with its least entry and its step, in float32. Of a
    fraction below 1 the places travel too: 4 bytes each, or a bit for each entry of the payload, whichever is shorter.

    Args:
        costs: with the payload as it is.
        payload: arrays or their shapes, whose numbers are part of `costs`.
        fraction: of the entries that are sent, as in `zofed.codecs.top_k`.
        bits: of a number, as in `zofed.codecs.quantize`; 32: as it is.

    Example:
        >>> model = {"weights": np.zeros((10, 784), np.float32), "bias": np.zeros(10, np.float32)}
        >>> full = model_exchange(model)
        >>> for compression in ({"bits": 8}, {"fraction": 0.1}, {"fraction": 0.01}, {"fraction": 0.1, "bits": 8}):
        ...     print(compressed(full, model, **compression).per_participant.uplink_bytes)
        7866
        4122
        632
        1783
    """
    dim, size = _size(payload)
    leaves, count = jax.tree.leaves(payload), num_kept(fraction, dim)
    values = count * max(np.dtype(leaf.dtype).itemsize for leaf in leaves) if fraction < 1 else size
    if bits < 32:
        values = -(-count * bits // 8) + 8 * len(leaves)
    places = min(4 * count, -(-dim // 8)) if fraction < 1 else 0
    return _with_uplink(costs, values + places - size, count - dim)


def compressed_paper(costs: Costs, payload: Params, fraction: float = 1.0, bits: int = 32) -> Costs:
    """The same as DeComFL's paper counts (`paper`): the numbers that are sent, of 4 bytes or `bits`, and nothing else.

    FedCom with 8 bits takes 0.25 d of 4 bytes in the uplink, FedAvg with the largest 10% 0.1 d (figures 3 and 6).
    """
    dim, size = _size(payload)
    count = num_kept(fraction, dim)
    return _with_uplink(costs, -(-count * bits // 8) - size, count - dim)


def _with_uplink(costs: Costs, more_bytes: int, more_numbers: int) -> Costs:
    own = costs.per_participant
    own = own._replace(
        uplink_bytes=own.uplink_bytes + more_bytes,
        uplink_scalars=own.uplink_scalars + more_numbers,
        uplink_channel_uses=own.uplink_channel_uses + more_numbers,
    )
    return costs._replace(per_participant=own)


def over_the_air(params: Params) -> Costs:
    """AirComp: all updates share d symbols (FedZO IV-B); the side information is digital, in float32.

    A participant sends the squared norm of its update and receives, besides the model, Delta_max and its complex gain.
    """
    dim, size = _size(params)
    return Costs(Traffic(4, size + 12, 1 + dim, dim + 3, 0), Traffic(0, 0, 0, 0, dim))


def shared_directions(params: Params, local_steps: int, num_directions: int, bits: int = 32) -> Costs:
    """DeComFL as its messages serialise (`wire`): every round's key, rate and scalars, and headers.

    A participant receives the entries of the rounds since its last one, the round's key, and sends K * P scalars, which
    also take as many symbols.

    Args:
        params: the model, arrays or their shapes, with the optimiser's state: what a client that lags too far pulls.
        local_steps: K.
        num_directions: P.
        bits: of a scalar, 32 or 1.
    """
    count = local_steps * num_directions
    dim, size = _size(params)
    up, work = messages.reply_bytes(count, bits), messages.work_bytes(0, count, bits)
    entry = messages.work_bytes(1, count, bits) - work
    return Costs(
        Traffic(up, work, count, WORK_SCALARS, count),
        NOTHING,
        Traffic(0, entry, 0, count + ENTRY_SCALARS, 0),
        Traffic(0, size, 0, dim, 0),
    )


def shared_directions_paper(local_steps: int, num_directions: int) -> Costs:
    """DeComFL as the paper counts (`paper`): a 4-byte seed and a 4-byte scalar per direction, and nothing else.

    Seeds and scalars of missed rounds go down, scalars go up (Algorithm 3; the seeds of line 8 are not counted, and
    no client pulls a model). Table 1's columns are the means over the rounds: mKP up, and 2MKP down in the long run,
    M being the number of clients.

    Example:
        >>> costs = shared_directions_paper(local_steps=1, num_directions=10)
        >>> one_client = costs.over([3000], [3000], replayed_rounds=[3000])  # Table 2: OPT-125M on SST-2, 0.36 MB
        >>> (one_client.uplink_bytes + one_client.downlink_bytes).tolist()
        [360000]
    """
    count = local_steps * num_directions
    return Costs(Traffic(4 * count, 0, count, 0, count), NOTHING, Traffic(0, 8 * count, 0, 2 * count, 0))


def shared_directions_over_the_air(params: Params, local_steps: int, num_directions: int) -> Costs:
    """DeComFL's scalars over the air: K * P symbols for the cohort, instead of d; the downlink is digital.

    A participant sends its sum of squared scalars and receives their largest and its complex gain, in float32.
    """
    digital = shared_directions(params, local_steps, num_directions)
    count, own = local_steps * num_directions, digital.per_participant
    side = Traffic(4, own.downlink_bytes + 12, 1 + count, own.downlink_scalars + 3, 0)
    return digital._replace(per_participant=side, per_round=Traffic(0, 0, 0, 0, count))


def scalars_up_model_down(params: Params, num_directions: int) -> Costs:
    """BAFFLE: a participant receives the model with the round's key, and sends its scalars."""
    digital = shared_directions(params, 1, num_directions)
    own, model = digital.per_participant, digital.per_pulled_model
    down = {
        "downlink_bytes": own.downlink_bytes + model.downlink_bytes,
        "downlink_scalars": own.downlink_scalars + model.downlink_scalars,
    }
    return Costs(own._replace(**down), NOTHING)


def queries(batch_size: int, num_directions: int, difference: str = "forward") -> int:
    """Losses of one example that an estimate asks for: b1 (b2 + 1) of a forward difference, 2 b1 b2 of a central one.

    A jvp counts as one. Directions of each example's own ask for as many.

    Args:
        batch_size: b1.
        num_directions: b2.
        difference: a name in `zofed.estimators.DIFFERENCES`.

    Example:
        >>> queries(25, 20), queries(25, 20, "central")
        (525, 1000)
    """
    return (
        batch_size * {"forward": num_directions + 1, "central": 2 * num_directions, "jvp": num_directions}[difference]
    )


def peer_to_peer(params: Params, laplacian: np.ndarray) -> Costs:
    """DZOPA: in a round every peer sends its model along each of its links, or to all neighbours at once by broadcast.

    Bytes and scalars count a message for each link and way, channel uses one broadcast for each peer.

    Args:
        params: the model, arrays or their shapes.
        laplacian: of the graph, see `zofed.graphs`.
    """
    dim, size = _size(params)
    count = int(np.count_nonzero(laplacian) - np.count_nonzero(np.diag(laplacian)))
    sent = Traffic(count * size, count * size, count * dim, count * dim, len(laplacian) * dim)
    return Costs(NOTHING, sent)


def one_agent() -> Costs:
    """MeZO: nothing travels."""
    return Costs(NOTHING, NOTHING)


def largest_cheap_lag(costs: Costs) -> int:
    """How many rounds a client may miss before the model is fewer bytes than their scalars: `max_lag` of DeComFL."""
    return costs.per_pulled_model.downlink_bytes // costs.per_replayed_round.downlink_bytes
