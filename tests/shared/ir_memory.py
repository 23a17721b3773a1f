# SPDX-License-Identifier: Apache-2.0
"""Memory behind the ports of a program that is interpreted: it serves their streams as openhls.ir.MemoryPort says."""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass, field

from openhls.errors import OpenHlsError
from openhls.ir import REQUEST_FIELDS, MemoryPort, signed

PAGE = 4096  # bytes; buffers begin on a page, as far apart as an access can go astray
APART = 1 << 40


class MemoryFault(OpenHlsError):
    """An element outside the buffer of a pointer, or what is left on the streams of a port at the end."""


@dataclass
class _Run:
    address: int
    stride: int  # elements
    left: int


@dataclass
class Memory:
    """One port. `contents` are the bytes from `address` on; `queues` are the words on its streams, by their kind."""

    port: MemoryPort
    address: int
    contents: bytearray
    queues: dict[str, deque[int]]
    _runs: dict[str, _Run] = field(default_factory=dict)

    def read(self) -> bool:
        """Gives the next element that is asked for; whether there was one."""
        place = self._place("ar")
        if place is None:
            return False
        self.queues["r"].append(int.from_bytes(self.contents[place : place + self._size], "little"))
        return True

    def write(self) -> bool:
        """Takes the next element, if it and its request are there, and answers after the last of a request."""
        if not self.queues.get("w"):
            return False
        place = self._place("aw")
        if place is None:
            return False
        word = self.queues["w"].popleft()
        self.contents[place : place + self._size] = word.to_bytes(self._size, "little")
        if not self._runs["aw"].left:
            self.queues["b"].append(0)
        return True

    def serve(self) -> None:
        """Serve all requests."""
        while self.read() or self.write():
            pass

    def check_done(self) -> None:
        """Raises MemoryFault unless every request was met and every word taken."""
        left = [kind for kind, words in self.queues.items() if words]
        left += [kind for kind, run in self._runs.items() if run.left]
        if left:
            raise MemoryFault(f"{self.port.name}: the program ended before {', '.join(dict.fromkeys(left))} was done")

    @property
    def _size(self) -> int:
        return self.port.width // 8

    def _place(self, kind: str) -> int | None:
        """Where the next element of the requests `kind` is in `contents`; None if none is asked for."""
        run = self._runs.get(kind)
        if run is None or not run.left:
            if not self.queues.get(kind):
                return None
            run = self._runs[kind] = self._request(self.queues[kind].popleft())
        place = (run.address - self.address) % (1 << 64)
        if place % self._size or place + self._size > len(self.contents):
            bytes_away = place - (1 << 64 if place >> 63 else 0)
            raise MemoryFault(f"{self.port.name}: an element at byte {bytes_away} of {len(self.contents)}")
        run.address += run.stride * self._size
        run.left -= 1
        return place

    def _request(self, word: int) -> _Run:
        fields, low = {}, 0
        for name, width in REQUEST_FIELDS:
            fields[name] = word >> low & ((1 << width) - 1)
            low += width
        if not fields["count"]:
            raise MemoryFault(f"{self.port.name}: a request for no element")
        stride = signed(fields["stride"], 32)
        return _Run(fields["address"], stride, fields["count"])


def attach(
    memories: tuple[MemoryPort, ...], buffers: Mapping[str, bytes], words: Mapping[str, deque[int]]
) -> dict[str, Memory]:
    """The memories by the names of their streams; `words` are those on the streams of the top, by name."""
    found = {}
    for number, port in enumerate(memories, 1):
        kinds = {kind: f"{port.name}_{kind}" for kind in ("ar", "r", "aw", "w", "b") if f"{port.name}_{kind}" in words}
        queues = {kind: words[stream] for kind, stream in kinds.items()}
        memory = Memory(port, number * APART + PAGE, bytearray(buffers.get(port.name, b"")), queues)
        found.update(dict.fromkeys(kinds.values(), memory))
    return found
