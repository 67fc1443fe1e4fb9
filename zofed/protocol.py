"""DeComFL as its parties play it: each client holds the model of its last round, and messages are all they share.

Host-level objects around the same pure functions as the fast form, `zofed.algorithms.decomfl`: given the same keys and
scalars a client's rebuilt model is that one's, bit for bit. For tests, demonstrations and byte counts.
"""

from collections.abc import Callable, Sequence
from functools import cache, partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from zofed import replay, rng
from zofed.aggregation import Aggregation
from zofed.algorithms.decomfl import Memory, start
from zofed.base import Algorithm, ClientData, Cohort, Params
from zofed.descent import Model, Rule, apply
from zofed.messages import Reply, Request, Work
from zofed.replay import History
from zofed.rng import RoundKeys

__all__ = ["Client", "CompensatingClient", "Plan", "Server", "Traffic", "play_round"]


ROUNDS_AT_ONCE = 8
"""A replay's length is a multiple of it."""

# Compiled once per rule, however many plans have it.
_rebuild, _apply = (jax.jit(function, static_argnums=0) for function in (replay.rebuild, apply))


class Plan:
    """What all parties know before the first round.

    Args:
        build: `(rate, num_directions) -> algorithm`, the run's `decomfl` with both of these numbers given.
        rule: of that algorithm. A server whose clients share a secret has another one than they.
        params: the first model.
        local_steps: K.
        bits: of a scalar in a message, 32 or 1.
    """

    def __init__(
        self,
        build: Callable[[Any, int], Algorithm],
        rule: Rule,
        params: Params,
        local_steps: int,
        bits: int = 32,
    ) -> None:
        self.rule, self.local_steps, self.bits = rule, local_steps, bits
        self.start = start(rule, params)
        self._rebuild, self.apply = partial(_rebuild, rule), partial(_apply, rule)

        @cache
        def measure(num_directions: int) -> Callable[..., jax.Array]:
            def scalars(keys: RoundKeys, rate: jax.Array, model: Model, clients: ClientData, id: jax.Array) -> Any:
                memory = Memory(keys.round, ())
                return build(rate, num_directions).local(keys, model, memory, clients.client(id))[0]

            return jax.jit(scalars)

        self.measure = measure

    def rebuild(self, model: Model, history: History) -> Model:
        """`zofed.replay.rebuild`, with rounds that do nothing behind, so that few lengths are compiled."""
        count = len(history.round)
        missing = -count % ROUNDS_AT_ONCE
        longer = (np.pad(field, [(0, missing)] + [(0, 0)] * (field.ndim - 1)) for field in history)
        return self._rebuild(model, History(*longer)) if count else model


class Client:
    """A client: its data, its model, and nothing of the others.

    Attributes:
        model: as it was before the client's last round; after it, too: local steps are reverted.
        last_round: t_i.
    """

    def __init__(self, id: int, data: ClientData, seed_key: jax.Array, plan: Plan) -> None:
        self.id, self.data, self.seed_key, self.plan = id, data, seed_key, plan
        self.model, self.last_round = plan.start, 0

    def request(self) -> bytes:
        """What it tells a server that keeps no clients' last rounds."""
        return Request(self.id, self.last_round).to_bytes()

    def answer(self, message: bytes) -> bytes:
        """Rebuilds the model, measures this round's scalars and reverts: Algorithm 4."""
        work = Work.from_bytes(message)
        model = self.catch_up(work)
        key = jax.random.wrap_key_data(jnp.asarray(work.key), impl="threefry2x32")
        keys = rng.round_keys(self.seed_key, work.round)._replace(direction=key)
        measure = self.plan.measure(work.num_directions)
        scalars = np.asarray(measure(keys, work.rate, model, self.data, jnp.int32(self.id)))
        self.model, self.last_round = self.revert(model, work, scalars), work.round
        return Reply(work.round, self.id, scalars, self.plan.bits).to_bytes()

    def catch_up(self, work: Work) -> Model:
        """The model before round r: pulled, or replayed from rounds t_i .. r - 1."""
        if work.model is not None:
            return _from_bytes(work.model, self.plan.start)
        return self.plan.rebuild(self.model, work.history)

    def revert(self, model: Model, work: Work, scalars: np.ndarray) -> Model:
        """The model to keep after the local steps: the one from before them, with its optimiser's state."""
        del work, scalars
        return model


class CompensatingClient(Client):
    """A client that keeps no snapshot: it holds the model after its local steps, and undoes them by (10).

    The next replay starts with its last round, in which it plays the difference to its own scalars. That is exact but
    for round-off, which stays: the model drifts. For plain descent only, whose steps add up.
    """

    def __init__(self, id: int, data: ClientData, seed_key: jax.Array, plan: Plan) -> None:
        super().__init__(id, data, seed_key, plan)
        if jax.tree.leaves(plan.start.optimizer):
            raise ValueError("the optimiser has a state; allowed: plain descent, whose steps (10) can undo")
        self.own: np.ndarray | None = None

    def catch_up(self, work: Work) -> Model:
        if self.own is None or work.model is not None:
            return super().catch_up(work)
        scalars = work.history.scalars.copy()
        missing = scalars.shape[-1] - self.own.shape[-1]
        scalars[0] -= np.pad(self.own, [(0, 0), (0, missing)])
        # Whoever was heard or not in that round, this client's own steps were made, with this many directions.
        directions = work.history.num_directions.copy()
        directions[0] = self.own.shape[-1]
        return self.plan.rebuild(self.model, work.history._replace(scalars=scalars, num_directions=directions))

    def revert(self, model: Model, work: Work, scalars: np.ndarray) -> Model:
        self.own = scalars
        key = jax.random.wrap_key_data(jnp.asarray(work.key), impl="threefry2x32")
        return self.plan.apply(key, scalars, jnp.int32(work.num_directions), work.rate, model)


