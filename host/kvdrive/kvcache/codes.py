"""Rows of K and V as drives store them, made where the numbers are: the bytes of `nvme.rows.encoded`, on any device.

A device that computes by IEEE 754 gives these bytes, because no operation here rounds where another could round
differently: numbers of binary16 are compared, multiplied by powers of two, rounded to integers (ties to even), and
subtracted where the difference is a binary32 number. Sums of errors are exact in binary64, so their order does not
matter. Nothing is divided; `_in_steps` says why. Numbers that are no finite ones give bytes without a meaning.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache

import torch

from kvdrive import abi
from kvdrive.nvme.wire import RowFormat

_AT_ONCE = 1 << 22  # numbers: bounds the memory for what is computed on the way
_LARGEST = 65504  # of binary16
_INT8_MOST, _INT8_EXPONENTS = 127, 34
_INT4_CODES, _INT4_LEAST, _INT4_MOST, _INT4_STEPS, _OCTAVE = 15, -128, 127, 256, 8
_FINE = 1 << 13


def encoded_there(halves: torch.Tensor, stored_as: RowFormat) -> torch.Tensor:
    """Rows [..., d] binary16 as uint8 [..., bytes_of_row], contiguous, on the same device. Waits for nothing."""
    if stored_as == RowFormat.BINARY16:
        return halves.contiguous().view(torch.uint8)
    encode = {RowFormat.INT8: _int8, RowFormat.INT4: _int4, RowFormat.FP8: _fp8}[stored_as]
    head_dim = halves.shape[-1]
    rows = halves.reshape(-1, head_dim).split(max(1, _AT_ONCE // head_dim))
    return torch.cat([encode(some) for some in rows]).unflatten(0, halves.shape[:-1])


def _fp8(halves: torch.Tensor) -> torch.Tensor:
    """The nearest e4m3 number, at most 448; zeros are +0. By the bits from 2^-6 on, below it in units of 2^-9."""
    bits = halves.contiguous().view(torch.int16).to(torch.int32)
    magnitude = bits & 0x7FFF
    normal = ((magnitude + 0x3F + (magnitude >> 7 & 1)) >> 7) - (8 << 3)
    subnormal = (halves.float().abs() * 2.0**9).round().to(torch.int32)
    codes = torch.where(magnitude < 0x2400, subnormal, normal.clamp(max=0x7E))
    return torch.where(codes == 0, 0, codes | (bits >> 8 & 0x80)).to(torch.uint8)


def _int8(halves: torch.Tensor) -> torch.Tensor:
    codes, steps = [], []
    for x in _in_parts(halves):
        # Codes fit with an exponent if the largest magnitude is below 127.5 steps; with the last one they always do.
        limits = _table(_int8_limit, _INT8_EXPONENTS - 1, x.device)
        exponents = torch.bucketize(x.abs().amax(2), limits, right=True)
        per_step = _table(_per_int8_step, _INT8_EXPONENTS, x.device)[exponents][..., None]
        n = (x * per_step).round().clamp(-_INT8_MOST, _INT8_MOST)
        codes.append(n.to(torch.int8).view(torch.uint8).flatten(1))
        steps.append(exponents.to(torch.uint8))
    return torch.cat([*codes, *steps], 1)


def _int4(halves: torch.Tensor) -> torch.Tensor:
    codes, steps = [], []
    for x in _in_parts(halves):
        least, greatest = x.amin(2), x.amax(2)
        best = _best_int4(x, least, greatest)
        zero = _in_steps(least, best).clamp(max=_INT4_MOST - _INT4_CODES)
        low, high = (_in_steps(x, best[..., None]) - zero[..., None]).to(torch.uint8).chunk(2, 2)
        codes.append((low | high << 4).flatten(1))
        steps.append(torch.stack([best.to(torch.uint8), zero.to(torch.int8).view(torch.uint8)], 2).flatten(1))
    return torch.cat([*codes, *steps], 1)


def _best_int4(x: torch.Tensor, least: torch.Tensor, greatest: torch.Tensor) -> torch.Tensor:
    """The byte [rows, parts] of each part's step: from the first one that fits on, the least error in an octave."""

    def fits(byte: torch.Tensor) -> torch.Tensor:
        low, high = _in_steps(least, byte), _in_steps(greatest, byte)
        return (high - low <= _INT4_CODES) & (low >= _INT4_LEAST) & (high <= _INT4_MOST)

    # A step does not fit if the range exceeds 17 steps, 128 above zero or 129 below it. (Numbers are rounded by half a
    # step, by one near 65504.) It fits within 14 steps, 127.5 and 128.5, and that is at most three steps further on.
    bounds = (greatest - least, _INT4_CODES + 2), (greatest, _INT4_MOST + 1), (-least, 1 - _INT4_LEAST)
    limits = _table(_int4_step, _INT4_STEPS, x.device)
    starts = torch.stack([torch.bucketize(size.contiguous(), limits * most) for size, most in bounds])
    first = starts.amax(0).clamp(max=_INT4_STEPS - 1)
    for _ in range(3):
        first = (first + ~fits(first)).clamp(max=_INT4_STEPS - 1)
    best, least_error = first, torch.full_like(least, torch.inf, dtype=torch.float64)
    for further in range(_OCTAVE):
        byte = (first + further).clamp(max=_INT4_STEPS - 1)
        step = limits[byte][..., None]
        # Exact: a code has 8 bits and a step 4, and a difference is a multiple of a bit of the number or of the step.
        error = (_in_steps(x, byte[..., None]) * step - x).abs().sum(2, dtype=torch.float64)
        better = fits(byte) & (error < least_error)
        best, least_error = torch.where(better, byte, best), torch.where(better, error, least_error)
    return best


