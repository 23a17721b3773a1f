"""binary16: fixed-point values, predicates and conversions, all computed on bit patterns.

A binary16 array is np.float16 or its patterns as np.uint16.
"""

import numpy as np
from numpy.typing import NDArray

from golden.rounding import BINARY16, BINARY32, encode

Half = NDArray[np.float16] | NDArray[np.uint16]  # binary16 values, or their patterns

FRACTION_BITS = 24  # LSB of `fixed`: 2^-24, the smallest subnormal
_BFLOAT16_BIAS = 127


def bits(h: Half) -> NDArray[np.uint16]:
    """Patterns of a binary16 array. ValueError for any other dtype."""
    array = np.asarray(h)
    if array.dtype not in (np.float16, np.uint16):
        raise ValueError(f"expected binary16 (float16 or uint16 patterns), got {array.dtype}")
    return array.view(np.uint16)


def _fixed_table() -> NDArray[np.int64]:
    code = np.arange(1 << 16, dtype=np.int64)
    exponent, fraction = (code >> 10) & 31, code & 1023
    magnitude = np.where(exponent > 0, (fraction | 1024) << np.maximum(exponent - 1, 0), fraction)
    magnitude[exponent == 31] = 0
    return np.where(code >> 15 == 1, -magnitude, magnitude)


_FIXED = _fixed_table()


def fixed(h: Half) -> NDArray[np.int64]:
    """Value of each number with LSB 2^-24, magnitude below 2^40. Inf and NaN give 0: check `is_finite`."""
    return _FIXED[bits(h)]


def is_finite(h: Half) -> NDArray[np.bool_]:
    """True where a number is neither Inf nor NaN."""
    finite: NDArray[np.bool_] = (bits(h) & np.uint16(BINARY16.infinity)) != BINARY16.infinity
    return finite


def from_float32_bits(patterns: NDArray[np.uint32]) -> NDArray[np.uint16]:
    """fl16: binary32 patterns to binary16 patterns; Inf stays, NaN becomes the one NaN, zeros are +0."""
    code = np.asarray(patterns, np.uint32).astype(np.int64)
    field, fraction = (code >> 23) & 255, code & 0x7FFFFF
    m = np.where(field > 0, fraction | 0x800000, fraction).astype(np.uint64)
    negative = code >> 31 == 1
    result = encode(BINARY16, negative, m, np.maximum(field, 1) - 150)
    special = np.where(fraction > 0, BINARY16.nan, BINARY16.infinity | negative * BINARY16.sign)
    return np.where(field == 255, special, result).astype(np.uint16)


def to_float32_bits(h: Half) -> NDArray[np.uint32]:
    """Exact, with the sign of zeros; Inf stays, NaN becomes the one NaN of the same sign."""
    code = bits(h).astype(np.int64)
    value = fixed(h)
    result = encode(BINARY32, value < 0, np.abs(value).astype(np.uint64), np.full(value.shape, -FRACTION_BITS))
    special = np.where(code & 1023, BINARY32.nan, BINARY32.infinity)
    magnitude = np.where((code >> 10) & 31 == 31, special, result & np.uint32(0x7FFFFFFF))
    return np.asarray(magnitude | (code >> 15) << 31, np.uint32)


def from_bfloat16(patterns: NDArray[np.uint16], axis: int) -> tuple[NDArray[np.float16], NDArray[np.int64], int]:
    """bfloat16 patterns to binary16, scaled by a power of two per head.

    `axis` numbers the heads. Returns (fl16(x * 2^-e), e per head int64, count of non-zero numbers that became zero).
    e is 0 where the head's largest finite magnitude is at most 65504, else the smallest that makes it so.
    The sign of zeros is kept; Inf and NaN stay what they are and do not count for e.
    """
    code = np.asarray(patterns)
    if code.dtype != np.uint16:
        raise ValueError(f"expected bfloat16 patterns as uint16, got {code.dtype}")
    code = np.moveaxis(code, axis, 0).astype(np.int64)
    field, fraction = (code >> 7) & 255, code & 127
    m = np.where(field > 0, fraction | 128, fraction)
    exponents = _head_exponents((code & 0x7FFF).reshape(code.shape[0], -1))
    shift = np.maximum(field, 1) - 134 - exponents.reshape(-1, *[1] * (code.ndim - 1))
    magnitude = encode(BINARY16, np.zeros(code.shape, np.bool_), m.astype(np.uint64), shift).astype(np.int64)
    lost = int(np.count_nonzero((magnitude == 0) & (m != 0)))
    special = np.where(fraction > 0, BINARY16.nan, BINARY16.infinity)
    result = np.where(field == 255, special, magnitude) | (code >> 15) << 15
    return np.moveaxis(result.astype(np.uint16), 0, axis).view(np.float16), exponents, lost


def _head_exponents(magnitudes: NDArray[np.int64]) -> NDArray[np.int64]:
    """e per row of bfloat16 magnitudes [heads, n]. The largest bfloat16 below 2^16 is 65280: the exponent decides."""
    finite = np.where(magnitudes < 0x7F80, magnitudes, 0)
    largest = finite.max(axis=1, initial=0)
    exponents: NDArray[np.int64] = np.maximum((largest >> 7) - _BFLOAT16_BIAS - 15, 0)
    return exponents
