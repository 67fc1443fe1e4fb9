"""Losses and functions of which a vmap runs as a loop, in the shapes of a single call."""

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
from jax.custom_batching import custom_vmap

from zofed.base import LossFn, Params

__all__ = ["InOneBatch", "OneModelAtATime", "in_one_batch", "loop_under_vmap", "one_model_at_a_time"]


class OneModelAtATime(NamedTuple):
    """A loss that says how estimators should map it: see `one_model_at_a_time`."""

    loss_fn: LossFn

    def __call__(self, params: Params, batch: Any) -> jax.Array:
        return self.loss_fn(params, batch)


def one_model_at_a_time(loss_fn: LossFn) -> LossFn:
    """`loss_fn`, whose values an estimator takes of one model after another, where a map over clients or directions
    has several; their directions are still drawn together, once.

    For convolutions on a CPU. Any other caller, and any derivative, sees `loss_fn` itself. A single model's losses are
    then the same bits, whatever the chunk of clients.

    Args:
        loss_fn: per-example losses, which close over nothing that a vmap maps.
    """
    return OneModelAtATime(loss_fn)


class InOneBatch(NamedTuple):
    """A loss that says how estimators should ask for it: see `in_one_batch`."""

    loss_fn: LossFn

    def __call__(self, params: Params, batch: Any) -> jax.Array:
        return self.loss_fn(params, batch)


def in_one_batch(loss_fn: LossFn) -> LossFn:
    """`loss_fn`, which an estimator asks for a step's base point and all its directions in one map over models.

    For losses whose calls are dear whatever they ask for, such as `zofed.blackbox`es: a step is one call.

    Args:
        loss_fn: per-example losses.
    """
    return InOneBatch(loss_fn)


def loop_under_vmap(function: Callable[..., Any]) -> Callable[..., Any]:
    """`function`, of which a vmap runs as a loop over the mapped arguments; the others are shared, not copied.

    A convolution whose kernel is vmapped is a grouped one, which XLA on CPU runs several times slower than one
    convolution after another; and a single model's activations stay in the cache. The result cannot be differentiated,
    but what `function` does inside can be a derivative. `function` must not close over what a vmap maps.

    Args:
        function: of positional pytrees of arrays.

    Example:
        >>> import jax.numpy as jnp
        >>> double = loop_under_vmap(lambda x, y: 2.0 * x + y)
        >>> jax.vmap(double, (0, None))(jnp.arange(3.0), 1.0)
        Array([1., 3., 5.], dtype=float32)
    """
    looping = custom_vmap(function)

    @looping.def_vmap
    def loop(size: int, mapped: Any, *arguments: Any) -> tuple[Any, Any]:
        del size
        leaves, structure = jax.tree.flatten(list(arguments))
        flags = jax.tree.leaves(mapped)
        assert len(leaves) == len(flags)
        if not any(flags):
            result = function(*arguments)
            return result, jax.tree.map(lambda _: False, result)

        def call(own: list[Any]) -> Any:
            remaining = iter(own)
            chosen = [next(remaining) if flag else leaf for leaf, flag in zip(leaves, flags, strict=True)]
            # Through `looping` again: a vmap around this one is a loop, too.
            return looping(*jax.tree.unflatten(structure, chosen))

        result = jax.lax.map(call, [leaf for leaf, flag in zip(leaves, flags, strict=True) if flag])
        return result, jax.tree.map(lambda _: True, result)

    return looping
