"""Probabilities: 2^y for y <= 0 from a table and a quadratic, in fixed point."""

import numpy as np
from numpy.typing import NDArray

from golden.abi import (
    EXP2_BITS,
    EXP2_C0,
    EXP2_C0_BITS,
    EXP2_C1,
    EXP2_C2,
    EXP2_INDEX_BITS,
    EXP2_ROUNDING,
    P_FRACTION_BITS,
    SCORE_FRACTION_BITS,
)

_REST_BITS = SCORE_FRACTION_BITS - EXP2_INDEX_BITS
_ONE_SHIFT = P_FRACTION_BITS - EXP2_BITS  # places from m to p at y = 0
_C0 = np.array(EXP2_C0, np.int64)
_C1 = np.array(EXP2_C1, np.int64)
_C2 = np.array(EXP2_C2, np.int64)


def exp2_mantissa(f: NDArray[np.int64]) -> NDArray[np.int64]:
    """m in [2^19, 2^20) with LSB 2^-19 for the fraction f in [0, 2^20); |m - 2^(f/2^20) * 2^19| < 0.699."""
    f = np.asarray(f, np.int64)
    index, rest = f >> _REST_BITS, f & ((1 << _REST_BITS) - 1)
    slope = _C1[index] + ((_C2[index] * rest) >> 14)
    m: NDArray[np.int64] = (_C0[index] + ((slope * rest) >> 15) + EXP2_ROUNDING) >> (EXP2_C0_BITS - EXP2_BITS)
    return m


def probability(y: NDArray[np.int64]) -> NDArray[np.uint32]:
    """p = 2^(y / 2^20) with LSB 2^-31 for y <= 0 (Q13.20): at most 20 significant bits, 0 below 2^-32."""
    y = np.asarray(y, np.int64)
    n = y >> SCORE_FRACTION_BITS
    m = exp2_mantissa(y & ((1 << SCORE_FRACTION_BITS) - 1))
    left = np.clip(_ONE_SHIFT + n, 0, _ONE_SHIFT)
    right = np.clip(-_ONE_SHIFT - n, 0, EXP2_BITS + 2)
    rounded = (m + ((1 << right) >> 1)) >> right
    return np.where(right > EXP2_BITS + 1, 0, rounded << left).astype(np.uint32)
