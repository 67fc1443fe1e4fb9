"""Codecs: compressions of what a client sends, in front of any link. With or without memory of what was left out.

`compressed(link, codec, ...)` is an aggregation whose clients send what the codecs leave of their payload, decoded: the
server averages what it would read. The simulation moves dense arrays; what travels is counted by `zofed.ledger`. A new
codec is a new `Codec`.
"""

import math
from collections.abc import Callable
from fractions import Fraction
from typing import Any, NamedTuple

import jax
import jax.core
import jax.numpy as jnp
import numpy as np

from zofed import checks, rng
from zofed.aggregation import Aggregation, no_memory, send_as_is
from zofed.base import Client, dimension, wide
from zofed.descent import Rounded
from zofed.rng import RoundKeys

__all__ = ["Codec", "compressed", "num_kept", "quantize", "top_k"]

MAX_BITS = 16
"""Of a quantised number. Levels and their round-off stay far apart in float32."""


class Codec(NamedTuple):
    """A compression without memory.

    Attributes:
        encode: `(key, values, kept) -> (values, kept)`: the values that the server decodes, float32 or wider, and which
            of them are sent (bool); those that are not are 0. `key` is the codec's own, of the round and the client.
        not_over_the_air: why a link that adds up analog signals cannot carry it; empty if it can.
        leaves_out: the setting by which it does not send some entries; empty if it sends all.
    """

    encode: Callable[[jax.Array, Any, Any], tuple[Any, Any]]
    not_over_the_air: str = ""
    leaves_out: str = ""


def compressed(link: Aggregation, *codecs: Codec, error_feedback: bool = False) -> Aggregation:
    """`link` with its messages compressed by the codecs in turn, the first one first.

    With error feedback (Stich et al., NeurIPS 2018) a client adds what was left out so far to its payload, and keeps
    what is left out now: sent + kept = payload + kept before. This holds exactly for `top_k`, which sends an entry or
    keeps it, and up to a rounding of each entry for `quantize`. A client that is not heard keeps what it had.

    Args:
        link: without a codec of its own, for instance `zofed.aggregation.mean()`.
        codecs: one or more; `top_k` before `quantize` quantises the kept entries only.
        error_feedback: whether a client keeps what was left out: an array of the payload's size, float32 or wider.

    Raises:
        ValueError: there is no codec, the link has one, or a codec has no meaning over it.

    Example:
        >>> from zofed.aggregation import mean
        >>> aggregation = compressed(mean(), top_k(0.5))
        >>> client = Client(jnp.int32(0), (), jnp.int32(0), jnp.int32(1), 1)
        >>> keys = rng.round_keys(rng.seed_key(0), 0)
        >>> aggregation.encode(keys, client, jnp.array([1.0, -4.0, 3.0, 2.0]), ())[0]
        Array([ 0., -4.,  3.,  0.], dtype=float32)
    """
    if not codecs:
        raise ValueError("compressed without a codec; allowed: at least one, such as zofed.codecs.quantize()")
    if link.encode is not send_as_is:
        raise ValueError("compressed over a link that compresses already; give all codecs at once")
    for codec in codecs:
        if link.needs_gain and codec.not_over_the_air:
            raise ValueError(f"aggregation.name='aircomp' with {codec.not_over_the_air}")
        if link.reads_zeros and codec.leaves_out:
            raise ValueError(
                f"aggregation.name='majority' with {codec.leaves_out}: an entry that nobody sends is a tie, which it "
                "reads as 1; allowed: aggregation.fraction=1"
            )

    def init(payload: Any) -> Any:
        return jax.tree.map(lambda leaf: jnp.zeros(leaf.shape, wide(leaf.dtype)), payload)

    def encode(keys: RoundKeys, client: Client, payload: Any, memory: Any) -> tuple[Any, Any]:
        values = jax.tree.map(lambda leaf: leaf.astype(wide(leaf.dtype)), payload)
        if error_feedback:
            values = jax.tree.map(jnp.add, values, memory)
        sent, kept = values, jax.tree.map(lambda leaf: jnp.ones(leaf.shape, bool), values)
        for place, codec in enumerate(codecs):
            sent, kept = codec.encode(rng.fold(keys.codec, client.id, place), sent, kept)
        message = jax.tree.map(lambda leaf, like: leaf.astype(like.dtype), sent, payload)
        if error_feedback:
            memory = jax.tree.map(lambda own, sent_: own - sent_.astype(own.dtype), values, message)
        return message, memory

    return link._replace(init=init if error_feedback else no_memory, encode=encode)


