"""Random streams: keys that are a protocol, and the draws of `jax.random` bit for bit but faster on CPU.

A key depends on (seed; round, stream; step, direction, client; leaf) and on nothing else, so that a draw is the same
in any chunk, on any device, in any cell of a sweep, at the client and at the server. One rule makes every key:

    fold(key, low, high) = threefry(key, (high, low)),

of which `jax.random.fold_in(key, low)` is the case high = 0. A key is folded further or drawn from, never both.
"""

import enum
import math
import zlib
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

__all__ = [
    "RoundKeys",
    "Stream",
    "bits",
    "direction_keys",
    "fold",
    "in_place",
    "in_place_rounded",
    "init_key",
    "leaf_keys",
    "materialise",
    "materialise_rounded",
    "normal",
    "rademacher",
    "round_keys",
    "seed_key",
    "stored_normal",
    "threefry2x32",
    "uniform",
]

_ROTATIONS = ((13, 15, 26, 6), (17, 29, 16, 24))
_PARITY = np.uint32(0x1BD11BDA)

BLOCK = 2**14
"""Entries that a large stored draw makes at once on a CPU: they stay in the cache of a core."""


def threefry2x32(key: tuple[jax.Array, jax.Array], counter: tuple[jax.Array, jax.Array]) -> tuple[jax.Array, jax.Array]:
    """Threefry-2x32 with its 20 rounds written out, so that XLA fuses them into one loop over registers.

    Salmon et al., "Parallel random numbers: as easy as 1, 2, 3", SC 2011. JAX's own CPU lowering loops over arrays in
    memory and is several times slower; the bits are the same.

    Args:
        key: two uint32 words.
        counter: two uint32 arrays of one shape.

    Returns:
        Two uint32 arrays of the counter's shape.
    """
    schedule = (key[0], key[1], key[0] ^ key[1] ^ _PARITY)
    x0, x1 = counter[0] + schedule[0], counter[1] + schedule[1]
    for block in range(5):
        for rotation in _ROTATIONS[block % 2]:
            x0 = x0 + x1
            x1 = ((x1 << np.uint32(rotation)) | (x1 >> np.uint32(32 - rotation))) ^ x0
        x0 = x0 + schedule[(block + 1) % 3]
        x1 = x1 + schedule[(block + 2) % 3] + np.uint32(block + 1)
    return x0, x1


def seed_key(seed: int | jax.Array) -> jax.Array:
    """The key of a run: `jax.random.key(seed)` with threefry, whatever JAX's default generator is.

    Raises:
        ValueError: the seed is not in [0, 2^32): JAX would take it modulo 2^32.

    Example:
        >>> jax.random.key_data(seed_key(7))
        Array([0, 7], dtype=uint32)
    """
    if isinstance(seed, int) and not 0 <= seed < 2**32:
        raise ValueError(f"seed={seed}; allowed: an integer from 0 to {2**32 - 1}")
    return jax.random.key(seed, impl="threefry2x32")


def fold(key: jax.Array, low: int | jax.Array, high: int | jax.Array = 0) -> jax.Array:
    """The child of `key` numbered (high, low), both in [0, 2^32): a bijection for a given key.

    Example:
        >>> key = seed_key(0)
        >>> bool(fold(key, 3) == jax.random.fold_in(key, 3))
        True
    """
    words = jax.random.key_data(key)
    high, low = jnp.broadcast_arrays(jnp.asarray(high, jnp.uint32), jnp.asarray(low, jnp.uint32))
    folded = threefry2x32((words[..., 0], words[..., 1]), (high, low))
    return jax.random.wrap_key_data(jnp.stack(folded, axis=-1), impl="threefry2x32")


class Stream(enum.IntEnum):
    """The independent streams of a round. Numbered from 1: number 0 is what `jax.random.fold_in` makes."""

    INIT = 1
    DATA = 2
    COHORT = 3
    DIRECTION = 4
    CHANNEL = 5
    CODEC = 6
    EVAL = 7


class RoundKeys(NamedTuple):
    """The round's number and one key per stream. Children: `fold(keys.data, step, client_id)` and the like.

    `seed` is the run's own key, a parent only.
    """

    round: jax.Array
    seed: jax.Array
    data: jax.Array
    cohort: jax.Array
    direction: jax.Array
    channel: jax.Array
    codec: jax.Array
    eval: jax.Array


