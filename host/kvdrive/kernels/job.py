"""Attention jobs as memory images: what a kernel, an engine or a drive sees.

Layouts are those of abi/abi.toml; docs/reference/jobs.md says which arrays a mode reads and writes.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from kvdrive import abi

Array = NDArray[np.generic]
GUARD = 64  # bytes between arrays, filled with a pattern so that stray writes show


def aligned_zeros(size: int) -> NDArray[np.uint8]:
    """`size` zero bytes whose first byte lies on a 64-byte boundary."""
    raw = np.zeros(size + abi.BEAT_BYTES, np.uint8)
    start = -raw.ctypes.data % abi.BEAT_BYTES
    return raw[start : start + size]


def whole_beats(size: int) -> int:
    """`size` in bytes, rounded up to whole 64-byte beats."""
    return -(-size // abi.BEAT_BYTES) * abi.BEAT_BYTES


def block_columns(rows: NDArray[np.uint16]) -> NDArray[np.uint16]:
    """Token-major [tokens, r] to the block-column form [ceil(tokens/32), r, 32], zero padded."""
    tokens, r = rows.shape
    blocks = -(-tokens // abi.LANES)
    padded = np.zeros((blocks * abi.LANES, r), np.uint16)
    padded[:tokens] = rows
    return np.ascontiguousarray(padded.reshape(blocks, abi.LANES, r).transpose(0, 2, 1))


def pad_scores(scores: NDArray[np.int32]) -> NDArray[np.int32]:
    """[g, t] scores with rows padded to whole beats (16 scores)."""
    g, tokens = scores.shape
    padded = np.zeros((g, -(-tokens // 16) * 16), np.int32)
    padded[:, :tokens] = scores
    return padded


class JobMemory:
    """Builds a memory image: descriptor first, then every array at its own aligned address.

    `place` copies an array in, `reserve` leaves room for an output, `image` returns the finished memory and `read`
    takes an output out again.
    """

    def __init__(self, mode: abi.Mode, group: int, head_dim: int, **fields: int) -> None:
        self.descriptor = np.zeros((), abi.AttentionJob)
        self.descriptor["version"] = abi.ABI_VERSION
        self.descriptor["mode"] = mode
        self.descriptor["group"] = group
        self.descriptor["head_dim"] = head_dim
        for name, value in fields.items():
            self.descriptor[name] = value
        self._arrays: dict[str, NDArray[np.uint8]] = {}
        self._next = whole_beats(abi.AttentionJob.itemsize) + GUARD

    def place(self, name: str, array: Array) -> None:
        """Copy `array` into the field `name` (its bytes, C order)."""
        data = np.ascontiguousarray(array).reshape(-1).view(np.uint8)
        self.descriptor[name] = self._next
        self._arrays[name] = data
        self._next += whole_beats(data.size) + GUARD

    def reserve(self, name: str, size: int) -> None:
        """Room of `size` bytes, zeroed, for the output `name`."""
        self.place(name, np.zeros(size, np.uint8))

    def image(self) -> NDArray[np.uint8]:
        """The memory, 64-byte aligned, descriptor at byte 0."""
        memory = aligned_zeros(self._next)
        memory[:] = 0xA5
        memory[: abi.AttentionJob.itemsize] = self.descriptor.reshape(1).view(np.uint8)
        for name, data in self._arrays.items():
            start = int(self.descriptor[name])
            memory[start : start + whole_beats(data.size)] = 0
            memory[start : start + data.size] = data
        return memory

    def read(self, memory: NDArray[np.uint8], name: str, dtype: np.dtype[np.generic] | type) -> Array:
        """The array `name` of a memory made by `image`, as `dtype`."""
        start = int(self.descriptor[name])
        return memory[start : start + self._arrays[name].size].view(dtype).copy()
