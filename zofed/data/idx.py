"""The idx format of MNIST: a header of big-endian sizes, then the bytes."""

import math

import numpy as np

__all__ = ["parse_idx", "to_idx"]

_UNSIGNED_BYTE = 0x08


def parse_idx(content: bytes) -> np.ndarray:
    """The array that the bytes of an (uncompressed) idx file of unsigned bytes hold.

    The format is four bytes `0, 0, type, number of axes`, one big-endian uint32 per axis, the data.

    Returns:
        A read-only uint8 array.

    Raises:
        ValueError: the header is not that of unsigned bytes, or the file is shorter or longer than
            its header says.

    Example:
        >>> parse_idx(bytes([0, 0, 8, 1, 0, 0, 0, 3, 7, 8, 9]))
        array([7, 8, 9], dtype=uint8)
    """
    if len(content) < 4 or content[:3] != bytes([0, 0, _UNSIGNED_BYTE]):
        raise ValueError(f"starts with {content[:4].hex(' ')!r}; an idx file of bytes starts with '00 00 08'")
    start = 4 + 4 * content[3]
    shape = tuple(int.from_bytes(content[at : at + 4], "big") for at in range(4, start, 4))
    expected = start + math.prod(shape)
    if len(content) != expected:
        raise ValueError(f"holds {len(content)} bytes; its header says {expected}, for shape {shape}")
    return np.frombuffer(content, np.uint8, offset=start).reshape(shape)


def to_idx(array: np.ndarray) -> bytes:
    """The idx file of a uint8 array, what `parse_idx` reads.

    Example:
        >>> parse_idx(to_idx(np.ones((2, 1), np.uint8)))
        array([[1], [1]], dtype=uint8)
    """
    sizes = b"".join(size.to_bytes(4, "big") for size in array.shape)
    return bytes([0, 0, _UNSIGNED_BYTE, array.ndim]) + sizes + array.tobytes()
