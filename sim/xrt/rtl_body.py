# SPDX-License-Identifier: Apache-2.0
"""A kernel's own hardware description as the body of a compute unit.

The simulation writes the job's arguments through the kernel's AXI-Lite registers, starts it and waits for its interrupt
(sim/rtl). Its memory is a copy of the buffers that the pointers lead to.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Mapping

import numpy as np

from rtl.kernels import find_tops
from rtl.library import Model, library_of
from xrt.memory import CardMemory
from xrt.units import Register

_LATENCY = 30.0  # cycles

# The allocated buffer that holds an address: its first address and its size in bytes.
BufferAt = Callable[[int], tuple[int, int]]


class RtlBody:
    def __init__(self, name: str, registers: list[Register], memory: CardMemory, buffer_at: BufferAt) -> None:
        (top,) = find_tops(name)
        self._model = Model(library_of(top), top.clock_mhz, _LATENCY)
        self._registers, self._memory, self._buffer_at = registers, memory, buffer_at

    def __call__(self, values: Mapping[str, int]) -> int:
        self._model.clear_buffers()
        placed: dict[tuple[int, int], int] = {}
        arguments = dict(values)
        for register in self._registers:
            if register.pointer:
                buffer = self._buffer_at(values[register.name])
                if buffer not in placed:
                    placed[buffer] = self._model.add_buffer(self._view(*buffer))
                arguments[register.name] = placed[buffer] + values[register.name] - buffer[0]
        self._model.set(**arguments)
        self._model.run()
        for number, (address, size) in enumerate(placed):
            self._view(address, size)[:] = self._model.read_buffer(number, size)
        return self._model.get("return")

    def _view(self, address: int, size: int) -> np.ndarray[tuple[int], np.dtype[np.uint8]]:
        at = ctypes.cast(self._memory.pointer(address, size), ctypes.POINTER(ctypes.c_uint8))
        return np.ctypeslib.as_array(at, (size,))
