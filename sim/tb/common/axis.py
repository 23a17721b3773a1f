# SPDX-License-Identifier: Apache-2.0
"""AXI4-Stream: a source and a sink of words, which are unsigned numbers."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import repeat
from typing import Any

from tb.common.bench import Bench, ProtocolError
from tb.common.stalls import Gate


class _Port:
    def __init__(self, bench: Bench, name: str) -> None:
        self.name = name
        self._data = getattr(bench.dut, f"{name}_tdata")
        self._valid = getattr(bench.dut, f"{name}_tvalid")
        self._ready = getattr(bench.dut, f"{name}_tready")
        bench.agents.append(self)


class Source(_Port):
    """Offers words in order; idle pins carry the inverse of the last word."""

    def __init__(self, bench: Bench, name: str) -> None:
        super().__init__(bench, name)
        self._mask = (1 << len(self._data)) - 1
        self._valid.value = 0
        self.offer((), repeat(True))

    def offer(self, words: Sequence[int], gate: Gate) -> None:
        """Offer these words from now on. Drops earlier words that were not taken, so call it only between jobs."""
        self.words, self.taken, self._gate, self._offered = words, 0, gate, False

    def reset(self) -> None:
        self._valid.value = 0
        self.offer((), self._gate)

    def turn(self) -> bool:
        moved = False
        if self._offered:
            if not int(self._ready.value):
                return False
            self.taken += 1
            self._offered = False
            moved = True
        if self.taken < len(self.words) and next(self._gate):
            self._data.value = self.words[self.taken]
            self._valid.value = 1
            self._offered = True
        elif moved:
            self._data.value = self.words[self.taken - 1] ^ self._mask
            self._valid.value = 0
        return moved

    def state(self) -> str:
        waits = ", TREADY is 0" if self._offered else ""
        return f"{self.name}: {self.taken} of {len(self.words)} words taken{waits}"


class Sink(_Port):
    """Takes words. A word that is offered must stay until it is taken."""

    def __init__(self, bench: Bench, name: str) -> None:
        super().__init__(bench, name)
        self.accept(repeat(True))

    def accept(self, gate: Gate) -> None:
        """Forget the words so far, and take further words when the gate allows."""
        self.words: list[int] = []
        self._gate = gate
        self._open = next(gate)
        self._ready.value = int(self._open)
        self._held: int | None = None

    def reset(self) -> None:
        self._held = None

    def turn(self) -> bool:
        moved = False
        if int(self._valid.value):
            word = _number(self._data)
            if self._held is not None and word != self._held:
                raise ProtocolError(f"{self.name}: TDATA changed before it was taken")
            self._held = None if self._open else word
            if self._open:
                self.words.append(word)
                moved = True
        elif self._held is not None:
            raise ProtocolError(f"{self.name}: TVALID fell before the word was taken")
        if self._open != (open_next := next(self._gate)):
            self._open = open_next
            self._ready.value = int(open_next)
        return moved

    def state(self) -> str:
        return f"{self.name}: {len(self.words)} words written"


def _number(handle: Any) -> int:
    return int(str(handle.value), 2)
