"""Stored rows of K and V in 8 and 4 bits (docs/arithmetic.md, "Numbers at rest"), with integers only.

A row is one token's numbers of one head. Its bytes are codes, then, except in fp8, a few bytes for each part of
FORMAT_PART numbers. The value of a code is a binary16 number, so every engine attends to stored rows as to any others.
Encoding values that were decoded gives the same values again.
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from golden import abi
from golden.fp8 import decode_fp8, encode_fp8, is_number
from golden.half import FRACTION_BITS, Half, fixed, is_finite
from golden.rounding import BINARY16, encode

Rows = NDArray[np.uint8]
Coding = int | str  # the bits of an integer code, 8 or 4; or FP8

FP8 = "fp8"

_LARGEST = 65504 << FRACTION_BITS  # the largest binary16 number, LSB 2^-24
_INT8_MOST = 127  # largest magnitude of a code
_INT8_EXPONENTS = 34  # steps are 2^-24 to 2^9; larger numbers are the nearest multiple of 2^9 below 2^16
_INT4_CODES = 15
_INT4_LEAST, _INT4_MOST = -128, 127  # of a code plus its part's zero
_INT4_STEPS = 256  # a byte e * 8 + m - 8 stands for the step m * 2^(e - 21), 8 <= m <= 15
_OCTAVE = 8  # steps from one to its double


@dataclass(frozen=True)
class _Part:
    """The numbers [first, end) of a row, and where their bytes are."""

    first: int
    end: int
    codes: int  # byte of the first code
    step: int  # byte of the step; behind it INT4 has the zero


def row_bytes(bits: Coding, head_dim: int) -> int:
    """Bytes of a row."""
    if bits == FP8:
        return head_dim
    parts = -(-head_dim // abi.FORMAT_PART)
    return head_dim + parts if bits == 8 else head_dim // 2 + 2 * parts


def encode_rows(rows: Half, bits: Coding) -> Rows:
    """Rows [n, d] of finite binary16 numbers -> uint8 [n, row_bytes(bits, d)]."""
    values = fixed(rows)
    assert bool(is_finite(rows).all())
    if bits == FP8:
        return encode_fp8(rows)
    count, head_dim = values.shape
    out = np.zeros((count, row_bytes(bits, head_dim)), np.uint8)
    for part in _parts(bits, head_dim):
        x = values[:, part.first : part.end]
        if bits == 8:
            codes, out[:, part.step] = _encode8(x)
            out[:, part.codes : part.codes + x.shape[1]] = codes.astype(np.int8).view(np.uint8)
        else:
            codes, out[:, part.step], zeros = _encode4(x)
            out[:, part.step + 1] = zeros.astype(np.int8).view(np.uint8)
            half = x.shape[1] // 2
            out[:, part.codes : part.codes + half] = codes[:, :half] | codes[:, half:] << 4
    return out


def decode_rows(stored: Rows, bits: Coding, head_dim: int) -> NDArray[np.float16]:
    """Rows uint8 [n, row_bytes] -> binary16 [n, d]."""
    if bits == FP8:
        return decode_fp8(stored)
    out = np.zeros((len(stored), head_dim), np.int64)
    for part in _parts(bits, head_dim):
        out[:, part.first : part.end] = _values(*_unpacked(stored, bits, part), bits)
    exponent = np.full(out.shape, -FRACTION_BITS)
    patterns = encode(BINARY16, out < 0, np.abs(out).astype(np.uint64), exponent).astype(np.uint16)
    assert bool((fixed(patterns) == out).all()), "every value is a binary16 number"
    return patterns.view(np.float16)


def is_valid(stored: Rows, bits: Coding, head_dim: int) -> bool:
    """True if every code of the rows uint8 [n, row_bytes] stands for a finite binary16 number."""
    return bool(valid_rows(stored, bits, head_dim).all())


def valid_rows(stored: Rows, bits: Coding, head_dim: int) -> NDArray[np.bool_]:
    """The same for each row, [n]."""
    if bits == FP8:
        return is_number(stored).all(axis=1)
    valid = np.ones(len(stored), np.bool_)
    for part in _parts(bits, head_dim):
        codes, step = _unpacked(stored, bits, part)
        if bits == 8:
            valid &= (step < _INT8_EXPONENTS).all(axis=1) & (codes >= -_INT8_MOST).all(axis=1)
            step = np.minimum(step, _INT8_EXPONENTS)
        else:
            valid &= (codes <= _INT4_MOST).all(axis=1)
        valid &= (np.abs(_values(codes, step, bits)) <= _LARGEST).all(axis=1)
    return valid


def _unpacked(stored: Rows, bits: Coding, part: _Part) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """A part's codes [n, numbers], of INT4 plus its zero, and the bytes [n, 1] of its steps."""
    numbers = part.end - part.first
    step = stored[:, part.step].astype(np.int64)[:, None]
    if bits == 8:
        return stored[:, part.codes : part.codes + numbers].view(np.int8).astype(np.int64), step
    pairs = stored[:, part.codes : part.codes + numbers // 2]
    codes = np.concatenate([pairs & 15, pairs >> 4], axis=1).astype(np.int64)
    return codes + stored[:, part.step + 1 : part.step + 2].view(np.int8).astype(np.int64), step


def _values(codes: NDArray[np.int64], step: NDArray[np.int64], bits: Coding) -> NDArray[np.int64]:
    """What codes stand for, LSB 2^-24. `step`: the byte of each."""
    return codes << step if bits == 8 else codes * _step4(step)


def _parts(bits: Coding, head_dim: int) -> list[_Part]:
    found = []
    for number, first in enumerate(range(0, head_dim, abi.FORMAT_PART)):
        end = min(first + abi.FORMAT_PART, head_dim)
        if bits == 8:
            found.append(_Part(first, end, first, head_dim + number))
        else:
            found.append(_Part(first, end, first // 2, head_dim // 2 + 2 * number))
    return found


def _step4(byte: NDArray[np.int64]) -> NDArray[np.int64]:
    """The step of an INT4 part, LSB 2^-24."""
    return (8 + (byte & 7)) << ((byte >> 3) + 3)


def _divide(x: NDArray[np.int64], step: NDArray[np.int64]) -> NDArray[np.int64]:
    """x / step rounded to the nearest integer, ties to even, kept within what binary16 holds."""
    magnitude = np.abs(x)
    low, rest = magnitude // step, magnitude % step
    low += (2 * rest > step) | ((2 * rest == step) & (low % 2 == 1))
    return np.sign(x) * np.minimum(low, _LARGEST // step)


def _encode8(x: NDArray[np.int64]) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Codes and exponents: the smallest exponent with which every code fits."""
    codes, exponents = np.zeros_like(x), np.zeros(len(x), np.int64)
    found = np.zeros(len(x), np.bool_)
    for exponent in range(_INT8_EXPONENTS):
        n = _divide(x, np.int64(1) << np.int64(exponent))
        fits = ~found & (np.abs(n) <= _INT8_MOST).all(axis=1)
        codes[fits], exponents[fits] = n[fits], exponent
        found |= fits
    assert bool(found.all())
    return codes, exponents


def _encode4(x: NDArray[np.int64]) -> tuple[NDArray[np.uint8], NDArray[np.int64], NDArray[np.int64]]:
    """Codes, steps and zeros. From the smallest step that fits on, one octave is tried; the least error wins."""
    count = len(x)
    best, steps, zeros = np.zeros(x.shape, np.uint8), np.zeros(count, np.int64), np.zeros(count, np.int64)
    error = np.full(count, np.iinfo(np.int64).max)
    tried = np.zeros(count, np.int64)
    for byte in range(_INT4_STEPS):
        step = _step4(np.int64(byte))
        n = _divide(x, step)
        low, high = n.min(axis=1), n.max(axis=1)
        fits = (high - low <= _INT4_CODES) & (low >= _INT4_LEAST) & (high <= _INT4_MOST)
        own = np.abs(n * step - x).sum(axis=1)
        begun = (tried > 0) | fits
        better = fits & begun & (tried < _OCTAVE) & (own < error)
        zero = np.minimum(low, _INT4_MOST - _INT4_CODES)
        best[better] = (n - zero[:, None])[better].astype(np.uint8)
        steps[better], zeros[better], error[better] = byte, zero[better], own[better]
        tried += begun
        if (tried >= _OCTAVE).all():
            break
    assert bool((tried > 0).all())
    return best, steps, zeros
