"""Plays a sweep: group after group, segment after segment, with progress, checkpoints and interrupts."""

import math
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import jax
import numpy as np

from experiments import build, checkpoint, memory, queries, schedule, shared_directions
from experiments.checkpoint import Checkpoint
from experiments.history import Histories
from experiments.metrics import Records, append
from experiments.progress import Progress
from experiments.settings import Config
from experiments.shared_directions import PHASE_PREFIX
from experiments.sweeps import apply
from zofed import sweep
from zofed.blackbox import BlackBoxError
from zofed.sequential import OneModelAtATime
from zofed.sweep import Group, Program
from zofed.tasks import Task

__all__ = ["Chunks", "Outcome", "chunks", "devices", "finished", "run"]

CHECKPOINT_SECONDS = 60.0
"""A segment that ends this long after the last checkpoint writes the next one."""

ROUND_OFF_WARNING = 0.1
"""Share of finite differences that are exactly zero, above which a group warns."""


FLOATS_AT_ONCE = 2**18
"""Numbers of directions that a CPU holds at once: 1 MiB, which stays in its cache while it is used."""


class Chunks(NamedTuple):
    """How many cells, clients and directions are held at once; None holds all."""

    cells: int | None
    clients: int | None
    directions: int | None


class Outcome(NamedTuple):
    """What became of a group.

    Attributes:
        records: one array [cells, evaluations so far] per recorded quantity.
        timing: seconds of compiling and running in this process, and the rounds played in it.
        model: of the group's first cell, after the rounds that were played.
        ended: whether there is nothing left to play: all rounds, or as many as the budget of queries allows.
        failure: what a black box failed of, else empty.
    """

    group: Group
    records: Records
    timing: dict[str, float]
    model: Any
    ended: bool = True
    failure: str = ""