def round_keys(seed_key: jax.Array, round: int | jax.Array) -> RoundKeys:
    """The keys of one round of a run.

    Raises:
        ValueError: the key is not one of threefry, such as `seed_key` makes.

    Example:
        >>> keys = round_keys(seed_key(0), 5)
        >>> bool(keys.data == fold(seed_key(0), 5, Stream.DATA))
        True
    """
    if jax.random.key_data(seed_key).shape[-1:] != (2,):
        raise ValueError(
            f"key of {jax.random.key_impl(seed_key)}; allowed: a threefry key, such as zofed.rng.seed_key(0)"
        )
    streams = (Stream.DATA, Stream.COHORT, Stream.DIRECTION, Stream.CHANNEL, Stream.CODEC, Stream.EVAL)
    keys = (fold(seed_key, round, stream) for stream in streams)
    return RoundKeys(jnp.asarray(round, jnp.int32), seed_key, *keys)


def direction_keys(
    key: jax.Array, step: int | jax.Array, client_id: int | jax.Array = 0
) -> Callable[[int | jax.Array], jax.Array]:
    """The keys of a local step's directions: number -> key.

    Args:
        key: of the round's direction stream, `RoundKeys.direction`.
        step: number of the local step.
        client_id: 0 for directions that all clients share.

    Example:
        >>> keys = round_keys(seed_key(0), 5)
        >>> bool(direction_keys(keys.direction, 2)(3) == fold(fold(keys.direction, 2), 3))
        True
    """
    parent = fold(key, step, client_id)
    return lambda number: fold(parent, number)


def init_key(seed_key: jax.Array) -> jax.Array:
    """The key of a run's initial model."""
    return fold(seed_key, 0, Stream.INIT)


def leaf_keys(key: jax.Array, like: Any) -> Any:
    """One key per leaf of `like`, from a fixed hash (CRC-32) of the leaf's path: adding a leaf moves no other's draw.

    Raises:
        ValueError: two paths have one hash.
    """
    paths = [path for path, _ in jax.tree_util.tree_flatten_with_path(like)[0]]
    hashes = [zlib.crc32(jax.tree_util.keystr(path).encode()) for path in paths]
    if len(set(hashes)) < len(hashes):
        raise ValueError(
            f"two parameter paths among {[jax.tree_util.keystr(p) for p in paths]} share a hash; rename one"
        )
    return jax.tree.unflatten(jax.tree.structure(like), [fold(key, leaf_hash, 1) for leaf_hash in hashes])


def _use_jax_random() -> bool:
    """Whether `jax.random` must draw: its bits are another function where partitionable threefry is off."""
    return not jax.config.jax_threefry_partitionable  # pyright: ignore[reportAttributeAccessIssue]


def bits(key: jax.Array, shape: tuple[int, ...]) -> jax.Array:
    """uint32 random bits, equal to `jax.random.bits(key, shape)`."""
    size = math.prod(shape)
    if _use_jax_random() or size == 0:
        return jax.random.bits(key, shape)
    if size > 2**32:
        raise ValueError(f"shape {shape} has {size} entries; a draw has at most 2^32: draw the leaf in slices")
    return _bits_from(key, np.uint32(0), size).reshape(shape)


def _bits_from(key: jax.Array, start: Any, size: int) -> jax.Array:
    """The bits numbered start .. start + size - 1 of a draw: `jax.random` counts its entries, high word and low."""
    words = jax.random.key_data(key)
    counter = jnp.zeros(size, jnp.uint32), start + lax.iota(jnp.uint32, size)
    x0, x1 = threefry2x32((words[0], words[1]), counter)
    return x0 ^ x1


def _uniform_of(random_bits: jax.Array, minval: float, maxval: float) -> jax.Array:
    mantissa = (random_bits >> np.uint32(9)) | np.float32(1).view(np.uint32)
    floats = lax.bitcast_convert_type(mantissa, jnp.float32) - np.float32(1)
    low, high = np.float32(minval), np.float32(maxval)
    return jnp.maximum(low, floats * (high - low) + low)


def _normal_of(random_bits: jax.Array) -> jax.Array:
    low = float(np.nextafter(np.float32(-1), np.float32(0)))
    return np.float32(np.sqrt(2)) * lax.erf_inv(_uniform_of(random_bits, low, 1.0))


def uniform(key: jax.Array, shape: tuple[int, ...] = (), minval: float = 0.0, maxval: float = 1.0) -> jax.Array:
    """float32 uniform on [minval, maxval), equal to `jax.random.uniform(key, shape)`."""
    return _uniform_of(bits(key, shape), minval, maxval)