class Server:
    """The server: an aggregator of scalars, with a bounded history.

    Args:
        plan: its own; may have another rule than the clients'.
        aggregation: of scalars, without channel gains.
        num_clients: whose last rounds it keeps; None keeps none, and clients send a `Request`.
        holds_model: whether it moves a model of its own, which it can be asked for.
        max_lag: a client that missed more rounds pulls the model; what only it would need is dropped.
    """

    def __init__(
        self,
        plan: Plan,
        aggregation: Aggregation,
        num_clients: int | None = None,
        holds_model: bool = True,
        max_lag: int | None = None,
    ) -> None:
        if max_lag is not None and not holds_model:
            raise ValueError(f"max_lag={max_lag} with holds_model=False; allowed: None, there is no model to pull")
        self.plan, self.aggregation, self.max_lag = plan, aggregation, max_lag
        self.last_rounds = None if num_clients is None else np.zeros(num_clients, np.int64)
        self.model = plan.start if holds_model else None
        self.round, self.history = 0, _nothing(plan.local_steps)

    def work(self, client: int, key: np.ndarray, num_directions: int, rate: np.float32, request: bytes = b"") -> bytes:
        """The message to a participant: Algorithm 3, lines 7 and 8."""
        first = self.first_round(client, request)
        round_ = (self.round, key, num_directions, rate)
        if self.max_lag is not None and self.round - first > self.max_lag:
            return Work(*round_, _nothing(self.plan.local_steps), self.plan.bits, _to_bytes(self.model)).to_bytes()
        missed = replay.rounds_between(self.history, first, self.round)
        return Work(*round_, missed, self.plan.bits).to_bytes()

    def first_round(self, client: int, request: bytes) -> int:
        """t_i, the first round that the client replays."""
        if self.last_rounds is None:
            return Request.from_bytes(request).last_round
        return int(self.last_rounds[client])

    def receive(self, replies: Sequence[bytes], key: np.ndarray, num_directions: int, rate: np.float32) -> None:
        """The mean of the scalars, the record of the round, and what nobody needs any more: lines 10 to 12."""
        heard = [Reply.from_bytes(reply) for reply in replies]
        scalars = self._mean(heard)
        entry = History(*(np.asarray(value)[None] for value in (self.round, key, scalars, num_directions, rate)))
        self.history = replay.concatenate([self.history, entry]) if len(self.history.round) else entry
        if self.last_rounds is not None:
            self.last_rounds[[reply.client for reply in heard]] = self.round
        if self.model is not None:
            wrapped = jax.random.wrap_key_data(jnp.asarray(key), impl="threefry2x32")
            self.model = self.plan.apply(wrapped, scalars, jnp.int32(num_directions), rate, self.model)
        self.round += 1
        self.history = replay.rounds_between(self.history, self._oldest_needed(), self.round)

    def _mean(self, replies: Sequence[Reply]) -> np.ndarray:
        keys = rng.round_keys(rng.seed_key(0), self.round)
        cohort = Cohort(jnp.array([reply.client for reply in replies], jnp.int32), len(replies))
        total = self.aggregation.lift(jnp.zeros(replies[0].scalars.shape), None)
        for reply in replies:
            total = self.aggregation.merge(total, self.aggregation.lift(jnp.asarray(reply.scalars), None))
        return np.asarray(self.aggregation.receive(keys, total, jnp.float32(len(replies)), cohort)[0])

    def _oldest_needed(self) -> int:
        oldest = int(self.history.round[0])
        if self.last_rounds is not None:
            oldest = max(oldest, int(self.last_rounds.min()))
        if self.max_lag is not None:
            oldest = max(oldest, self.round - self.max_lag)
        return oldest


class Traffic(NamedTuple):
    """Bytes of a round's messages."""

    uplink: int
    downlink: int


def play_round(
    server: Server, clients: Sequence[Client], ids: Sequence[int], key: jax.Array, num_directions: int, rate: Any
) -> Traffic:
    """One round between a server and those of the clients in `ids`; `key` is that of the round's directions."""
    words, rate = np.asarray(jax.random.key_data(key)), np.float32(rate)
    requests = [clients[id].request() if server.last_rounds is None else b"" for id in ids]
    works = [server.work(id, words, num_directions, rate, request) for id, request in zip(ids, requests, strict=True)]
    replies = [clients[id].answer(work) for id, work in zip(ids, works, strict=True)]
    server.receive(replies, words, num_directions, rate)
    return Traffic(sum(map(len, requests)) + sum(map(len, replies)), sum(map(len, works)))


def _nothing(local_steps: int) -> History:
    return History(
        np.zeros(0, np.int32),
        np.zeros((0, 2), np.uint32),
        np.zeros((0, local_steps, 0), np.float32),
        np.zeros(0, np.int32),
        np.zeros(0, np.float32),
    )


def _to_bytes(model: Any) -> bytes:
    return b"".join(np.asarray(leaf).tobytes() for leaf in jax.tree.leaves(model))


def _from_bytes(data: bytes, like: Model) -> Model:
    leaves, structure = jax.tree.flatten(like)
    sizes = [np.asarray(leaf).nbytes for leaf in leaves]
    if sum(sizes) != len(data):
        raise ValueError(f"a model of {len(data)} bytes; this client's has {sum(sizes)}")
    ends = np.cumsum(sizes)
    parts = [
        jnp.asarray(np.frombuffer(data[end - size : end], np.asarray(leaf).dtype).reshape(leaf.shape))
        for leaf, size, end in zip(leaves, sizes, ends, strict=True)
    ]
    return jax.tree.unflatten(structure, parts)
