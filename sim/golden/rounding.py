"""The one rounding of the contract: an exact magnitude to a binary format, nearest, ties to even.

Subnormals are honoured, overflow gives infinity, and a zero result is +0 whatever its sign was.
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from golden.wide import bit_length


@dataclass(frozen=True)
class Format:
    """An IEEE 754 binary format with `fraction_bits` stored bits and smallest subnormal 2^lsb_exponent."""

    fraction_bits: int
    exponent_bits: int
    lsb_exponent: int
    pattern: type[np.unsignedinteger]

    @property
    def sign(self) -> int:
        """The sign bit."""
        return 1 << (self.fraction_bits + self.exponent_bits)

    @property
    def infinity(self) -> int:
        """The pattern of +infinity."""
        return ((1 << self.exponent_bits) - 1) << self.fraction_bits

    @property
    def nan(self) -> int:
        """The one NaN that arithmetic gives: quiet, positive, empty payload."""
        return self.infinity | 1 << (self.fraction_bits - 1)


BINARY16 = Format(fraction_bits=10, exponent_bits=5, lsb_exponent=-24, pattern=np.uint16)
BINARY32 = Format(fraction_bits=23, exponent_bits=8, lsb_exponent=-149, pattern=np.uint32)


def encode(
    form: Format, negative: NDArray[np.bool_], m: NDArray[np.uint64], exponent: NDArray[np.int64]
) -> NDArray[np.unsignedinteger]:
    """Patterns of `form` for (-1)^negative * m * 2^exponent, m < 2^63, rounded once.

    m may carry lost lower bits in its lowest bit if it has at least two bits more than the format's precision.
    """
    m = np.asarray(m, np.uint64)
    exponent = np.asarray(exponent, np.int64)
    top = exponent + bit_length(m) - 1
    lsb = np.maximum(top - form.fraction_bits, form.lsb_exponent)
    kept = round_shift(m, lsb - exponent)
    # Adding m also adds its hidden bit to the exponent field, as does a carry out of the fraction.
    pattern = kept.astype(np.int64) + ((lsb - form.lsb_exponent) << form.fraction_bits)
    pattern = np.where(kept == 0, 0, np.minimum(pattern, form.infinity))
    pattern = np.where(negative & (pattern != 0), pattern | form.sign, pattern)
    return pattern.astype(form.pattern)


def round_shift(m: NDArray[np.uint64], right: NDArray[np.int64]) -> NDArray[np.uint64]:
    """RNE(m / 2^right) for m < 2^63; a negative `right` shifts left and must not overflow."""
    left = np.clip(-right, 0, 63).astype(np.uint64)
    drop = np.clip(right, 0, 63).astype(np.uint64)
    quotient = m >> drop
    remainder = m & ((np.uint64(1) << drop) - np.uint64(1))
    half = np.where(drop > 0, np.uint64(1) << (np.maximum(drop, np.uint64(1)) - np.uint64(1)), np.uint64(0))
    odd = (quotient & np.uint64(1)) == 1
    up = (drop > 0) & ((remainder > half) | ((remainder == half) & odd))
    # m < 2^63 is at most half a unit of 2^64, and a tie goes to the even 0.
    return np.where(right > 63, np.uint64(0), (quotient + up) << left)


def encode_ratio(
    form: Format, numerator: NDArray[np.object_], denominator: NDArray[np.object_], exponent: int
) -> NDArray[np.unsignedinteger]:
    """Patterns of `form` for numerator / denominator * 2^exponent, rounded once.

    Python integers in object arrays of broadcastable shapes, denominators above 0; for small arrays.
    """
    numerator, denominator = np.broadcast_arrays(
        np.asarray(numerator, dtype=object), np.asarray(denominator, dtype=object)
    )
    m = np.zeros(numerator.size, np.uint64)
    shifts = np.zeros(numerator.size, np.int64)
    pairs = zip(numerator.flat, denominator.flat, strict=True)
    for i, (n, d) in enumerate((abs(int(n)), int(d)) for n, d in pairs):
        shift = 62 - (n.bit_length() - d.bit_length())
        quotient, rest = divmod(n << max(shift, 0), d << max(-shift, 0))
        m[i] = quotient | (rest != 0)
        shifts[i] = exponent - shift
    negative = np.array([int(n) < 0 for n in numerator.flat], np.bool_)
    return encode(form, negative, m, shifts).reshape(numerator.shape)
