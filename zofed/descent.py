"""One step of descent, and the steps that scalars and keys make: what server, clients and replay have in common."""

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import optax
from jax.extend.core import Literal

from zofed import rng
from zofed.base import Params, dimension, wide
from zofed.directions import Directions

__all__ = ["Model", "Rounded", "Rule", "apply", "combine", "descend"]


Rounded = Callable[[jax.Array], jax.Array]
"""See `zofed.rng.materialise_rounded`."""


class Model(NamedTuple):
    """A model and the state of the optimiser that moves it."""

    params: Params
    optimizer: optax.OptState


class Rule(NamedTuple):
    """What all who rebuild a model must agree on, besides keys, scalars and rates.

    Attributes:
        directions: their law.
        optimizer: an optax transformation without its own rate.
    """

    directions: Directions
    optimizer: optax.GradientTransformation


def descend(optimizer: optax.GradientTransformation, rate: Any, gradient: Params, model: Model) -> Model:
    """params - rate * optimizer(gradient), in the dtypes of params, with the same bits in every program.

    The optimiser has no rate of its own. The axis of size 1 is for those that divide by a number, as Adam's bias
    correction does: without any axis XLA multiplies by the number's reciprocal instead, which it does not in a vmapped
    sweep.
    """
    rate = jnp.asarray(rate)

    def step(gradient: Params, model: Model) -> Model:
        # Some optax transformations mix integer counts and floats, which strict promotion forbids.
        with jax.numpy_dtype_promotion("standard"):
            direction, optimizer_state = optimizer.update(gradient, model.optimizer, model.params)
        move = lambda x, step: x - (rate.astype(step.dtype) * step).astype(x.dtype)  # noqa: E731
        return Model(jax.tree.map(move, model.params, direction), optimizer_state)

    def stepped(rounded: Rounded, own: Model) -> Model:
        with_axis = jax.tree.map(lambda leaf: leaf[None], (gradient, own))
        return jax.tree.map(lambda leaf: leaf[0], _rounding_products(jax.vmap(step), rounded)(*with_axis))

    return rng.in_place_rounded(stepped, model)


def _rounding_products(function: Callable[..., Any], rounded: Rounded) -> Callable[..., Any]:
    """`function`, each of whose products is rounded before it is added to anything, inside of optimisers too."""

    def rounding(*arguments: Any) -> Any:
        closed, shapes = jax.make_jaxpr(function, return_shape=True)(*arguments)
        results = _evaluate(closed.jaxpr, closed.consts, jax.tree.leaves(arguments), rounded)
        return jax.tree.unflatten(jax.tree.structure(shapes), results)

    return rounding


def _evaluate(jaxpr: Any, constants: Sequence[Any], arguments: Sequence[Any], rounded: Rounded) -> list[Any]:
    values = dict(zip((*jaxpr.constvars, *jaxpr.invars), (*constants, *arguments), strict=True))
    for equation in jaxpr.eqns:
        name, params = equation.primitive.name, equation.params
        inputs = [variable.val if isinstance(variable, Literal) else values[variable] for variable in equation.invars]
        if name in ("jit", "pjit"):
            outputs = _evaluate(params["jaxpr"].jaxpr, params["jaxpr"].consts, inputs, rounded)
        else:
            outputs = equation.primitive.bind(*inputs, **equation.primitive.get_bind_params(params))
            outputs = outputs if equation.primitive.multiple_results else [outputs]
        if name in ("mul", "integer_pow", "square"):
            outputs = [rounded(output) for output in outputs]
        values.update(zip(equation.outvars, outputs, strict=True))
    return [variable.val if isinstance(variable, Literal) else values[variable] for variable in jaxpr.outvars]


def combine(
    directions: Directions,
    direction_key: Callable[[jax.Array], jax.Array],
    scalars: jax.Array,
    num_directions: jax.Array,
    like: Params,
) -> Params:
    """The gradient that scalars make: scale / num_directions * sum_p g_p z_p, each z_p drawn anew, one at a time.

    One order of additions and one box per addition, so that its bits are the same in every program. Entries of
    `scalars` beyond `num_directions` are zeros, and add nothing.
    """
    numbers = jnp.arange(scalars.shape[0], dtype=jnp.int32)
    scale = directions.scale(dimension(like))

    def add(total: Params, term: tuple[jax.Array, jax.Array]) -> tuple[Params, None]:
        number, scalar = term
        drawn = directions.sample(direction_key(number), number, like)

        def added(leaf: jax.Array, raw: jax.Array) -> jax.Array:
            def change(rounded: Rounded, own: jax.Array) -> jax.Array:
                # A product of scalars that holds the reciprocal: XLA would write one only outside of a vmapped sweep.
                share = jnp.float32(scale) * (1 / num_directions.astype(jnp.float32))
                weight = (scalar * drawn.factor) * share.astype(scalar.dtype)
                return own + rounded(weight.astype(raw.dtype) * raw)

            return rng.in_place_rounded(change, leaf)

        return jax.tree.map(added, total, drawn.raw), None

    zeros = jax.tree.map(lambda leaf: jnp.zeros(leaf.shape, wide(leaf.dtype)), like)
    return jax.lax.scan(add, zeros, (numbers, scalars))[0]


def apply(
    rule: Rule, key: jax.Array, scalars: jax.Array, num_directions: jax.Array, rate: jax.Array, model: Model
) -> Model:
    """A round's steps from its scalars: DeComFL Algorithm 3, line 12, and Algorithm 4, lines 4-9.

    Server, clients and replay all call this, and nothing else, to move a model: so they hold the same bits.

    Args:
        rule: the directions and the optimiser.
        key: of the round's direction stream, `zofed.rng.RoundKeys.direction`.
        scalars: [local_steps, directions], zero beyond `num_directions`.
        num_directions: int32, how many directions each step has; 0 leaves the model as it is.
        rate: float32, of this round.
        model: at the start of the round.
    """

    def step(model: Model, inputs: tuple[jax.Array, jax.Array]) -> tuple[Model, None]:
        number, own = inputs
        direction_key = rng.direction_keys(key, number)
        gradient = combine(rule.directions, direction_key, own, jnp.maximum(num_directions, 1), model.params)
        return descend(rule.optimizer, rate, gradient, model), None

    steps = jnp.arange(scalars.shape[0], dtype=jnp.int32)
    moved, _ = jax.lax.scan(step, model, (steps, scalars))
    return jax.tree.map(lambda new, old: jnp.where(num_directions > 0, new, old), moved, model)
