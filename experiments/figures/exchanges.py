"""Rounds of a config played by messages: each is made, counted, and read by the party that it is for.

What a party knows of another is what it reads, so that the bytes suffice to play the round. DeComFL's messages are
those of `zofed.protocol`. A model goes down, and an update up, as its float32 numbers; a quantised update as the least
entry and the step of its grid, and every entry's place on it.
"""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from experiments import averaging, build, shared_directions
from experiments.compression import AS_IT_IS
from experiments.settings import Config
from experiments.sweeps import apply
from zofed import rng
from zofed.base import Cohort, Params
from zofed.messages import Reply, Work
from zofed.protocol import Client, Plan, Server

__all__ = ["Exchange", "Sent", "exchange", "pack", "unpack"]


class Sent(NamedTuple):
    """What all participants of a round sent or received.

    Attributes:
        bytes: of the messages.
        numbers: of 4 bytes: the messages without what says how to read them, their headers and counts.
    """

    bytes: int
    numbers: float


class Exchange(NamedTuple):
    """Some rounds: what went up and down in each, and the server's model after them."""

    uplink: list[Sent]
    downlink: list[Sent]
    params: Params


def exchange(config: Config, num_rounds: int) -> Exchange:
    """Plays the first rounds of a config's run, with its cohorts.

    Args:
        config: of a model that is one vector of float32, without a server's optimiser or error feedback.
        num_rounds: to play.

    Raises:
        ValueError: there is no such form of the config's algorithm.
    """
    if config.algorithm.name == "decomfl":
        return _shared_directions(config, num_rounds)
    if config.algorithm.name in averaging.NAMES:
        return _models(config, num_rounds)
    raise ValueError(f"algorithm.name={config.algorithm.name!r}; allowed: 'decomfl', {averaging.NAMES}")


def _models(config: Config, num_rounds: int) -> Exchange:
    task, seed_key = build.task_of(config), rng.seed_key(config.seed)
    clients, bits = task.data.clients, config.aggregation.bits
    algorithm = build.algorithm_of(config, task.loss, build.traced_settings(config))
    state = algorithm.init(task.init(rng.init_key(seed_key)), config.num_clients)

    @jax.jit
    def local(keys: Any, params: Params, id: jax.Array) -> Any:
        return algorithm.local(keys, state.server._replace(params=params), (), clients.client(id))[0]

    @jax.jit
    def server(keys: Any, state: Any, updates: jax.Array, cohort: Cohort) -> Any:
        count = jnp.float32(updates.shape[0])
        aggregate, _ = algorithm.aggregation.receive(keys, jnp.sum(updates, axis=0), count, cohort)
        return state._replace(server=algorithm.server(keys, state, aggregate, cohort))

    uplink, downlink = [], []
    for number in range(num_rounds):
        keys = rng.round_keys(seed_key, number)
        cohort = algorithm.sample_cohort(keys, config.num_clients)
        ids = cohort.ids[: int(cohort.count)]
        messages = [pack(np.asarray(algorithm.params(state)), AS_IT_IS) for _ in ids]
        updates = [local(keys, unpack(message, AS_IT_IS), id) for message, id in zip(messages, ids, strict=True)]
        replies = [pack(np.asarray(update), bits) for update in updates]
        state = server(keys, state, np.stack([unpack(reply, bits) for reply in replies]), cohort)
        uplink.append(_all_numbers(replies))
        downlink.append(_all_numbers(messages))
    return Exchange(uplink, downlink, algorithm.params(state))


def _all_numbers(messages: list[bytes]) -> Sent:
    size = sum(map(len, messages))
    return Sent(size, size / 4)


def pack(values: np.ndarray, bits: int) -> bytes:
    """A vector as it is, or on a grid of 2^bits levels from its least to its greatest entry, 8 bits a level.

    Raises:
        ValueError: its entries lie on no such grid, or bits is neither 8 nor 32.

    Example:
        >>> values = np.array([0.0, 51.0, 255.0], np.float32)
        >>> len(pack(values, 32)), len(pack(values, 8)), unpack(pack(values, 8), 8).tolist()
        (12, 11, [0.0, 51.0, 255.0])
    """
    if bits == AS_IT_IS:
        return values.astype("<f4").tobytes()
    if bits != 8:
        raise ValueError(f"aggregation.bits={bits}; allowed: 8 or {AS_IT_IS}")
    least, step = values.min(), np.ptp(values) / np.float32(255)
    places = np.rint((values - least) / step) if step > 0 else np.zeros(values.shape)
    message = np.array([least, step], "<f4").tobytes() + places.astype(np.uint8).tobytes()
    error = np.abs(unpack(message, bits) - values).max()
    if not error <= 1e-3 * step:
        raise ValueError(f"the {values.size} entries lie on no grid of 256 levels: one is off by {error / step} steps")
    return message


def unpack(message: bytes, bits: int) -> np.ndarray:
    """The float32 vector that `pack` packed."""
    if bits == AS_IT_IS:
        return np.frombuffer(message, "<f4").astype(np.float32)
    least, step = np.frombuffer(message[:8], "<f4").astype(np.float32)
    return least + step * np.frombuffer(message[8:], np.uint8).astype(np.float32)


def _shared_directions(config: Config, num_rounds: int) -> Exchange:
    task, seed_key = build.task_of(config), rng.seed_key(config.seed)
    settings, traced = config.algorithm, build.traced_settings(config)

    def of(rate: Any, num_directions: int) -> Any:
        own = apply(config, {"algorithm.num_directions": num_directions})
        return build.algorithm_of(own, task.loss, {**traced, "algorithm.learning_rate": rate})

    algorithm, rate = of(settings.learning_rate, settings.num_directions), np.float32(settings.learning_rate)
    params = task.init(rng.init_key(seed_key))
    plan = Plan(of, shared_directions.rule_of(config), params, settings.local_steps)
    server = Server(plan, algorithm.aggregation, config.num_clients)
    clients = [Client(id, task.data.clients, seed_key, plan) for id in range(config.num_clients)]
    uplink, downlink = [], []
    for number in range(num_rounds):
        keys = rng.round_keys(seed_key, number)
        cohort = algorithm.sample_cohort(keys, config.num_clients)
        ids = cohort.ids[: int(cohort.count)].tolist()
        key = np.asarray(jax.random.key_data(keys.direction))
        messages = [server.work(id, key, settings.num_directions, rate) for id in ids]
        replies = [clients[id].answer(message) for id, message in zip(ids, messages, strict=True)]
        server.receive(replies, key, settings.num_directions, rate)
        uplink.append(Sent(sum(map(len, replies)), sum(Reply.from_bytes(reply).scalars.size for reply in replies)))
        downlink.append(Sent(sum(map(len, messages)), sum(map(_numbers_of_work, messages))))
    assert server.model is not None
    return Exchange(uplink, downlink, server.model.params)


def _numbers_of_work(message: bytes) -> int:
    """The round's key of two words and its rate, and for each round that was missed the scalars and the same."""
    work = Work.from_bytes(message)
    return work.key.size + 1 + work.history.scalars.size + work.history.key.size + work.history.rate.size
