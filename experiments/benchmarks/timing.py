"""How benchmarks measure."""

import statistics
import time
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import jax

__all__ = ["Compiled", "compile_program", "interleaved_medians"]


class Compiled(NamedTuple):
    """A compiled program with its arguments bound.

    Attributes:
        call: runs it and waits for the result.
        compile_seconds: tracing, lowering and compiling, without a persistent cache.
        temporary_bytes: what it allocates besides arguments and results.
    """

    call: Callable[[], Any]
    compile_seconds: float
    temporary_bytes: int


def compile_program(function: Callable[..., Any], *arguments: Any) -> Compiled:
    """Compiles `function` for these arguments."""
    began = time.perf_counter()
    compiled = jax.jit(function).lower(*arguments).compile()
    seconds = time.perf_counter() - began
    analysis = compiled.memory_analysis()
    temporary = 0 if analysis is None else analysis.temp_size_in_bytes
    return Compiled(lambda: jax.block_until_ready(compiled(*arguments)), seconds, temporary)


def interleaved_medians(calls: Mapping[str, Callable[[], Any]], repeats: int) -> dict[str, float]:
    """Median seconds of each call. They take turns, so that a busy moment of the machine hits all alike."""
    seconds: dict[str, list[float]] = {name: [] for name in calls}
    for call in calls.values():
        call()
    for _ in range(repeats):
        for name, call in calls.items():
            began = time.perf_counter()
            call()
            seconds[name].append(time.perf_counter() - began)
    return {name: statistics.median(values) for name, values in seconds.items()}
