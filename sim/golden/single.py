"""binary32 arithmetic on bit patterns (uint32 in, uint32 out), vectorised, with integers only.

Round to nearest, ties to even, subnormals honoured. As the contract says, a zero result is +0 whatever its sign
would be in IEEE 754, and NaN results are the one pattern 0x7fc00000.
"""

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from golden.abi import SCORE_FRACTION_BITS
from golden.half import FRACTION_BITS
from golden.rounding import BINARY16, BINARY32, encode, encode_ratio, round_shift
from golden.wide import Wide, bit_length, from_int64, to_ints, to_sticky

INFINITY = BINARY32.infinity
SIGN = BINARY32.sign
Patterns = NDArray[np.uint32]
Single = NDArray[np.uint32] | NDArray[np.float32]  # binary32 patterns, or values


class _Parts(NamedTuple):
    """(-1)^negative * m * 2^exponent, m < 2^24, or Inf or NaN."""

    negative: NDArray[np.bool_]
    m: NDArray[np.uint64]
    exponent: NDArray[np.int64]
    infinite: NDArray[np.bool_]
    nan: NDArray[np.bool_]


def patterns(x: Single) -> Patterns:
    """uint32 patterns of a binary32 array (float32 or uint32). ValueError for any other dtype."""
    array = np.asarray(x)
    if array.dtype not in (np.float32, np.uint32):
        raise ValueError(f"expected binary32 (float32 or uint32 patterns), got {array.dtype}")
    return array.view(np.uint32)


def is_finite(x: Single) -> NDArray[np.bool_]:
    """True where a number is neither Inf nor NaN."""
    finite: NDArray[np.bool_] = (patterns(x) & np.uint32(INFINITY)) != INFINITY
    return finite


def _parts(x: Patterns) -> _Parts:
    code = patterns(x).astype(np.int64)
    field, fraction = (code >> 23) & 255, code & 0x7FFFFF
    m = np.where(field > 0, fraction | 0x800000, fraction).astype(np.uint64)
    special = field == 255
    return _Parts(code >> 31 == 1, m, np.maximum(field, 1) - 150, special & (fraction == 0), special & (fraction != 0))


def _normal(parts: _Parts) -> tuple[NDArray[np.uint64], NDArray[np.int64]]:
    """(m, exponent) with m of exactly 24 bits, or 0."""
    shift = 24 - bit_length(parts.m)
    return parts.m << shift.astype(np.uint64), parts.exponent - shift


def _special(
    result: Patterns, negative: NDArray[np.bool_], infinite: NDArray[np.bool_], nan: NDArray[np.bool_]
) -> Patterns:
    result = np.where(infinite, np.where(negative, np.uint32(INFINITY | SIGN), np.uint32(INFINITY)), result)
    return np.where(nan, np.uint32(BINARY32.nan), result).astype(np.uint32)


def add(a: Patterns, b: Patterns) -> Patterns:
    """fl32(a + b)."""
    x, y = (_parts(v) for v in np.broadcast_arrays(patterns(a), patterns(b)))
    swap = (y.exponent > x.exponent) | ((y.exponent == x.exponent) & (y.m > x.m))
    large, small = (np.where(swap, q, p) for p, q in ((x.m, y.m), (y.m, x.m)))
    exponent = np.where(swap, y.exponent, x.exponent)
    negative = np.where(swap, y.negative, x.negative)
    distance = np.minimum(np.abs(x.exponent - y.exponent), 63).astype(np.uint64)
    # With 32 more bits nothing is cut off up to that distance. Beyond it the small number is below 2^-8 units of the
    # large one's last place, so the sum rounds to the large one even if bits are lost.
    aligned = (small << np.uint64(32)) >> distance
    large = large << np.uint64(32)
    subtract = x.negative != y.negative
    negative ^= subtract & (aligned > large)
    difference = np.where(aligned > large, aligned - large, large - aligned)
    total = np.where(subtract, difference, large + aligned)
    result = encode(BINARY32, negative, total, exponent - 32)
    nan = x.nan | y.nan | (x.infinite & y.infinite & subtract)
    return _special(result, np.where(x.infinite, x.negative, y.negative), x.infinite | y.infinite, nan)


