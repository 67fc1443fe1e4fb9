"""Zeroth-order gradient estimators: function values in, scalars and the gradient they make out.

    gradient = scale(dim) / num_directions * sum_p  g_p * z_p

`g_p` is a raw finite difference along z_p; scale and 1 / num_directions are applied here and nowhere else.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from zofed import checks, rng
from zofed.base import LossFn, Params, dimension, wide
from zofed.directions import Direction, Directions
from zofed.sequential import InOneBatch, OneModelAtATime, loop_under_vmap

__all__ = ["DIFFERENCES", "Estimate", "Estimator", "central", "estimator", "forward", "jvp", "signed"]

SMALL = 2**10
"""Entries of a leaf up to which it shares a box when it is moved: alone, it might get other bits in a sweep."""

Losses = Callable[[Params], jax.Array]
"""Params -> the losses of one batch, one per example, in float32 or wider."""


class Estimate(NamedTuple):
    """What an estimator returns.

    Attributes:
        scalars: raw finite differences, one per direction, in the order of the directions.
        gradient: pytree like params, float32 or wider.
        loss: mean loss of the batch at the points that were queried.
    """

    scalars: jax.Array
    gradient: Params
    loss: jax.Array


Estimator = Callable[[Callable[[jax.Array], jax.Array], Params, Any], Estimate]
"""`(direction_key, params, batch) -> Estimate`; `direction_key(p)` is the key of direction p."""


def move(params: Params, direction: Direction, length: jax.Array | float) -> Params:
    """params + length * direction, in the dtypes of params.

    Small leaves share a box (`rng.materialise`); a large one has its own, so that a program may move it just before it
    is used, in the storage of the direction if that ends there.
    """
    step = length * direction.factor
    leaves, structure = jax.tree.flatten(params)
    pairs = list(zip(leaves, structure.flatten_up_to(direction.raw), strict=True))

    def moved(leaf: jax.Array, raw: jax.Array) -> jax.Array:
        return leaf + (step.astype(raw.dtype) * raw).astype(leaf.dtype)

    def alone(leaf: jax.Array, raw: jax.Array) -> jax.Array:
        if raw.dtype != leaf.dtype:
            return rng.materialise(lambda: moved(leaf, raw))
        return rng.in_place(lambda own: moved(leaf, own), raw)

    together = iter(rng.materialise(lambda: [moved(*pair) for pair in pairs if pair[0].size <= SMALL]))
    results = [next(together) if pair[0].size <= SMALL else alone(*pair) for pair in pairs]
    return jax.tree.unflatten(structure, results)


def _over(value: jax.Array, divisor: jax.Array | float) -> jax.Array:
    """value / divisor, as the product that XLA makes of it anyway where one number divides many, but not in a sweep."""
    return value * (1 / jnp.asarray(divisor)).astype(value.dtype)


class Difference(NamedTuple):
    """How a scalar is made from function values.

    Attributes:
        needs_base: whether `scalar` uses the losses at `params`, which all directions share.
        scalar: `(losses, params, base, direction, smoothing) -> (scalar, mean loss)`.
        differentiates: whether `scalar` needs a derivative of `losses`, which a black box has not.
    """

    needs_base: bool
    scalar: Callable[..., tuple[jax.Array, jax.Array]]
    differentiates: bool = False


def forward() -> Difference:
    """g = (F(x + mu z) - F(x)) / mu, averaged over the batch: FedZO (II-B), DeComFL (3). num_directions + 1 queries."""

    def scalar(losses: Losses, params: Params, base: jax.Array, direction: Direction, smoothing: Any) -> Any:
        # Subtracting example by example keeps the round-off of the mean out of the small difference.
        difference = losses(move(params, direction, smoothing)) - base
        return _over(jnp.mean(difference), smoothing), jnp.mean(base)

    return Difference(True, scalar)


def central() -> Difference:
    """g = (F(x + mu z) - F(x - mu z)) / (2 mu): bias O(mu^2) rather than O(mu), 2 num_directions queries."""

    def scalar(losses: Losses, params: Params, base: jax.Array, direction: Direction, smoothing: Any) -> Any:
        del base
        above = losses(move(params, direction, smoothing))
        below = losses(move(params, direction, -smoothing))
        return _over(jnp.mean(above - below), 2 * smoothing), jnp.mean(above + below) / 2

    return Difference(False, scalar)


def jvp() -> Difference:
    """g = <grad F(x), z> by forward-mode differentiation: gradient projection, DeComFL Algorithm 5. No smoothing."""

    def scalar(losses: Losses, params: Params, base: jax.Array, direction: Direction, smoothing: Any) -> Any:
        del base, smoothing
        tangent = jax.tree.map(
            lambda leaf, raw: (direction.factor.astype(raw.dtype) * raw).astype(leaf.dtype),
            params,
            direction.raw,
        )
        value, slope = jax.jvp(lambda x: jnp.mean(losses(x)), (params,), (tangent,))
        return slope, value

    return Difference(False, scalar, differentiates=True)


def signed(difference: Difference) -> Difference:
    """The sign of another difference, 1 or -1 (1 for 0): scalars of one bit, ZO-signSGD along each direction.

    With `zofed.aggregation.majority()` one bit per scalar travels in both directions: FeedSign (arXiv 2501.17610).
    """

    def scalar(*arguments: Any) -> tuple[jax.Array, jax.Array]:
        value, loss = difference.scalar(*arguments)
        # A comparison would make a sign of nan, too; this keeps it, and the client's result is left out.
        return jnp.where(value == 0, jnp.ones_like(value), jnp.sign(value)), loss

    return Difference(difference.needs_base, scalar, difference.differentiates)


DIFFERENCES: dict[str, Callable[[], Difference]] = {"forward": forward, "central": central, "jvp": jvp}
"""Differences by the name that configs use."""


def estimator(
    loss_fn: LossFn,
    directions: Directions,
    num_directions: int,
    smoothing: float | jax.Array,
    difference: Difference | None = None,
    per_sample: bool = False,
    chunk: int | None = None,
) -> Estimator:
    """The mini-batch estimator of FedZO, (II-B), and of DeComFL with P > 1 (Algorithm 4).

    Args:
        loss_fn: per-example losses; `zofed.sequential.one_model_at_a_time(loss)` where a convolution should not be
            mapped over models, `in_one_batch(loss)` where a step should be one call.
        directions: their law, for instance `zofed.directions.sphere()`.
        num_directions: b2 or P.
        smoothing: mu; may be traced.
        difference: `forward()` (default), `central()` or `jvp()`.
        per_sample: each example of a batch has num_directions directions of its own, number
            `example * num_directions + p`. Their variance then falls with the batch size too; with shared directions
            (the papers' algorithms) only data noise does.
        chunk: how many directions are held at once; None holds all, 1 keeps memory at O(dim).

    Returns:
        An `Estimator`.

    Raises:
        ValueError: a setting is out of range.

    Example:
        >>> from zofed import rng
        >>> from zofed.directions import coordinate
        >>> loss = lambda x, batch: 0.5 * jnp.sum(x**2) * jnp.ones(1)
        >>> estimate = estimator(loss, coordinate(), num_directions=3, smoothing=1e-2, difference=central())
        >>> result = estimate(lambda p: rng.seed_key(p), jnp.array([1.0, -2.0, 0.5]), None)
        >>> jnp.round(result.gradient, 3)
        Array([ 1. , -2. ,  0.5], dtype=float32)
    """
    num_directions = checks.count("num_directions", num_directions)
    checks.positive("smoothing", smoothing)
    chunk = None if chunk is None else checks.count("direction chunk", chunk)
    difference = forward() if difference is None else difference
    if isinstance(loss_fn, InOneBatch) and difference.differentiates:
        raise ValueError("difference=jvp of a loss that is asked in one batch, as black boxes are; allowed: others")
    evaluated = loop_under_vmap if isinstance(loss_fn, OneModelAtATime) else lambda function: function

    def losses_of(batch: Any) -> Losses:
        def losses(params: Params) -> jax.Array:
            values = checks.losses(loss_fn(params, batch), batch)
            return values.astype(wide(values.dtype))

        return losses

    @evaluated
    def losses_at(params: Params, batch: Any) -> jax.Array:
        return losses_of(batch)(params)

    @evaluated
    def scalar_along(params: Params, batch: Any, base: Any, direction: Direction, smoothing: jax.Array) -> Any:
        return difference.scalar(losses_of(batch), params, base, direction, smoothing)

    def estimate(direction_key: Callable[[jax.Array], jax.Array], params: Params, batch: Any) -> Estimate:
        scale = directions.scale(dimension(params))
        total = num_directions * (jax.tree.leaves(batch)[0].shape[0] if per_sample else 1)
        together = isinstance(loss_fn, InOneBatch) and not per_sample and (chunk or total) >= total
        base = losses_at(params, batch) if difference.needs_base and not together else None

        def all_at_once(numbers: jax.Array) -> tuple[jax.Array, jax.Array, Direction]:
            drawn = jax.vmap(lambda number: directions.sample(direction_key(number), number, params))(numbers)
            return *_measure_together(difference, losses_of(batch), params, drawn, jnp.asarray(smoothing)), drawn

        def one(number: jax.Array) -> tuple[jax.Array, jax.Array, Direction]:
            direction = directions.sample(direction_key(number), number, params)
            own_batch, own_base = batch, base
            if per_sample:
                example = jax.lax.div(number, jnp.int32(num_directions))
                own_batch = jax.tree.map(lambda leaf: leaf[example][None], batch)
                own_base = None if base is None else base[example][None]
            scalar, loss = scalar_along(params, own_batch, own_base, direction, jnp.asarray(smoothing))
            return scalar, loss, direction

        def accumulate(gradient: Params, numbers: jax.Array) -> tuple[Params, tuple[jax.Array, jax.Array]]:
            scalars, losses, drawn = all_at_once(numbers) if together else jax.vmap(one)(numbers)
            # Scale and 1 / total join the scalars here: XLA would regroup a second factor of the sum with the
            # learning rate, and differently so in a vmapped sweep.
            weights = scalars * drawn.factor * jnp.float32(scale / total)
            add = lambda sum_, raw: sum_ + jnp.tensordot(weights.astype(raw.dtype), raw, axes=1)  # noqa: E731
            return jax.tree.map(add, gradient, drawn.raw), (scalars, losses)

        zeros = jax.tree.map(lambda leaf: jnp.zeros(leaf.shape, wide(leaf.dtype)), params)
        gradient, (scalars, losses) = _scan_chunks(accumulate, zeros, total, chunk)
        return Estimate(scalars, gradient, jnp.mean(losses))

    return estimate


def _measure_together(
    difference: Difference, losses: Losses, params: Params, drawn: Direction, smoothing: jax.Array
) -> tuple[jax.Array, jax.Array]:
    """The scalars and mean losses of all directions from one map of `losses` over every point they need."""
    shape = jax.eval_shape(losses, params)
    unknown = jnp.zeros(shape.shape, shape.dtype)

    def points_of(direction: Direction) -> list[Params]:
        """What the difference asks for, without an answer."""
        points: list[Params] = []
        difference.scalar(lambda x: (points.append(x), unknown)[1], params, unknown, direction, smoothing)
        return points

    asked = [*jax.vmap(points_of)(drawn), jax.tree.map(lambda leaf: leaf[None], params)]
    asked = asked if difference.needs_base else asked[:-1]
    values = jax.vmap(losses)(jax.tree.map(lambda *leaves: jnp.concatenate(leaves), *asked))
    base = values[-1] if difference.needs_base else None
    own = values[:-1] if difference.needs_base else values
    own = own.reshape(-1, drawn.factor.shape[0], *shape.shape)

    def scalar_of(direction: Direction, own: jax.Array) -> tuple[jax.Array, jax.Array]:
        answers = iter(own)
        return difference.scalar(lambda _: next(answers), params, base, direction, smoothing)

    return jax.vmap(scalar_of, (0, 1))(drawn, own)


def _scan_chunks(step: Callable[..., Any], carry: Any, total: int, chunk: int | None) -> tuple[Any, Any]:
    """`lax.scan` of `step(carry, numbers)` over 0 .. total - 1 in chunks; the last one may be shorter."""
    chunk = min(chunk or total, total)
    num_full, rest = divmod(total, chunk)
    numbers = jnp.arange(total, dtype=jnp.int32)
    if num_full == 1 and rest == 0:
        return step(carry, numbers)
    carry, outputs = jax.lax.scan(step, carry, numbers[: num_full * chunk].reshape(num_full, chunk))
    outputs = jax.tree.map(lambda leaf: leaf.reshape(-1), outputs)
    if rest:
        carry, last = step(carry, numbers[num_full * chunk :])
        outputs = jax.tree.map(lambda head, tail: jnp.concatenate([head, tail]), outputs, last)
    return carry, outputs
