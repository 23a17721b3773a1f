"""A bounded number of page-aligned buffers in memory."""

from __future__ import annotations

import mmap
import threading

import numpy as np
from numpy.typing import NDArray

Bytes = NDArray[np.uint8]


class Buffers:
    """`count` buffers of `size` bytes, a multiple of 4096. Their memory is used when they are written first."""

    def __init__(self, count: int, size: int) -> None:
        self.count = count
        memory = np.frombuffer(mmap.mmap(-1, count * size), np.uint8)
        self._buffers = memory.reshape(count, size)
        self._free = list(range(count))
        self._changed = threading.Condition()

    @property
    def free(self) -> int:
        """Number of free buffers."""
        return len(self._free)

    def __getitem__(self, number: int) -> Bytes:
        """The bytes of buffer `number`."""
        buffer: Bytes = self._buffers[number]
        return buffer

    def take(self) -> int | None:
        """The number of a free buffer; None if there is none."""
        with self._changed:
            return self._free.pop() if self._free else None

    def wait(self) -> int:
        """The number of a free buffer, as soon as there is one."""
        with self._changed:
            self._changed.wait_for(lambda: self._free)
            return self._free.pop()

    def give(self, number: int) -> None:
        """Return a buffer."""
        with self._changed:
            self._free.append(number)
            self._changed.notify()
