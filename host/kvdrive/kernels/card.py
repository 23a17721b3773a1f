"""Single kernels on a card or board: the calls of the compiled engines (kvdrive._native.Engine) for hardware.

A board runs one kernel at a time (`xrt.single`, `xrt.pynq`). Kernels with stream ports cannot be started: nothing
feeds their streams on a card.
"""

from __future__ import annotations

from typing import Any, NoReturn, Protocol

import numpy as np
from numpy.typing import NDArray

from kvdrive import abi
from kvdrive.errors import UnsupportedError
from kvdrive.kernels.job import whole_beats

U8 = NDArray[np.uint8]
U32 = NDArray[np.uint32]


class Board(Protocol):
    """`tops`: the kernels that can be started."""

    tops: tuple[str, ...]

    def run(self, top: str, buffers: list[U8], scalars: list[int]) -> int:
        """One start. The arguments of a kernel are its pointers, then its scalars. A buffer that is given twice is one
        buffer; all are written back. Returns the status word. Raises TargetError: no end before the deadline."""


class CardEngine:
    """`name`: of the engine."""

    def __init__(self, name: str, board: Board) -> None:
        self.name, self._board = name, board

    def attention(self, memory: U8, job: int) -> int:
        descriptor = memory[job : job + abi.AttentionJob.itemsize]
        whole = descriptor.size == abi.AttentionJob.itemsize
        group = int(descriptor.view(abi.AttentionJob)["group"][0]) if whole else 0
        top = self._top(f"attention_g{group}", f"attention_exact_g{group}")
        return self._board.run(top, [memory, memory, memory], [job, memory.size // abi.BEAT_BYTES])

    def argtopk(self, keys: NDArray[Any], k: int) -> tuple[int, U32, U8]:
        raw = np.ascontiguousarray(keys).reshape(-1).view(np.uint8)
        source = np.zeros(max(whole_beats(raw.size), abi.BEAT_BYTES), np.uint8)
        source[: raw.size] = raw
        indices = np.zeros(whole_beats(4 * abi.MAX_TOP_K), np.uint8)
        bitmap = np.zeros(-(-keys.size // abi.BEAT_BITS) * abi.BEAT_BYTES, np.uint8)
        kind = abi.KeyType.MAGNITUDE16 if keys.dtype == np.uint16 else abi.KeyType.BINARY32
        status = self._board.run(self._top("argtopk"), [source, indices, bitmap], [keys.size, k, int(kind)])
        if status:
            return status, np.zeros(0, np.uint32), np.zeros(0, np.uint8)
        return status, indices[: 4 * k].view(np.uint32), bitmap

    def page_filter(self, *_: Any) -> NoReturn:
        self._streams("page_filter")

    def gemv_rows(self, *_: Any) -> NoReturn:
        self._streams("gemv")

    gemv_columns = gemv_accumulate = gemv_rows

    def softmax(self, *_: Any) -> NoReturn:
        self._streams("softmax")

    def _streams(self, kernel: str) -> NoReturn:
        raise UnsupportedError(f"{kernel} has stream ports, which no image connects: take `engine=hls` or `engine=rtl`")

    def _top(self, *names: str) -> str:
        for name in names:
            if name in self._board.tops:
                return name
        raise UnsupportedError(
            f"the image has no {names[0]}, only {', '.join(self._board.tops)}: make link KERNEL={names[0]}"
        )