def chunks(config: Config, task: Task) -> Chunks:
    """The config's chunks, or what is fast on this backend for the task's model.

    On CPU, as many directions and then clients as fit `FLOATS_AT_ONCE`, and cells one after the other; elsewhere all.
    Where models are evaluated one at a time, all clients share the drawing of directions, and gradients go one by one.
    """
    usual = Chunks(None, None, None)
    if jax.default_backend() == "cpu":
        dim = build.dimension_of(task)
        directions = max(1, min(config.algorithm.num_directions, FLOATS_AT_ONCE // dim))
        clients = min(config.num_clients, -(-FLOATS_AT_ONCE // (directions * dim)))
        if isinstance(task.loss, OneModelAtATime):
            # All at once would play the absent ones of a varying cohort, too.
            varying = config.participation == "gain_threshold" and config.algorithm.name not in shared_directions.NAMES
            clients = 1 if config.algorithm.name == "fedavg" or varying else None
        usual = Chunks(1, clients, directions)
    settings = config.execution
    chosen = Chunks(settings.cell_chunk, settings.client_chunk, settings.direction_chunk)
    return Chunks(*(own if own is not None else other for own, other in zip(chosen, usual, strict=True)))


def devices(config: Config) -> list[Any]:
    """The devices that cells are spread over, at most one per cell.

    Raises:
        ValueError: there are fewer than the config wants.
    """
    there = jax.local_devices()
    wanted = config.execution.num_devices or len(there)
    if wanted > len(there):
        raise ValueError(f"execution.num_devices={wanted}; allowed: at most {len(there)}, what there is here")
    return there[:wanted]


def run(
    config: Config,
    groups: Sequence[Group],
    directory: Path,
    interrupted: Callable[[], bool],
    announce: Callable[[Chunks, Sequence[Any], int], None],
    progress: Progress,
) -> list[Outcome]:
    """Plays all groups from where their checkpoints stand, until done or interrupted.

    Args:
        config: the study's settings; each group's static settings go on top.
        groups: of the sweep.
        directory: of the run; checkpoints and histories go below it.
        interrupted: whether to stop after the current segment.
        announce: called with a program's chunks, its devices and the bytes it needs on each, before its first round.
        progress: is told of rounds and losses.

    Returns:
        One outcome per group that was started, in order.
    """
    outcomes = []
    for number, group in enumerate(groups):
        progress.group(number, len(groups))
        path = checkpoint.path_of(directory, number)
        histories = Histories(directory / "history", group.cells)
        own_config = apply(config, group.static)
        outcomes.append(_play(own_config, group, path, histories, interrupted, announce, progress))
        if interrupted() or outcomes[-1].failure:
            break
    return outcomes


def _play(
    config: Config,
    group: Group,
    path: Path,
    histories: Histories,
    interrupted: Callable[[], bool],
    announce: Callable[[Chunks, Sequence[Any], int], None],
    progress: Progress,
) -> Outcome:
    task, phases = build.task_of(config), schedule.phases(config)
    began = time.perf_counter()
    _, _, program = _program(config, group, task)
    data, settings = program.place(task.data), program.pad(group.traced)
    shapes = jax.eval_shape(program.start, settings, data)[0]
    kept = checkpoint.load(path, jax.tree.map(lambda leaf: _cells(leaf, len(group.cells)), shapes))
    if kept is not None and kept.round == config.num_rounds:
        progress.rounds(config.num_rounds, _median_loss(kept.records))
        model = _first_model(config, task, kept.states)
        return Outcome(group, finished(kept.records, task, config), _timing(0.0, 0.0, 0), model)

    if kept is None:
        try:
            states, record = program.start(settings, data)
            records, done = append({}, program.trim(record)), 0
        except jax.errors.JaxRuntimeError as error:
            raise _failure(task) or error from None
    else:
        states, records, done = program.pad(kept.states), kept.records, kept.round
        histories.resume(done)
    progress.rounds(done, _median_loss(records))

    first, saved, warned, failure = done, time.perf_counter(), False, ""
    compile_seconds, advance, end = saved - began, None, done
    while done < config.num_rounds and not interrupted() and queries.affordable(records, done, config):
        if advance is None or done == end:
            compiling = time.perf_counter()
            phase = next(phase for phase in phases if done < phase.end)
            own = apply(config, {"algorithm.num_directions": phase.num_directions})
            chosen, used, program = _program(own, group, task)
            advance, end = program.advance.lower(shapes, settings, data).compile(), phase.end
            memory.give_back()
            announce(chosen, used, _memory(advance))
            compile_seconds += time.perf_counter() - compiling
        # A segment takes the memory of the states before it, which a black box that fails would leave without any.
        before = program.trim(states) if task.black_boxes else None
        try:
            states, record = advance(states, settings, data)
            record = program.trim(record)
        except jax.errors.JaxRuntimeError:
            if _failure(task) is None:
                raise
            states, failure = program.pad(before), str(_failure(task))
            break
        histories.append(record.pop("history", None))
        records, done = append(records, record), done + config.eval_every
        progress.rounds(config.eval_every, _median_loss(records))
        warned = warned or _warn_of_round_off(records, config, progress)
        if time.perf_counter() - saved > CHECKPOINT_SECONDS:
            _save(path, done, states, records, histories, program)
            saved = time.perf_counter()
    _warn_of_empty_rounds(records, progress)
    run_seconds = time.perf_counter() - began - compile_seconds
    _save(path, done, states, records, histories, program)
    model = _first_model(config, task, program.trim(states))
    timing = _timing(compile_seconds, run_seconds, done - first)
    ended = done == config.num_rounds or not queries.affordable(records, done, config)
    return Outcome(group, finished(records, task, config), timing, model, ended and not failure, failure)


def _failure(task: Task) -> BlackBoxError | None:
    return next((box.failure for box in task.black_boxes if box.failure is not None), None)


def _first_model(config: Config, task: Task, states: Any) -> Any:
    algorithm = build.algorithm_of(config, task.loss, build.traced_settings(config))
    return algorithm.params(jax.tree.map(lambda leaf: leaf[0], states))


def _program(config: Config, group: Group, task: Task) -> tuple[Chunks, list[Any], Program]:
    """The program of a group, its chunks, and the devices that it uses."""
    chosen, there = chunks(config, task), devices(config)
    # Fewer cells than devices: a convolution keeps only one of a CPU's cores busy, so clients are spread instead.
    few = isinstance(task.loss, OneModelAtATime) and len(group.cells) < len(there)
    mesh = sweep.client_mesh(there) if few else None
    cell = build.cell_of(config, task, chosen.clients, chosen.directions, mesh)
    used = there if few else there[: len(group.cells)]
    return chosen, used, sweep.vectorise(cell, len(group.cells), there, mesh, chosen.cells)


def _cells(leaf: jax.ShapeDtypeStruct, num_cells: int) -> jax.ShapeDtypeStruct:
    return jax.ShapeDtypeStruct((num_cells, *leaf.shape[1:]), leaf.dtype)


def _save(path: Path, done: int, states: Any, records: Records, histories: Histories, program: Program) -> None:
    states = program.trim(states)
    # Histories first: a run killed between the two resumes from the older checkpoint and cuts them to it.
    histories.save(states.server)
    checkpoint.save(path, Checkpoint(done, states, records))


def _timing(compile_seconds: float, run_seconds: float, rounds: int) -> dict[str, float]:
    return {"compile_seconds": compile_seconds, "run_seconds": run_seconds, "rounds": rounds}


def _memory(compiled: Any) -> int:
    analysis = compiled.memory_analysis()
    if analysis is None:
        return 0
    inputs_and_outputs = analysis.argument_size_in_bytes + analysis.output_size_in_bytes
    return inputs_and_outputs - analysis.alias_size_in_bytes + analysis.temp_size_in_bytes


def _median_loss(records: Records) -> float:
    losses = records["train_loss"][:, -1]
    return float(np.median(losses[np.isfinite(losses)])) if np.isfinite(losses).any() else math.nan


def _warn_of_empty_rounds(records: Records, progress: Progress) -> None:
    """Warns of cells in which nobody ever took part."""
    if "participants" in records:
        idle = (records["participants"].sum(axis=1) == 0) & (records["empty_rounds"].sum(axis=1) > 0)
        if idle.any():
            progress.warn(f"in {idle.sum()} of {idle.size} cells no client ever took part: see channel.gain_threshold")


def _warn_of_round_off(records: Records, config: Config, progress: Progress) -> bool:
    """Warns, and says so, where smoothing is so small that float32 cannot tell the losses apart."""
    shares = records["zero_differences"][:, -1]
    many = shares > ROUND_OFF_WARNING
    if many.any():
        progress.warn(
            f"in {many.sum()} of {many.size} cells, up to {shares.max():.0%} of the finite differences are "
            "exactly zero: round-off dominates; use a larger algorithm.smoothing "
            f"({config.algorithm.smoothing} unless swept)"
        )
    return bool(many.any())


def finished(records: Records, task: Task, config: Config) -> Records:
    """Adds what follows from the recorded number of participants: bytes, exactly, and the mean cohort."""
    nobody = np.zeros(records["train_loss"].shape, np.int32)
    participants = records.get("participants", nobody)
    heard = np.zeros_like(participants)
    heard[:, 1:] = config.eval_every - records["empty_rounds"][:, 1:] if "empty_rounds" in records else 0
    replayed, pulled = records.get("replayed_rounds", nobody), records.get("pulled_models", nobody)
    rounds = np.arange(records["train_loss"].shape[1]) * config.eval_every
    traffic: list[Any] = []
    for number, phase in enumerate(schedule.phases(config)):
        own = apply(config, {"algorithm.num_directions": phase.num_directions})
        played = (rounds > phase.first) & (rounds <= phase.end)
        # A participant may replay rounds of earlier phases, which cost what they cost there.
        of_phase = records.get(f"{PHASE_PREFIX}{number}", replayed)
        occurred = (participants * played, heard * played, of_phase, pulled * played)
        traffic.append([costs(own, task).over(*occurred) for costs in (build.costs_of, build.paper_costs_of)])
    wire, paper = (jax.tree.map(lambda *parts: sum(parts), *account) for account in zip(*traffic, strict=True))
    return {
        **{name: values for name, values in records.items() if not name.startswith(PHASE_PREFIX)},
        **wire._asdict(),
        "queries": queries.total(records, config),
        "uplink_bytes_paper": paper.uplink_bytes,
        "downlink_bytes_paper": paper.downlink_bytes,
        "mean_cohort_size": participants / config.eval_every,
    }
