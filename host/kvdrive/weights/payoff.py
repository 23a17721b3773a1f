"""Says if prefetching experts pays, from what it would have gained lately.

A layer computes for some time while the disk has nothing to read for it. In this time the disk can read some experts of
the next layer. Those that are used then save the time of their reads. The others cost time of the processor and a slot,
and when the router has chosen, their reads are cancelled; the pieces in flight are in the way of other reads then.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from kvdrive.weights.eviction import Key
from kvdrive.weights.reader import Reader
from kvdrive.weights.slots import Slots

_MEMORY = 63 / 64  # weight of the past against one layer
_TRUSTED = 16  # layers before the first decision
_WRONG = 1 / 3  # of the time of a read: what a wrong one costs while the disk is idle, by `make bench SUITE=weights`


@dataclass
class Payoff:
    """Running means over layers. `in_flight`: experts that the pieces in flight of a cancelled read amount to."""

    in_flight: float
    layers: int = 0
    _missing: float = 0.0  # experts of a guess that were not in memory
    _used: float = 0.0  # of these, experts that the layer then needed
    _computing: float = 0.0
    _weight: float = 0.0

    def add(self, missing: int, used: int, computing_ns: int) -> None:
        """One layer: of its guess `missing` experts were not in memory, and `used` of these were needed.

        `computing_ns`: time in which the disk had no reads to do that the layer before waited for.
        """
        self.layers += 1
        self._weight = _MEMORY * self._weight + 1
        self._missing = _MEMORY * self._missing + missing
        self._used = _MEMORY * self._used + used
        self._computing = _MEMORY * self._computing + computing_ns

    @property
    def precision(self) -> float | None:
        """Share of the experts that were or would have been prefetched that were used; None before the first."""
        return self._used / self._missing if self._missing else None

    def pays(self, read_ns: float) -> bool:
        """True if prefetching saves time, where the disk reads an expert in `read_ns`."""
        if self.layers < _TRUSTED or not self._missing:
            return False
        missing, hidden = self._missing / self._weight, self._computing / self._weight / read_ns
        right, ended = self._used / self._missing, min(missing, hidden)  # reads that have ended when the router chooses
        in_the_way = self.in_flight if missing > hidden else 0
        return right * ended > (1 - right) * (_WRONG * ended + in_the_way)


class Pace:
    """Says to a running model if prefetches begin. `clock`: ns."""

    def __init__(self, slots: Slots, file: Reader, clock: Callable[[], int] = time.perf_counter_ns) -> None:
        self._slots, self._file, self._clock = slots, file, clock
        self._expert_bytes = slots.stride
        self._before = file.counters()
        self._missing: set[Key] | None = None
        self._since = 0
        self.payoff = Payoff(file.ahead_in_flight_bytes / self._expert_bytes)

    def foresees(self, keys: Sequence[Key]) -> bool:
        """The guess for the next layer. True if the reads of those that are not in memory should begin."""
        self._missing = {key for key in keys if key not in self._slots}
        now = self._file.counters()
        count, busy = now["bytes"] - self._before["bytes"], now["busy_ns"] - self._before["busy_ns"]
        return count > 0 and self.payoff.pays(busy / count * self._expert_bytes)

    def computes(self) -> None:
        """Every expert that the layer needs is in memory: from here on the disk reads for the next layer."""
        self._since = self._clock()

    def routed(self, keys: Sequence[Key]) -> None:
        """The experts that the next layer really needs."""
        if self._missing is not None:
            self.payoff.add(len(self._missing), len(self._missing.intersection(keys)), self._clock() - self._since)
        self._missing = None
