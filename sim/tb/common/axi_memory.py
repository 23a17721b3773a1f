# SPDX-License-Identifier: Apache-2.0
"""An AXI4 slave in front of a memory, for one master. It checks every rule for the master's bursts.

The code is our own: the slave of cocotbext-axi answers in order, one burst at a time, and has no times of a DRAM.
"""

from __future__ import annotations

from collections import Counter, deque
from dataclasses import dataclass, field
from itertools import repeat
from typing import Any

import numpy as np

from tb.common.bench import Bench, ProtocolError
from tb.common.memory import PAGE, Memory, Timing
from tb.common.stalls import Gate

SLVERR = 2
_LONGEST = (16, 64)  # words of the longest bursts that the kernels ask for
_ADDRESS = ("ADDR", "LEN", "SIZE", "BURST", "ID")
CHANNELS = ("AR", "R", "AW", "W", "B")


@dataclass
class _Burst:
    address: int
    words: int
    id: int
    ready: list[int] = field(default_factory=list)  # a read: the cycle of each word; a write: the cycle of its response
    stores: list[tuple[int, int, int]] = field(default_factory=list)
    done: int = 0


class AxiMemory:
    """Keeps the order of bursts with the same ID. If several IDs are ready, a random one is served.

    `bursts` counts bursts by their kind; `touched`: addresses of the words that were read or written since `begin`.
    """

    def __init__(self, bench: Bench, bundle: str, memory: Memory) -> None:
        self.name = bundle
        self._bench, self._memory = bench, memory
        dut = bench.dut
        names = [f"{channel}{part}" for channel in ("AR", "AW") for part in (*_ADDRESS, "VALID", "READY")]
        names += ["RDATA", "RID", "RRESP", "RLAST", "RVALID", "RREADY", "WDATA", "WSTRB", "WLAST", "WVALID", "WREADY"]
        names += ["BID", "BRESP", "BVALID", "BREADY"]
        self._pins: dict[str, Any] = {name: getattr(dut, f"m_axi_{bundle}_{name}") for name in names}
        self._bytes = len(self._pins["WSTRB"])
        self._rng = np.random.default_rng(0)
        self._timing = Timing()
        self._gates: dict[str, Gate] = {channel: repeat(True) for channel in CHANNELS}
        self.read_words = 0  # since `begin`
        self.bursts: Counter[str] = Counter()
        self.touched: dict[str, set[int]] = {"read": set(), "write": set()}
        self.most_outstanding = 0
        self.reset()
        bench.agents.append(self)

    def begin(self, rng: np.random.Generator, timing: Timing, gates: dict[str, Gate]) -> None:
        """Prepare for the next job. No burst may be in flight."""
        self._rng, self._timing, self._gates = rng, timing, gates
        self.read_words = 0
        self.touched = {"read": set(), "write": set()}

    def reset(self) -> None:
        self._reads: dict[int, deque[_Burst]] = {}
        self._writes: deque[_Burst] = deque()
        self._answers: dict[int, deque[_Burst]] = {}
        self._read: _Burst | None = None  # the burst whose word is on the pins
        self._answer: _Burst | None = None
        self._held: dict[str, tuple[int, ...]] = {}
        self._open = dict.fromkeys(("AR", "AW", "W"), False)
        self._free = 0
        for name in ("RVALID", "BVALID", "ARREADY", "AWREADY", "WREADY"):
            self._pins[name].value = 0

    @property
    def idle(self) -> bool:
        return not (self._reads or self._writes or self._answers or self._read or self._answer)

    def turn(self) -> bool:
        moved = self._finish_read() | self._finish_answer()
        moved |= self._take_address("AR") | self._take_address("AW") | self._take_word()
        self._offer_read()
        self._offer_answer()
        for channel in self._open:
            opens = next(self._gates[channel]) and (channel != "W" or bool(self._writes))
            if opens != self._open[channel]:
                self._open[channel] = opens
                self._pins[f"{channel}READY"].value = int(opens)
        return moved

    # ---- channels from the master ----

    def _moves(self, channel: str, parts: tuple[str, ...]) -> tuple[int, ...] | None:
        """The payload, if it is transferred in this cycle. Raises ProtocolError if it changed while it waited."""
        held = self._held.get(channel)
        if not int(self._pins[f"{channel}VALID"].value):
            if held is not None:
                raise ProtocolError(f"{self.name}: {channel}VALID fell before it was taken")
            return None
        payload = tuple(int(str(self._pins[channel + part].value), 2) for part in parts)
        if held is not None and payload != held:
            raise ProtocolError(f"{self.name}: {channel} changed before it was taken")
        if self._open[channel]:
            self._held.pop(channel, None)
            return payload
        self._held[channel] = payload
        return None

    def _take_address(self, channel: str) -> bool:
        payload = self._moves(channel, _ADDRESS)
        if payload is None:
            return False
        address, length, size, kind, id_ = payload
        at = f"{self.name}: the burst of {length + 1} words at {address:#x}"
        if kind != 1:
            raise ProtocolError(f"{at} is not INCR")
        if 1 << size != self._bytes:
            raise ProtocolError(f"{at} has words of {1 << size} bytes on a bus of {self._bytes}")
        if address % self._bytes:
            raise ProtocolError(f"{at} begins within a bus word")
        if address % PAGE + (length + 1) * self._bytes > PAGE:
            raise ProtocolError(f"{at} crosses 4 KB")
        burst = _Burst(address, length + 1, id_)
        self._count(burst, "read" if channel == "AR" else "write")
        if channel == "AR":
            burst.ready = self._schedule(burst.words)
            self._reads.setdefault(id_, deque()).append(burst)
            self.most_outstanding = max(self.most_outstanding, sum(map(len, self._reads.values())))
        else:
            self._writes.append(burst)
        return True

    def _count(self, burst: _Burst, kind: str) -> None:
        end = burst.address + burst.words * self._bytes
        whole = burst.words in _LONGEST
        size = f"{burst.words} words" if whole else "less, cut at 4 KB" if end % PAGE == 0 else "less"
        self.bursts[f"{self.name} {kind}, {size}"] += 1
        self.touched[kind].update(range(burst.address, end, self._bytes))

    def _take_word(self) -> bool:
        payload = self._moves("W", ("DATA", "STRB", "LAST"))
        if payload is None:
            return False
        word, strobe, last = payload
        burst = self._writes[0]
        burst.stores.append((burst.address + burst.done * self._bytes, word, strobe))
        burst.done += 1
        if last != (burst.done == burst.words):
            raise ProtocolError(
                f"{self.name}: WLAST is wrong at word {burst.done} of {burst.words} at {burst.address:#x}"
            )
        if last:
            self._writes.popleft()
            burst.ready = self._schedule(burst.words)[-1:]
            self._answers.setdefault(burst.id, deque()).append(burst)
        return True

    # ---- channels to the master ----

    def _schedule(self, words: int) -> list[int]:
        """Compute the cycles in which the words of a burst are ready."""
        timing = self._timing
        extra = int(self._rng.integers(timing.jitter + 1)) if timing.jitter else 0
        at = self._bench.cycle + timing.latency + extra
        if not timing.jitter:
            at = max(at, self._free)
        ready = []
        for _ in range(words):
            if timing.refresh_every and at % timing.refresh_every < timing.refresh:
                at += timing.refresh - at % timing.refresh_every
            ready.append(at)
            at += timing.interval
        self._free = at
        return ready

    def _choose(self, queues: dict[int, deque[_Burst]], word: int | None = None) -> _Burst | None:
        """The first burst of an ID, if its next word is ready."""
        now = self._bench.cycle
        ready = [
            queue[0] for queue in queues.values() if queue[0].ready[queue[0].done if word is None else word] <= now
        ]
        if not ready:
            return None
        return ready[int(self._rng.integers(len(ready)))] if len(ready) > 1 else ready[0]

    def _offer_read(self) -> None:
        if self._read is not None or not self._reads or not next(self._gates["R"]):
            return
        burst = self._choose(self._reads)
        if burst is None:
            return
        address = burst.address + burst.done * self._bytes
        pins = self._pins
        pins["RDATA"].value = self._memory.read(address, self._bytes)
        pins["RID"].value = burst.id
        pins["RRESP"].value = SLVERR if self._memory.fails(address, self._bytes) else 0
        burst.done += 1
        pins["RLAST"].value = int(burst.done == burst.words)
        pins["RVALID"].value = 1
        self._read = burst
        if burst.done == burst.words:
            self._drop(self._reads, burst.id)

    def _finish_read(self) -> bool:
        if self._read is None or not int(self._pins["RREADY"].value):
            return False
        self._read = None
        self.read_words += 1
        self._pins["RVALID"].value = 0
        return True

    def _offer_answer(self) -> None:
        if self._answer is not None or not self._answers or not next(self._gates["B"]):
            return
        burst = self._choose(self._answers, 0)
        if burst is None:
            return
        for address, word, strobe in burst.stores:
            self._memory.write(address, word, strobe, self._bytes)
        failed = any(self._memory.fails(address, self._bytes) for address, _, _ in burst.stores)
        self._pins["BID"].value = burst.id
        self._pins["BRESP"].value = SLVERR if failed else 0
        self._pins["BVALID"].value = 1
        self._answer = burst
        self._drop(self._answers, burst.id)

    def _finish_answer(self) -> bool:
        if self._answer is None or not int(self._pins["BREADY"].value):
            return False
        self._answer = None
        self._pins["BVALID"].value = 0
        return True

    @staticmethod
    def _drop(queues: dict[int, deque[_Burst]], id_: int) -> None:
        queues[id_].popleft()
        if not queues[id_]:
            del queues[id_]

    def state(self) -> str:
        reads = sum(map(len, self._reads.values()))
        writes = len(self._writes) + sum(map(len, self._answers.values()))
        return f"{self.name}: {reads} bursts of reads and {writes} of writes on their way"