def normal(key: jax.Array, shape: tuple[int, ...] = (), dtype: Any = jnp.float32) -> jax.Array:
    """Standard normals, float32 equal to `jax.random.normal(key, shape)`; other dtypes are left to `jax.random`.

    Example:
        >>> bool(jnp.all(normal(seed_key(1), (3,)) == jax.random.normal(seed_key(1), (3,))))
        True
    """
    if jnp.dtype(dtype) != jnp.float32 or _use_jax_random():
        return jax.random.normal(key, shape, dtype)
    return _normal_of(bits(key, shape))


def stored_normal(key: jax.Array, shape: tuple[int, ...], dtype: Any = jnp.float32) -> jax.Array:
    """`normal`, drawn exactly once, as `materialise` has it; on a CPU block by block, so that nothing else is as large.

    Whole, XLA would keep the counters of the draw, too, and read them from memory wherever the draw is in a loop.
    """
    size = math.prod(shape)
    in_blocks = jax.default_backend() == "cpu" and BLOCK < size < 2**31
    if jnp.dtype(dtype) != jnp.float32 or _use_jax_random() or not in_blocks:
        return materialise(lambda: normal(key, shape, dtype))

    def fill(number: jax.Array, values: jax.Array) -> jax.Array:
        # The last block overlaps the one before it, whose end it draws again.
        start = jnp.minimum(number * BLOCK, size - BLOCK)
        block = _normal_of(_bits_from(key, start.astype(jnp.uint32), BLOCK))
        return lax.dynamic_update_slice(values, block, (start,))

    return lax.fori_loop(0, -(-size // BLOCK), fill, jnp.zeros(size, jnp.float32)).reshape(shape)


def rademacher(key: jax.Array, shape: tuple[int, ...] = (), dtype: Any = jnp.float32) -> jax.Array:
    """Independent +1 and -1, each with probability 1/2; one random word serves 32 entries."""
    size = math.prod(shape)
    words = bits(key, (-(-size // 32),))
    flags = (words[:, None] >> lax.iota(jnp.uint32, 32)[None, :]) & np.uint32(1)
    signs = (1 - 2 * flags.astype(jnp.int32)).astype(dtype)
    return signs.reshape(-1)[:size].reshape(shape)


def materialise(draw: Callable[[], Any]) -> Any:
    """`draw()`, computed exactly once and stored.

    XLA on CPU copies a generator into each of its consumers, and contracts multiply-adds into it differently there, so
    that one draw costs several and is not bit-equal between programs; `optimization_barrier` does not stop it. A loop
    whose trip count XLA cannot see does.
    """
    shapes = jax.eval_shape(draw)
    zeros = jax.tree.map(lambda leaf: jnp.zeros(leaf.shape, leaf.dtype), shapes)
    return in_place(lambda _: draw(), zeros)


def in_place(change: Callable[[Any], Any], values: Any) -> Any:
    """`change(values)`, of the same shapes, as `materialise` has it, in the storage of `values` if those end here."""
    once = lax.optimization_barrier(jnp.int32(1))
    return lax.fori_loop(0, once, lambda _, own: change(own), values)


def materialise_rounded(compute: Callable[[Callable[[jax.Array], jax.Array]], Any]) -> Any:
    """`materialise` of `compute(rounded)`, where `rounded(product)` is the product, certainly rounded to its dtype.

    A compiler may contract a product and a sum into one instruction, which does not round between them. On CPU it does
    for many numbers and does not for few, so that the bits of a small leaf depend on how many cells a sweep has.
    """
    shapes = jax.eval_shape(lambda: compute(lambda values: values))
    zeros = jax.tree.map(lambda leaf: jnp.zeros(leaf.shape, leaf.dtype), shapes)
    return in_place_rounded(lambda rounded, _: compute(rounded), zeros)


def in_place_rounded(change: Callable[[Callable[[jax.Array], jax.Array], Any], Any], values: Any) -> Any:
    """`in_place` of `change(rounded, values)`, where `rounded` is that of `materialise_rounded`."""
    once = lax.optimization_barrier(jnp.int32(1))

    def body(zero: jax.Array, own: Any) -> Any:
        def rounded(values: jax.Array) -> jax.Array:
            if not jnp.issubdtype(values.dtype, jnp.floating):
                return values
            words = {2: jnp.uint16, 4: jnp.uint32, 8: jnp.uint64}[values.dtype.itemsize]
            # The loop's counter is 0 throughout, which only its running can tell: nothing sees through this.
            changed = lax.bitcast_convert_type(values, words) ^ jnp.full(values.shape, zero, words)
            return lax.bitcast_convert_type(changed, values.dtype)

        return change(rounded, own)

    return lax.fori_loop(0, once, body, values)