def quantize(bits: int = 8, stochastic: bool = True) -> Codec:
    """Each leaf on a grid of 2^bits levels from its least to its greatest entry: FedCOM (Haddadpour et al., 2021).

    Stochastic rounding is unbiased, as FedCOM's theory wants: an entry goes to one of its two neighbours on the grid,
    to the upper one with the probability of its distance from the lower one. Deterministic rounding, which is what the
    authors' code does, goes to the nearest. The error is at most one step of the grid, or half of one, and what lies
    on the grid stays.

    Args:
        bits: of an entry, 1 to 16. A leaf comes with its least entry and the step, in float32.
        stochastic: whether rounding is random.

    Raises:
        ValueError: bits is out of range.

    Example:
        >>> quantize(bits=1, stochastic=False).encode(rng.seed_key(0), jnp.array([-1.0, 0.9, 3.0]), jnp.ones(3, bool))[
        ...     0
        ... ]
        Array([-1., -1.,  3.], dtype=float32)
    """
    levels = 2 ** checks.count("aggregation.bits", bits, at_most=MAX_BITS) - 1

    def encode(key: jax.Array, values: Any, kept: Any) -> tuple[Any, Any]:
        def on_grids(rounded: Rounded) -> Any:
            def on_grid(leaf_key: jax.Array, leaf: jax.Array, sent: jax.Array) -> jax.Array:
                least = jnp.min(leaf, where=sent, initial=jnp.inf)
                width = jnp.max(leaf, where=sent, initial=-jnp.inf) - least
                # Reciprocals are written out: XLA would replace a division by one only outside of a vmapped sweep.
                per_step = levels / width
                per_step = jnp.where(jnp.isfinite(per_step), per_step, 0.0)
                place = rounded((leaf - least) * per_step)
                lower = jnp.floor(place)
                share = rng.uniform(leaf_key, leaf.shape).astype(leaf.dtype) if stochastic else 0.5
                level = jnp.minimum(lower + (place - lower > share).astype(leaf.dtype), levels)
                step = width * np.asarray(1 / levels, leaf.dtype)
                return jnp.where(sent, least + rounded(level * step), 0.0)

            return jax.tree.map(on_grid, rng.leaf_keys(key, values), values, kept)

        return rng.materialise_rounded(on_grids), kept

    return Codec(
        encode,
        f"aggregation.bits={bits}: clients add up analog signals, which have no levels; allowed: aggregation.bits=32",
    )


def num_kept(fraction: float, dim: int) -> int:
    """How many of `dim` entries `top_k(fraction)` sends: fraction * dim, exact in decimals and rounded up.

    Example:
        >>> num_kept(0.1, 1_206_590), num_kept(0.01, 28_938), num_kept(1e-9, 10)
        (120659, 290, 1)
    """
    return math.ceil(Fraction(str(fraction)) * dim)


def top_k(fraction: float) -> Codec:
    """The entries of largest magnitude, `num_kept(fraction, dim)` of all leaves together; the others are not sent.

    Of equal magnitudes the first ones are sent, in the order of the leaves. DeComFL compares with FedAvg and 10%, 5%
    and 1%. Over the air the clients' entries have different places, so that it saves no symbols, but power: what is
    kept is sent with more of it (Amiri and Gunduz, IEEE TSP 2020, sparsify so, with error feedback).

    Args:
        fraction: above 0, at most 1; sets a shape, so it cannot be traced.

    Raises:
        ValueError: fraction is out of range, or traced.
    """
    if isinstance(fraction, jax.core.Tracer):
        raise ValueError("aggregation.fraction is traced; it sets a count: give a Python float, and sweep it by groups")
    checks.positive("aggregation.fraction", fraction)
    if fraction > 1:
        raise ValueError(f"aggregation.fraction={fraction}; allowed: above 0, at most 1")

    def encode(key: jax.Array, values: Any, kept: Any) -> tuple[Any, Any]:
        del key
        leaves, structure = jax.tree.flatten(values)
        dim = dimension(values)
        # What is not a number counts as the largest: it is sent, so that it is seen, rather than kept.
        magnitudes = jnp.concatenate([jnp.where(jnp.isnan(leaf), jnp.inf, jnp.abs(leaf)).ravel() for leaf in leaves])
        _, places = jax.lax.top_k(magnitudes, num_kept(fraction, dim))
        largest = jnp.zeros(dim, bool).at[places].set(True, unique_indices=True)
        ends = np.cumsum([leaf.size for leaf in leaves])[:-1]
        parts = [part.reshape(leaf.shape) for part, leaf in zip(jnp.split(largest, ends), leaves, strict=True)]
        kept = jax.tree.map(jnp.logical_and, kept, jax.tree.unflatten(structure, parts))
        return jax.tree.map(lambda leaf, own: jnp.where(own, leaf, 0.0), values, kept), kept

    return Codec(encode, leaves_out=f"aggregation.fraction={fraction}" if fraction < 1 else "")
