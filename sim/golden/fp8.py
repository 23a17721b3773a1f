"""Numbers in 8 bits of OFP8 E4M3 (docs/arithmetic.md, "Numbers at rest"), with integers only."""

import numpy as np
from numpy.typing import NDArray

from golden.half import FRACTION_BITS, Half, fixed
from golden.rounding import BINARY16, Format, encode

Codes = NDArray[np.uint8]

_SIGN, _NAN = 0x80, 0x7F
_LARGEST = 0x7E  # 448
# E4M3 has no infinity: its largest exponent has numbers, too. With one more bit of exponent, all patterns go on.
_UNBOUNDED = Format(fraction_bits=3, exponent_bits=5, lsb_exponent=-9, pattern=np.uint16)


def encode_fp8(numbers: Half) -> Codes:
    """Finite binary16 numbers -> the nearest codes, ties to even; numbers beyond 448 are +-448, and zeros are +0."""
    x = fixed(numbers)
    magnitude = encode(_UNBOUNDED, np.zeros(x.shape, np.bool_), np.abs(x).astype(np.uint64), np.int64(-FRACTION_BITS))
    code = np.minimum(magnitude, _LARGEST)
    return np.where((x < 0) & (code != 0), code | _SIGN, code).astype(np.uint8)


def decode_fp8(codes: Codes) -> NDArray[np.float16]:
    """Codes -> the binary16 numbers that they stand for. Both zeros are +0."""
    code = codes.astype(np.int64)
    exponent, fraction = (code >> 3) & 15, code & 7
    # In units of 2^-9: the fraction, with its hidden bit unless the exponent is 0.
    magnitude = np.where(exponent == 0, fraction, (8 + fraction) << np.maximum(exponent - 1, 0))
    negative = (code & _SIGN) != 0
    return encode(BINARY16, negative, magnitude.astype(np.uint64), np.int64(-9)).astype(np.uint16).view(np.float16)


def is_number(codes: Codes) -> NDArray[np.bool_]:
    """False for the two codes that stand for no number."""
    found: NDArray[np.bool_] = (codes & ~np.uint8(_SIGN)) != _NAN
    return found
