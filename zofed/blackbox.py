"""True black boxes: Python functions that JAX cannot see into, called from within compiled programs."""

import threading
import traceback
from collections.abc import Callable
from functools import partial
from typing import Any

import jax
import numpy as np
from jax.experimental.buffer_callback import buffer_callback

from zofed.base import LossFn
from zofed.sequential import in_one_batch

__all__ = ["BlackBox", "BlackBoxError", "blackbox"]


class BlackBoxError(RuntimeError):
    """A black box raised, or returned what it must not; says which, and after how many queries."""


class BlackBox:
    """A Python function of a batch of points, usable in any JAX program; made by `blackbox`.

    Calls are one at a time, also from several devices.

    Attributes:
        name: of the function, for messages.
        queries: points that it was asked for since it was made, evaluations of the task included.
        calls: how often it was called.
        nonfinite: answers that were not finite.
        failure: what ended it: after an exception it is not called again. None while all is well.
    """

    def __init__(self, function: Callable[..., Any], shape: tuple[int, ...], dtype: Any, name: str) -> None:
        self.name = name
        self.queries = 0
        self.calls = 0
        self.nonfinite = 0
        self.failure: BlackBoxError | None = None
        self._function = function
        self._result = jax.ShapeDtypeStruct(tuple(shape), jax.dtypes.canonicalize_dtype(dtype))
        self._lock = threading.Lock()

    def __call__(self, *points: Any) -> jax.Array:
        """The answers [n, *shape] at n points: pytrees of arrays with a leading axis n."""
        return jax.vmap(self._at)(*points)

    @property
    def loss(self) -> LossFn:
        """The black box as per-example losses: its points are pairs of the params and one example of the batch."""
        return in_one_batch(jax.vmap(self._at, (None, 0)))

    def _at(self, *point: Any) -> jax.Array:
        """One point. A map over it, and maps over that, reach the host as one batch."""
        leaves, structure = jax.tree.flatten(point)
        ask = partial(self._ask, structure, [np.ndim(leaf) for leaf in leaves])
        # "expand_dims": what a map does not touch comes with an axis of size 1, rather than copied.
        if jax.default_backend() != "cpu":
            return jax.pure_callback(ask, self._result, *leaves, vmap_method="expand_dims")
        # On a CPU, pure_callback hands over arrays that the very threads which wait for the answer must first copy:
        # with large arguments and several devices that never ends.
        return buffer_callback(partial(_write, ask), self._result, vmap_method="expand_dims")(*leaves)

    def _ask(self, structure: Any, ranks: list[int], *leaves: Any) -> np.ndarray:
        """Flattens all mapped axes to one, asks, and restores them."""
        arrays = [np.asarray(leaf) for leaf in leaves]
        own = [array.shape[array.ndim - rank :] for array, rank in zip(arrays, ranks, strict=True)]
        lead = np.broadcast_shapes(*(a.shape[: a.ndim - rank] for a, rank in zip(arrays, ranks, strict=True)))
        # Copies: a function may keep its arguments, and the program will reuse their memory.
        flat = [
            np.broadcast_to(a, lead + shape).reshape(-1, *shape).copy() for a, shape in zip(arrays, own, strict=True)
        ]
        with self._lock:
            if self.failure is not None:
                raise self.failure
            answers = self._answers(jax.tree.unflatten(structure, flat), int(np.prod(lead)))
        return answers.reshape(lead + self._result.shape)

    def _answers(self, points: Any, count: int) -> np.ndarray:
        self.calls += 1
        self.queries += count
        try:
            answers = np.asarray(self._function(*points), self._result.dtype)
        except Exception as error:
            detail = "".join(traceback.format_exception_only(error)).strip()
            self.failure = BlackBoxError(
                f"black box {self.name} raised at call {self.calls}, queries {self.queries - count + 1} to "
                f"{self.queries}: {detail}"
            )
            raise self.failure from error
        wanted = (count, *self._result.shape)
        if answers.shape != wanted:
            self.failure = BlackBoxError(
                f"black box {self.name} returned the shape {answers.shape} for {count} points; allowed: {wanted}"
            )
            raise self.failure
        self.nonfinite += int(np.count_nonzero(~np.isfinite(answers)))
        return answers


def _write(ask: Callable[..., np.ndarray], context: Any, answers: Any, *leaves: Any) -> None:
    del context
    np.asarray(answers)[...] = ask(*leaves)


def blackbox(
    function: Callable[..., Any], shape: tuple[int, ...] = (), dtype: Any = np.float32, name: str | None = None
) -> BlackBox:
    """A Python function of a batch of points, such as a scikit-learn model or an ONNX session, for use inside JAX.

    Whatever maps over it (examples, directions, clients, cells) makes one batch. Its own `loss`, and losses around it
    that are marked by `zofed.sequential.in_one_batch`, are asked once in a local step, for the base point and all
    directions, unless directions are held in chunks or are each example's own. An exception ends the program with its
    message; an answer that is not finite is passed on: the client's result is then left out and counted, as any other
    that is not finite.

    The function gets numpy arrays and may do what it likes but call JAX, whose CPU threads may be waiting for it. Its
    answers must depend on its arguments only: what is asked twice may be answered once.

    A classifier in the ONNX runtime, for instance, with its loss around it:

        session = onnxruntime.InferenceSession("classifier.onnx")
        scores = blackbox(lambda image: session.run(None, {"image": image})[0], shape=(10,))
        task = zofed.attack.attack(scores, samples, partition, test)
        loss = in_one_batch(task.loss)

    Args:
        function: called with numpy arrays (pytrees like the arguments) with a leading axis n; returns [n, *shape].
        shape: of one answer.
        dtype: of the answers.
        name: for messages; default the function's own.

    Example:
        >>> import jax.numpy as jnp
        >>> box = blackbox(lambda x, target: np.square(x - target).sum(axis=1))
        >>> box.loss(jnp.zeros(2), jnp.array([[1.0, 0.0], [3.0, 4.0]]))
        Array([ 1., 25.], dtype=float32)
        >>> box.queries, box.calls
        (2, 1)
        >>> gradient = jax.jit(jax.vmap(box.loss, (0, None)))(jnp.ones((3, 2)), jnp.zeros((2, 2)))
        >>> gradient.shape, box.queries, box.calls
        ((3, 2), 8, 2)
    """
    return BlackBox(function, shape, dtype, name or getattr(function, "__name__", type(function).__name__))
