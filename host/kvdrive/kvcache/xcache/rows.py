"""A layer's input X as rows of binary16 patterns, which is what a drive stores."""

from __future__ import annotations

import numpy as np
import torch
from numpy.typing import NDArray

from kvdrive import abi
from kvdrive.errors import RangeError, UnsupportedError
from kvdrive.nvme.commands import Halves

MAX_SLICES = 256  # heads of a layer that a drive can name
_EXPONENT = 0x7C00  # all ones: Inf or NaN, which a drive refuses
_FINITE = 63488  # finite binary16 patterns
_MAGNITUDES = _FINITE // 2
_LARGEST = 192 << 23  # binary32 magnitudes below 2^65 are fewer than this


class InputRows:
    """X of one model: `width` numbers of `dtype` for each token, as `slices` rows of `slice_dim` patterns.

    A number of 16 bits is stored as it is. A binary32 number becomes two finite patterns: quotient and remainder of its
    bits divided by 63488. Both are exact. Raises UnsupportedError for other precisions and for widths that fit no rows.
    """

    def __init__(self, width: int, dtype: torch.dtype, head_dim: int) -> None:
        if dtype not in (torch.float16, torch.bfloat16, torch.float32):
            raise UnsupportedError(f"X-cache keeps inputs in binary16, bfloat16 or binary32, not {dtype}")
        self.width, self.dtype = width, dtype
        patterns = width * dtype.itemsize // 2
        sizes = (head_dim, *range(abi.MAX_HEAD_DIM, 0, -abi.COMMAND_HEAD_DIM_STEP))
        fitting = [size for size in sizes if patterns % size == 0 and patterns // size <= MAX_SLICES]
        if not fitting:
            raise UnsupportedError(f"layer inputs of {width} numbers cannot be cut into rows that a drive stores")
        self.slice_dim = fitting[0]
        self.slices = patterns // self.slice_dim

    @property
    def token_bytes(self) -> int:
        """Bytes of one token's X in one layer."""
        return self.width * int(self.dtype.itemsize)

    def encode(self, x: torch.Tensor) -> Halves:
        """X [tokens, width] -> patterns [slices, tokens, slice_dim]. Raises RangeError where X is too large."""
        x = x.detach().cpu().contiguous()
        if self.dtype == torch.float32:
            patterns = _two_patterns(x.view(torch.int32).numpy().view(np.uint32))
        else:
            patterns = x.view(torch.int16).numpy().view(np.uint16)
            if ((patterns & _EXPONENT) == _EXPONENT).any():
                raise _too_large()
        cut = patterns.reshape(len(x), self.slices, self.slice_dim).transpose(1, 0, 2)
        return np.ascontiguousarray(cut).view(np.float16)

    def decode(self, rows: Halves) -> torch.Tensor:
        """What `encode` returned -> X [tokens, width], the same bits."""
        tokens = rows.shape[1]
        patterns = np.ascontiguousarray(rows.view(np.uint16).transpose(1, 0, 2)).reshape(tokens, -1)
        if self.dtype == torch.float32:
            return torch.from_numpy(_one_number(patterns).view(np.int32)).view(torch.float32)
        return torch.from_numpy(patterns.view(np.int16)).view(self.dtype)


def _two_patterns(bits: NDArray[np.uint32]) -> NDArray[np.uint16]:
    """Binary32 bits [tokens, n] -> finite binary16 patterns [tokens, 2 n]. Raises RangeError from 2^65 on."""
    magnitude = bits & np.uint32(0x7FFFFFFF)
    if magnitude.max(initial=0) >= _LARGEST:
        raise _too_large()
    number = magnitude + (bits >> np.uint32(31)) * np.uint32(_LARGEST)
    quotient, remainder = np.divmod(number, np.uint32(_FINITE))
    both = np.concatenate([quotient, remainder], axis=1).astype(np.uint16)
    return np.where(both < _MAGNITUDES, both, both - np.uint16(_MAGNITUDES) + np.uint16(0x8000)).astype(np.uint16)


def _one_number(patterns: NDArray[np.uint16]) -> NDArray[np.uint32]:
    """The inverse of `_two_patterns`."""
    count = patterns.shape[1] // 2
    both = patterns.astype(np.uint32)
    both = np.where(both < 0x8000, both, both - np.uint32(0x8000) + np.uint32(_MAGNITUDES))
    number = both[:, :count] * np.uint32(_FINITE) + both[:, count:]
    negative = number >= _LARGEST
    bits: NDArray[np.uint32] = np.where(negative, number - np.uint32(_LARGEST) + np.uint32(1 << 31), number)
    return bits.astype(np.uint32)


def _too_large() -> RangeError:
    return RangeError("a layer's input holds Inf, NaN or a number that is too large for X-cache: attach without it")
