"""Bitmaps of tokens and rows. Bit i is bit i & 7 of byte i >> 3. Kernels see whole 64-byte beats."""

import numpy as np
from numpy.typing import NDArray

from golden.abi import BEAT_BITS, BEAT_BYTES


def beats(n: int) -> int:
    """Number of 512-bit words that hold n bits."""
    return -(-n // BEAT_BITS)


def from_indices(indices: NDArray[np.integer], n: int) -> NDArray[np.uint8]:
    """uint8 [64 * ceil(n / 512)] with the bits `indices` set."""
    flags = np.zeros(beats(n) * BEAT_BITS, np.bool_)
    flags[indices] = True
    return np.packbits(flags, bitorder="little")


def to_flags(bitmap: NDArray[np.uint8] | None, n: int) -> NDArray[np.bool_]:
    """The first n bits; all True without a bitmap. Raises ValueError when the bitmap is shorter or not uint8."""
    if bitmap is None:
        return np.ones(n, np.bool_)
    bitmap = np.asarray(bitmap)
    if bitmap.dtype != np.uint8 or bitmap.ndim != 1 or bitmap.size * 8 < n:
        raise ValueError(f"expected a uint8 bitmap of at least {-(-n // 8)} bytes, got {bitmap.dtype}{bitmap.shape}")
    return np.unpackbits(bitmap, count=n, bitorder="little").astype(np.bool_)


def zeros(n: int) -> NDArray[np.uint8]:
    """An empty bitmap of n bits."""
    return np.zeros(beats(n) * BEAT_BYTES, np.uint8)
