"""What a llama_batch points at."""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from dataclasses import dataclass

from kvdrive.llama.structures import Batch


@dataclass(frozen=True)
class Part:
    """Tokens `ids` of a sequence, by llama.cpp's number of it, from `position` on."""

    sequence: int
    position: int
    ids: Sequence[int]


class Arrays:
    """Room for a batch of up to `room` tokens of `count` sequences."""

    def __init__(self, room: int, count: int) -> None:
        self.room = room
        self._token = (ctypes.c_int32 * room)()
        self._position = (ctypes.c_int32 * room)()
        self._one = (ctypes.c_int32 * room)(*[1] * room)
        self._wanted = (ctypes.c_int8 * room)()
        self._numbers = (ctypes.c_int32 * count)(*range(count))
        first, size = ctypes.addressof(self._numbers), ctypes.sizeof(ctypes.c_int32)
        self._pointers = [ctypes.cast(first + number * size, ctypes.POINTER(ctypes.c_int32)) for number in range(count)]
        self._sequence = (ctypes.POINTER(ctypes.c_int32) * room)()

    def filled(self, parts: Sequence[Part], every: bool) -> Batch:
        """A batch of parts, with the logits of `every` token or of the last one. It is valid until the next call."""
        end = 0
        for part in parts:
            first, end = end, end + len(part.ids)
            self._token[first:end] = list(part.ids)
            self._position[first:end] = list(range(part.position, part.position + len(part.ids)))
            self._sequence[first:end] = [self._pointers[part.sequence]] * len(part.ids)
        ctypes.memset(self._wanted, int(every), end)
        self._wanted[end - 1] = 1
        return Batch(end, self._token, None, self._position, self._one, self._sequence, self._wanted)