def mul(a: Patterns, b: Patterns) -> Patterns:
    """fl32(a * b)."""
    x, y = (_parts(v) for v in np.broadcast_arrays(patterns(a), patterns(b)))
    negative = x.negative != y.negative
    result = encode(BINARY32, negative, x.m * y.m, x.exponent + y.exponent)
    nan = x.nan | y.nan | (x.infinite & (y.m == 0)) | (y.infinite & (x.m == 0))
    return _special(result, negative, x.infinite | y.infinite, nan)


def div(a: Patterns, b: Patterns) -> Patterns:
    """fl32(a / b); x / 0 is Inf, 0 / 0 NaN."""
    x, y = (_parts(v) for v in np.broadcast_arrays(patterns(a), patterns(b)))
    negative = x.negative != y.negative
    (n, n_exponent), (d, d_exponent) = _normal(x), _normal(y)
    scaled = n << np.uint64(38)
    divisor = np.maximum(d, np.uint64(1))
    quotient = scaled // divisor
    quotient |= quotient * divisor != scaled
    result = encode(BINARY32, negative, quotient, n_exponent - d_exponent - 38)
    result = np.where(y.infinite, np.uint32(0), result)
    zero = (y.m == 0) & ~y.nan
    nan = x.nan | y.nan | (x.infinite & y.infinite) | (zero & (x.m == 0))
    return _special(result, negative, x.infinite | zero, nan)


def sqrt(a: Patterns) -> Patterns:
    """fl32(sqrt(a)); NaN below zero."""
    x = _parts(a)
    m, exponent = _normal(x)
    odd = exponent & 1
    # m * 2^exponent = radicand * 2^(2 * half): 62 or 63 bits give a root of 31 or 32.
    radicand = m << (np.uint64(38) + odd.astype(np.uint64))
    root = _integer_sqrt(radicand)
    root |= root * root != radicand
    result = encode(BINARY32, np.zeros(m.shape, np.bool_), root, (exponent - odd - 38) >> 1)
    nan = x.nan | (x.negative & (x.infinite | (x.m != 0)))
    return _special(result, np.zeros(m.shape, np.bool_), x.infinite, nan)


def _integer_sqrt(radicand: NDArray[np.uint64]) -> NDArray[np.uint64]:
    """floor(sqrt(radicand)), one bit per step from bit 31 down."""
    root = np.zeros_like(radicand)
    for bit in range(31, -1, -1):
        trial = root | np.uint64(1 << bit)
        root = np.where(trial * trial <= radicand, trial, root)
    return root


def from_wide(value: Wide | NDArray[np.int64], lsb_exponent: int) -> Patterns:
    """fl32(value * 2^lsb_exponent): 128-bit integers (`Wide`) or int64."""
    if not isinstance(value, Wide):
        value = from_int64(value)
    negative, m, shift = to_sticky(value)
    return encode(BINARY32, negative, m, shift + lsb_exponent).astype(np.uint32)


def ratio_to_half(acc: Wide, total: NDArray[np.uint64]) -> NDArray[np.uint16]:
    """fl16(acc / total * 2^-24): the output of attention. `total` is above 0 and broadcasts against `acc`."""
    return encode_ratio(BINARY16, to_ints(acc), np.asarray(total).astype(object), -FRACTION_BITS).astype(np.uint16)


def ratio_to_single(acc: Wide, total: NDArray[np.uint64], lsb_exponent: int = -FRACTION_BITS) -> Patterns:
    """fl32(acc / total * 2^lsb_exponent). `total` is above 0 and broadcasts against `acc`."""
    return encode_ratio(BINARY32, to_ints(acc), np.asarray(total).astype(object), lsb_exponent).astype(np.uint32)


def to_score(x: Patterns) -> NDArray[np.int32]:
    """sat_int32(RNE(x * 2^20)): binary32 to Q12.20. Inf saturates; NaN raises ValueError."""
    parts = _parts(x)
    if parts.nan.any():
        raise ValueError("a score is NaN: the contract excludes it")
    exponent = parts.exponent + SCORE_FRACTION_BITS
    # From 2^8 on a normal m (2^23 and more) is beyond int32; the clip keeps the shift defined, the minimum saturates.
    rounded = round_shift(parts.m, -np.minimum(exponent, 9)).astype(np.int64)
    rounded = np.where(parts.infinite, 1 << 31, np.minimum(rounded, 1 << 31))
    return np.clip(np.where(parts.negative, -rounded, rounded), -(1 << 31), (1 << 31) - 1).astype(np.int32)
