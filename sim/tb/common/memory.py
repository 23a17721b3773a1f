# SPDX-License-Identifier: Apache-2.0
"""The memory behind a kernel's AXI4 masters: buffers between guard words, and the time of accesses."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from tb.common.bench import ProtocolError

PAGE = 4096
GUARD = 0xA5


@dataclass(frozen=True)
class Timing:
    """Times in cycles. `latency`: from an address to its first word. `interval`: between words. `refresh`: a pause
    every `refresh_every` cycles. `jitter`: the most extra latency of a burst, so that IDs overtake each other."""

    latency: int = 30
    interval: int = 1
    refresh_every: int = 0
    refresh: int = 0
    jitter: int = 0


IDEAL = Timing()
# "slow": a word every 4 cycles, 250 cycles of latency, refreshes like DDR4 at 300 MHz (350 ns every 7.8 us).
TIMINGS = {
    "ideal": IDEAL,
    "slow": Timing(latency=250, interval=4, refresh_every=2340, refresh=105),
    "out of order": Timing(latency=20, jitter=120),
}


class Memory:
    """Buffers at different addresses, each with a page of guard words before and after it."""

    def __init__(self) -> None:
        self.clear()

    def clear(self) -> None:
        self._next = PAGE
        self._regions: dict[str, tuple[int, int, bytearray]] = {}  # base, size, and bytes with guards, of each buffer
        self.failing: list[range] = []

    def add(self, name: str, data: bytes, offset: int) -> int:
        """Add a buffer that begins `offset` bytes into a page. Returns its address."""
        base = self._next + PAGE + offset
        guard = bytes([GUARD]) * PAGE
        self._regions[name] = base, len(data), bytearray(guard + data + guard)
        self._next = -(-(base + len(data) + PAGE) // PAGE) * PAGE
        return base

    def place(self, address: int) -> tuple[str, int]:
        """The buffer that contains an address, and the offset in it."""
        for name, (base, size, _) in self._regions.items():
            if base <= address < base + size:
                return name, address - base
        raise KeyError(address)

    def content(self, name: str) -> np.ndarray:
        """The bytes of a buffer."""
        _, size, data = self._regions[name]
        return np.frombuffer(bytes(data[PAGE : PAGE + size]), np.uint8)

    def read(self, address: int, size: int) -> int:
        """Read a bus word. Raises ProtocolError unless it overlaps a buffer."""
        for base, length, data in self._regions.values():
            if address + size > base and address < base + length:
                at = address - base + PAGE
                return int.from_bytes(data[at : at + size], "little")
        raise ProtocolError(f"read at {address:#x}, which is in no buffer")

    def write(self, address: int, word: int, strobe: int, size: int) -> None:
        """Write the bytes of a bus word whose strobes are set. Raises ProtocolError beyond the guard words."""
        for base, length, data in self._regions.values():
            if base - PAGE <= address and address + size <= base + length + PAGE:
                at = address - base + PAGE
                given = word.to_bytes(size, "little")
                if strobe == (1 << size) - 1:
                    data[at : at + size] = given
                    return
                for lane in range(size):
                    if strobe >> lane & 1:
                        data[at + lane] = given[lane]
                return
        raise ProtocolError(f"write at {address:#x}, which is in no buffer")

    def fails(self, address: int, size: int) -> bool:
        """True if the access must get an error response."""
        return any(address < one.stop and address + size > one.start for one in self.failing)

    def check_guards(self) -> None:
        """Raises AssertionError if the kernel wrote outside of a buffer."""
        for name, (base, size, data) in self._regions.items():
            for side, guard in (("before", data[:PAGE]), ("behind", data[PAGE + size :])):
                if changed := PAGE - guard.count(GUARD):
                    raise AssertionError(f"{changed} guard bytes {side} the buffer {name} at {base:#x} were written")
