"""DeComFL's messages, byte for byte: little-endian headers of 32-bit words, then the numbers. No pickle.

A message is read with the sizes that its header gives; one that is too short or too long is refused.
"""

import struct
from typing import Any, NamedTuple

import numpy as np

from zofed.replay import History

__all__ = ["Reply", "Request", "Work", "pack_scalars", "reply_bytes", "scalar_bytes", "unpack_scalars", "work_bytes"]

_WORK = struct.Struct("<IIIIfIIII")
_ENTRY = struct.Struct("<IIIf")
_REPLY = struct.Struct("<IIIII")
_REQUEST = struct.Struct("<II")
_NO_MODEL = 2**32 - 1


def scalar_bytes(count: int, bits: int) -> int:
    """Bytes of `count` scalars of 32 bits, or of 1 bit (signs).

    Raises:
        ValueError: bits is another number.

    Example:
        >>> scalar_bytes(10, 32), scalar_bytes(10, 1)
        (40, 2)
    """
    if bits not in (1, 32):
        raise ValueError(f"scalars of {bits} bits; allowed: 1 or 32")
    return 4 * count if bits == 32 else -(-count // 8)


def work_bytes(count: int, num_scalars: int, bits: int = 32) -> int:
    """Bytes of a `Work` without a model, with `count` replayed rounds of `num_scalars` scalars each."""
    return _WORK.size + count * (_ENTRY.size + scalar_bytes(num_scalars, bits))


def reply_bytes(num_scalars: int, bits: int = 32) -> int:
    """Bytes of a `Reply`."""
    return _REPLY.size + scalar_bytes(num_scalars, bits)


def pack_scalars(scalars: Any, bits: int = 32) -> bytes:
    """float32 numbers, or signs: numbers that are 1 or -1, or 0 where they mean nothing.

    Raises:
        ValueError: they are not of the kind that `bits` stands for.
    """
    scalars = np.asarray(scalars)
    if bits == 32:
        if scalars.dtype != np.float32:
            raise ValueError(f"scalars are {scalars.dtype.name}; allowed: float32, which is what travels")
        return scalars.astype("<f4").tobytes()
    # Zeros stand for directions that a round has not, and for a round in which nobody was heard.
    if bits != 1 or not np.isin(scalars, (-1, 0, 1)).all():
        raise ValueError(f"bits={bits} with scalars {scalars.ravel()[:4]} ...; allowed: 32, or 1 where all are signs")
    return np.packbits(scalars.ravel() > 0).tobytes()


def unpack_scalars(data: bytes, shape: tuple[int, ...], bits: int = 32) -> np.ndarray:
    """What `pack_scalars` packed."""
    if bits == 32:
        return np.frombuffer(data, "<f4").astype(np.float32).reshape(shape)
    flags = np.unpackbits(np.frombuffer(data, np.uint8), count=int(np.prod(shape)))
    return np.where(flags, np.float32(1), np.float32(-1)).reshape(shape)


class Work(NamedTuple):
    """From the server to a client: what it missed, and this round's key (Algorithm 3, lines 7 and 8).

    Attributes:
        round: r.
        key: uint32[2] of this round's directions.
        num_directions: P of this round.
        rate: of this round's local steps.
        history: the rounds that the client replays; `round` counts up to r - 1.
        bits: of a scalar, 32 or 1.
        model: the bytes of the server's model in the place of a history, or None.
    """

    round: int
    key: np.ndarray
    num_directions: int
    rate: np.float32
    history: History
    bits: int = 32
    model: bytes | None = None

    def to_bytes(self) -> bytes:
        count, steps, directions = self.history.scalars.shape
        if max(steps, directions) >= 2**16:
            raise ValueError(f"{steps} local steps and {directions} directions; a message holds fewer than 65536")
        size = _NO_MODEL if self.model is None else len(self.model)
        shape = (count, steps << 16 | directions, self.bits)
        words = (int(word) for word in self.key)
        parts = [_WORK.pack(self.round, *words, self.num_directions, float(self.rate), *shape, size)]
        for _, key, scalars, active, rate in zip(*self.history, strict=True):
            parts += [_ENTRY.pack(*(int(word) for word in key), int(active), float(rate))]
            parts += [pack_scalars(scalars, self.bits)]
        return b"".join([*parts, self.model or b""])

    @classmethod
    def from_bytes(cls, data: bytes) -> "Work":
        """Raises ValueError if the data is no such message."""
        round, key0, key1, active, rate, count, shape, bits, size = _header(_WORK, data, "Work")
        steps, directions = shape >> 16, shape & 0xFFFF
        entry_size = _ENTRY.size + scalar_bytes(steps * directions, bits)
        model_size = 0 if size == _NO_MODEL else size
        _check_size(data, work_bytes(count, steps * directions, bits) + model_size, "Work")
        entries = [data[_WORK.size + i * entry_size :][:entry_size] for i in range(count)]
        heads = [_ENTRY.unpack_from(entry) for entry in entries]
        scalars = [unpack_scalars(entry[_ENTRY.size :], (steps, directions), bits) for entry in entries]
        for values, head in zip(scalars, heads, strict=True):
            values[:, head[2] :] = 0  # one bit cannot say it
        history = History(
            np.arange(round - count, round, dtype=np.int32),
            np.array([head[:2] for head in heads], np.uint32).reshape(count, 2),
            np.array(scalars, np.float32).reshape(count, steps, directions),
            np.array([head[2] for head in heads], np.int32),
            np.array([head[3] for head in heads], np.float32),
        )
        model = None if size == _NO_MODEL else data[len(data) - size :]
        return cls(round, np.array([key0, key1], np.uint32), active, np.float32(rate), history, bits, model)


class Reply(NamedTuple):
    """From a client to the server: its scalars, [local_steps, num_directions] (Algorithm 4, line 24)."""

    round: int
    client: int
    scalars: np.ndarray
    bits: int = 32

    def to_bytes(self) -> bytes:
        return _REPLY.pack(self.round, self.client, *self.scalars.shape, self.bits) + pack_scalars(
            self.scalars, self.bits
        )

    @classmethod
    def from_bytes(cls, data: bytes) -> "Reply":
        """Raises ValueError if the data is no such message."""
        round, client, steps, directions, bits = _header(_REPLY, data, "Reply")
        _check_size(data, reply_bytes(steps * directions, bits), "Reply")
        return cls(round, client, unpack_scalars(data[_REPLY.size :], (steps, directions), bits), bits)


class Request(NamedTuple):
    """From a client to a server that does not know when it took part last: t_i (B.2)."""

    client: int
    last_round: int

    def to_bytes(self) -> bytes:
        return _REQUEST.pack(*self)

    @classmethod
    def from_bytes(cls, data: bytes) -> "Request":
        """Raises ValueError if the data is no such message."""
        _check_size(data, _REQUEST.size, "Request")
        return cls(*_header(_REQUEST, data, "Request"))


def _header(form: struct.Struct, data: bytes, name: str) -> tuple[Any, ...]:
    if len(data) < form.size:
        raise ValueError(f"a {name} of {len(data)} bytes; it has at least {form.size}")
    return form.unpack_from(data)


def _check_size(data: bytes, size: int, name: str) -> None:
    if len(data) != size:
        raise ValueError(f"a {name} of {len(data)} bytes; its header says {size}: it was cut or changed")
