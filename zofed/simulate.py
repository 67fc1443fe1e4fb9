"""Runs an algorithm: a scan over rounds, a map over the cohort's clients, a reduction of their messages."""

from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax.sharding import Mesh
from jax.sharding import PartitionSpec as Spec

from zofed import checks, rng
from zofed.base import Algorithm, ClientData, Cohort, LocalInfo, RoundInfo, State
from zofed.rng import RoundKeys

__all__ = ["CLIENT_AXIS", "Trace", "simulate"]

CLIENT_AXIS = "clients"
"""Name of the mesh axis that clients are spread over."""


class Trace(NamedTuple):
    """What a run recorded.

    Attributes:
        rounds: RoundInfo with a leading axis num_rounds.
        evaluations: what `evaluate` returned, with a leading axis num_rounds // eval_every; `()` without `evaluate`.
    """

    rounds: RoundInfo
    evaluations: Any


def simulate(
    key: jax.Array,
    algorithm: Algorithm,
    state: State,
    clients: ClientData,
    num_rounds: int,
    evaluate: Callable[[Any], Any] | None = None,
    eval_every: int = 1,
    client_chunk: int | None = None,
    mesh: Mesh | None = None,
) -> tuple[State, Trace]:
    """Plays `num_rounds` rounds from `state`: pure; jit it, vmap it over runs, call it again to go on.

    Two calls of T rounds equal one of 2T bit for bit, since all randomness depends on (seed, round, client) alone.

    Args:
        key: the run's seed key, the same in every call of one run.
        algorithm: for instance `zofed.fedzo(...)`.
        state: `algorithm.init(params, num_clients)`, or what an earlier call returned.
        clients: their data.
        num_rounds: rounds to play.
        evaluate: `params -> pytree of scalars`, called after every `eval_every` rounds.
        eval_every: a divisor of num_rounds.
        client_chunk: clients mapped at once; None maps the whole cohort at once, 1 goes one by one at the memory of
            one. Clients outside the cohort's count cost nothing, but for filling the last chunk.
        mesh: a mesh with the axis "clients"; each of its devices plays a part of the cohort.

    Returns:
        The next state and the trace.

    Raises:
        ValueError: a count is out of range, or the mesh has no such axis.
    """
    num_rounds = checks.count("num_rounds", num_rounds)
    eval_every = checks.count("eval_every", eval_every, at_most=num_rounds, limit="num_rounds")
    if num_rounds % eval_every:
        raise ValueError(f"eval_every={eval_every}; allowed: a divisor of num_rounds={num_rounds}")
    for leaf in jax.tree.leaves(state.memory):
        if leaf.shape[:1] != (clients.num_clients,):
            raise ValueError(
                f"state.memory holds a leaf of shape {leaf.shape}; allowed: a leading axis of "
                f"num_clients={clients.num_clients}: was the state made for other clients?"
            )
    if client_chunk is not None:
        client_chunk = checks.count("client_chunk", client_chunk)
    if mesh is not None and CLIENT_AXIS not in mesh.axis_names:
        raise ValueError(f"mesh has the axes {mesh.axis_names}; allowed: a mesh with the axis {CLIENT_AXIS!r}")
    map_cohort = partial(_map_cohort, algorithm, clients, client_chunk, mesh)

    def play(state: State, _: None) -> tuple[State, RoundInfo]:
        return _play_round(key, algorithm, map_cohort, state, clients.num_clients)

    def segment(state: State, _: None) -> tuple[State, Trace]:
        state, infos = jax.lax.scan(play, state, length=eval_every)
        return state, Trace(infos, evaluate(algorithm.params(state)) if evaluate is not None else ())

    state, trace = jax.lax.scan(segment, state, length=num_rounds // eval_every)
    return state, trace._replace(rounds=jax.tree.map(lambda leaf: leaf.reshape(-1, *leaf.shape[2:]), trace.rounds))


class _Reduced(NamedTuple):
    """What the participants' results come to."""

    total: Any
    info: LocalInfo
    """Sums."""
    finite: jax.Array
    """int32 number of results in the sums."""


def _play_round(
    key: jax.Array, algorithm: Algorithm, map_cohort: Callable[..., Any], state: State, num_clients: int
) -> tuple[State, RoundInfo]:
    keys = rng.round_keys(key, state.round)
    cohort = algorithm.sample_cohort(keys, num_clients)
    reduced, memory = map_cohort(keys, state, cohort)

    received = jnp.maximum(reduced.finite, 1).astype(jnp.float32)
    aggregate, link = rng.materialise(lambda: algorithm.aggregation.receive(keys, reduced.total, received, cohort))
    server = algorithm.server(keys, state, aggregate, cohort)
    # A round in which nobody was heard leaves the server as it is.
    server = jax.tree.map(lambda new, old: jnp.where(reduced.finite > 0, new, old), server, state.server)

    size = jnp.asarray(cohort.count, jnp.int32)
    info = jax.tree.map(lambda sum_: sum_ / received.astype(sum_.dtype), reduced.info)
    next_state = State(server, memory, state.round + 1)
    record = algorithm.record(keys, state, next_state, aggregate, reduced.finite > 0)
    return next_state, RoundInfo(info, size, size - reduced.finite, link, record)


def _map_cohort(
    algorithm: Algorithm,
    clients: ClientData,
    chunk: int | None,
    mesh: Mesh | None,
    keys: RoundKeys,
    state: State,
    cohort: Cohort,
) -> tuple[_Reduced, Any]:
    """Plays the participants and reduces their messages; returns the clients' new memories too."""
    if mesh is None:
        reduced, ids, rows = _map_slots(algorithm, clients, chunk, keys, state, cohort, 0, 1)
    else:
        reduced, ids, rows = _map_devices(algorithm, clients, chunk, mesh, keys, state, cohort)
    # An id of num_clients marks a slot whose memory stays: absent, or not finite.
    write = lambda leaf, new: leaf.at[ids].set(new, mode="drop")  # noqa: E731
    return reduced, jax.tree.map(write, state.memory, rows)


def _map_slots(
    algorithm: Algorithm,
    clients: ClientData,
    chunk: int | None,
    keys: RoundKeys,
    state: State,
    cohort: Cohort,
    device: int | jax.Array,
    num_devices: int,
) -> tuple[_Reduced, jax.Array, Any]:
    """Plays the slots `device`, `device + num_devices` ... of the cohort, `chunk` at a time, in that order."""
    num_slots = -(-cohort.ids.shape[0] // num_devices)
    chunk = min(chunk or num_slots, num_slots)
    num_chunks = -(-num_slots // chunk)
    merge = algorithm.aggregation.merge

    def play(slot: jax.Array) -> tuple[_Reduced, jax.Array, Any]:
        place = slot * num_devices + device
        present = place < cohort.count
        place = jnp.minimum(place, cohort.ids.shape[0] - 1)
        client = clients.client(cohort.ids[place])
        memory = jax.tree.map(lambda leaf: leaf[client.id], state.memory)
        message, memory, info = algorithm.local(keys, state.server, memory, client)
        heard = present & _all_finite(message)
        lifted = algorithm.aggregation.lift(message, None if cohort.gain is None else cohort.gain[place])
        result = _Reduced(lifted, info, jnp.int32(1))
        result = jax.tree.map(lambda leaf: jnp.where(heard, leaf, jnp.zeros_like(leaf)), result)
        return result, jnp.where(heard, client.id, clients.num_clients), memory

    def merge_next(carry: _Reduced, result: _Reduced) -> tuple[_Reduced, None]:
        total = merge(carry.total, result.total)
        return _Reduced(total, jax.tree.map(jnp.add, carry.info, result.info), carry.finite + result.finite), None

    def play_chunk(number: jax.Array, carry: tuple[_Reduced, jax.Array, Any]) -> tuple[_Reduced, jax.Array, Any]:
        reduced, ids, rows = carry
        first = number * chunk
        results, chunk_ids, chunk_rows = jax.vmap(play)(first + jnp.arange(chunk, dtype=jnp.int32))
        # One by one: the order of additions is the cohort's, whatever the chunk.
        reduced, _ = jax.lax.scan(merge_next, reduced, results)
        store = lambda leaf, new: jax.lax.dynamic_update_slice_in_dim(leaf, new, first, 0)  # noqa: E731
        return reduced, store(ids, chunk_ids), jax.tree.map(store, rows, chunk_rows)

    shapes = jax.eval_shape(play, jnp.int32(0))
    zeros = lambda shape: jnp.zeros(shape.shape, shape.dtype)  # noqa: E731
    rows = lambda shape: jnp.zeros((num_chunks * chunk, *shape.shape), shape.dtype)  # noqa: E731
    ids = jnp.full(num_chunks * chunk, clients.num_clients, jnp.int32)
    carry = jax.tree.map(zeros, shapes[0]), ids, jax.tree.map(rows, shapes[2])
    present = (cohort.count - device + num_devices - 1) // num_devices
    return jax.lax.fori_loop(0, (present + chunk - 1) // chunk, play_chunk, carry)


def _map_devices(
    algorithm: Algorithm,
    clients: ClientData,
    chunk: int | None,
    mesh: Mesh,
    keys: RoundKeys,
    state: State,
    cohort: Cohort,
) -> tuple[_Reduced, jax.Array, Any]:
    """`_map_slots` with the slots dealt to the devices of a mesh, whose totals are merged in the devices' order."""
    mesh = Mesh(mesh.devices, mesh.axis_names)  # `jax.make_mesh` makes axes that want every sharding spelled out
    num_devices = mesh.shape[CLIENT_AXIS]
    static_count = cohort.count if isinstance(cohort.count, int) else None

    def on_device(keys: RoundKeys, clients: ClientData, state: State, cohort: Cohort) -> Any:
        if static_count is not None:
            cohort = cohort._replace(count=static_count)
        device = jax.lax.axis_index(CLIENT_AXIS)
        return jax.tree.map(
            lambda leaf: leaf[None],
            _map_slots(algorithm, clients, chunk, keys, state, cohort, device, num_devices),
        )

    spread = jax.shard_map(on_device, mesh=mesh, in_specs=Spec(), out_specs=Spec(CLIENT_AXIS), check_vma=False)
    reduced, ids, rows = spread(keys, clients, state, cohort)
    result = jax.tree.map(lambda leaf: leaf[0], reduced)
    for device in range(1, num_devices):
        other = jax.tree.map(lambda leaf, device=device: leaf[device], reduced)
        result = _Reduced(
            algorithm.aggregation.merge(result.total, other.total),
            jax.tree.map(jnp.add, result.info, other.info),
            result.finite + other.finite,
        )
    return result, ids.reshape(-1), jax.tree.map(lambda leaf: leaf.reshape(-1, *leaf.shape[2:]), rows)


def _all_finite(tree: Any) -> jax.Array:
    finite = [jnp.all(jnp.isfinite(leaf)) for leaf in jax.tree.leaves(tree) if jnp.issubdtype(leaf.dtype, jnp.inexact)]
    return jnp.all(jnp.stack(finite)) if finite else jnp.bool_(True)