def _in_steps(x: torch.Tensor, byte: torch.Tensor) -> torch.Tensor:
    """x / step to the nearest integer, ties to even, within what binary16 holds; right where |x / step| <= 256.

    `byte` broadcasts to x. The product with the rounded 2^13 / step is wrong by 2^-23 of it, at most a quarter, so that
    a tie becomes the integer that it is. A quotient of numbers of 11 and 4 bits that is no tie is 2^-12 or more away
    from one, which is 2 here, and stays on its side. Larger quotients are too large whichever way they are rounded.
    """
    fine = (x * _table(_fine_per_int4_step, _INT4_STEPS, x.device)[byte]).round()
    most = _table(_most_int4_steps, _INT4_STEPS, x.device)[byte]
    return (fine * (1 / _FINE)).round().clamp(-most, most)


def _in_parts(halves: torch.Tensor) -> list[torch.Tensor]:
    """Rows [rows, d] as binary32 [rows, parts, numbers]: the whole parts, and the shorter one behind them."""
    whole = halves.shape[1] // abi.FORMAT_PART * abi.FORMAT_PART
    numbers = halves.float()
    parts = numbers[:, :whole].unflatten(1, (-1, abi.FORMAT_PART)), numbers[:, None, whole:]
    return [part for part in parts if part.shape[1] * part.shape[2]]


@cache
def _table(of: Callable[[int], float], size: int, device: torch.device) -> torch.Tensor:
    """Binary32 values of a function of 0 to `size` - 1, copied to a device once, which is waited for."""
    return torch.tensor([of(i) for i in range(size)], dtype=torch.float32, device=device)


def _int8_limit(exponent: int) -> float:
    return (_INT8_MOST + 0.5) * 2.0 ** (exponent - 24)


def _per_int8_step(exponent: int) -> float:
    return 2.0 ** (24 - exponent)


def _int4_step(byte: int) -> float:
    return (8 + (byte & 7)) * 2.0 ** ((byte >> 3) - 21)


def _fine_per_int4_step(byte: int) -> float:
    return _FINE / _int4_step(byte)


def _most_int4_steps(byte: int) -> float:
    return _LARGEST // _int4_step(byte)
