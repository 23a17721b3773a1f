"""128-bit two's complement integers as two numpy words. Exact sums need them, and numpy has none.

Every operation is elementwise, on arrays of any shape, and exact; nothing here is floating point.
"""

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

_WORD = 1 << 64


class Wide(NamedTuple):
    """128-bit integers: `low` uint64 and `high` int64 of equal shape."""

    low: NDArray[np.uint64]
    high: NDArray[np.int64]

    @property
    def shape(self) -> tuple[int, ...]:
        """Shape of the array of integers."""
        return self.high.shape


def zeros(shape: tuple[int, ...]) -> Wide:
    """All zeros."""
    return Wide(np.zeros(shape, np.uint64), np.zeros(shape, np.int64))


def from_int64(values: NDArray[np.int64], shift: int = 0) -> Wide:
    """`values * 2^shift`, 0 <= shift < 64."""
    values = np.asarray(values, np.int64)
    high = values >> np.int64(64 - shift) if shift else values >> np.int64(63)
    return Wide(values.astype(np.uint64) << np.uint64(shift), high)


def from_ints(values: object) -> Wide:
    """Python integers (nested lists or an object array) in [-2^127, 2^127)."""
    ints = np.asarray(values, dtype=object)
    low = np.array([int(v) % _WORD for v in ints.reshape(-1)], np.uint64)
    high = np.array([int(v) >> 64 for v in ints.reshape(-1)], np.int64)
    return Wide(low.reshape(ints.shape), high.reshape(ints.shape))


def to_ints(value: Wide) -> NDArray[np.object_]:
    """The same numbers as Python integers in an object array; for small arrays."""
    return np.asarray(value.high.astype(object) * _WORD + value.low.astype(object), dtype=object)


def pack(value: Wide) -> NDArray[np.int64]:
    """int64 [..., 2]: low word, high word."""
    return np.stack([value.low.view(np.int64), value.high], axis=-1)


def unpack(words: NDArray[np.int64]) -> Wide:
    """Inverse of `pack`."""
    words = np.asarray(words, np.int64)
    return Wide(np.ascontiguousarray(words[..., 0]).view(np.uint64), words[..., 1].copy())


def add(a: Wide, b: Wide) -> Wide:
    """a + b modulo 2^128."""
    low = a.low + b.low
    return Wide(low, a.high + b.high + (low < a.low))


def magnitude(value: Wide) -> tuple[NDArray[np.bool_], NDArray[np.uint64], NDArray[np.uint64]]:
    """(negative, low, high) with |value| = high * 2^64 + low."""
    negative = value.high < 0
    low = np.where(negative, ~value.low + np.uint64(1), value.low)
    high = value.high.view(np.uint64)
    high = np.where(negative, ~high + (value.low == 0), high)
    return negative, low, high


def bit_length(words: NDArray[np.uint64]) -> NDArray[np.int64]:
    """Bits of each 64-bit word up to its highest set one; 0 for 0."""
    words = np.array(words, np.uint64)
    for step in (1, 2, 4, 8, 16, 32):
        words |= words >> np.uint64(step)
    return np.bitwise_count(words).astype(np.int64)


def to_sticky(value: Wide) -> tuple[NDArray[np.bool_], NDArray[np.uint64], NDArray[np.int64]]:
    """(negative, m, shift) with |value| = m * 2^shift and m < 2^63.

    Bits lost below 2^shift set the lowest bit of m, which then has 62 bits or more: enough for one correct rounding.
    """
    negative, low, high = magnitude(value)
    length = np.where(high > 0, 64 + bit_length(high), bit_length(low))
    shift = np.maximum(length - 63, 0)
    right = shift.astype(np.uint64)
    part = right & np.uint64(63)
    joined = np.where(part > 0, (low >> part) | (high << ((np.uint64(64) - part) & np.uint64(63))), low)
    m = np.where(right >= 64, high >> part, joined)
    lost_mask = np.where(part > 0, (np.uint64(1) << part) - np.uint64(1), np.uint64(0))
    lost = np.where(right >= 64, (low != 0) | ((high & lost_mask) != 0), (low & lost_mask) != 0)
    return negative, m | lost, shift
