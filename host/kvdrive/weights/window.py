"""Memory for the neurons of one layer that recent tokens used: the paper's memory manager.

Rows lie one behind the other in memory that is allocated once, so that a product reads them without gathering. A group
of neurons that leaves is replaced by the last one, and a new group comes behind the last one.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray

from kvdrive.weights.bundles import Array
from kvdrive.weights.file import WeightsFile, aligned

Groups = NDArray[np.int64]


@dataclass
class WindowCounters:
    """Groups of neurons that tokens needed: `hits` were in memory, `misses` were read."""

    hits: int = 0
    misses: int = 0


class Window:
    """At most `capacity` groups of neurons of `array`. Those that none of the last `calls` calls needed leave memory.

    `pointer[i]` is the number of the group in place i, and the first `used` places are taken; `neurons`: of a group.
    Not safe to call concurrently.
    """

    def __init__(self, file: WeightsFile, array: Array, capacity: int, calls: int) -> None:
        self._file, self._array, self._calls = file, array, calls
        self.capacity = capacity
        self._memory = aligned(capacity * array.stride).reshape(capacity, array.stride)
        self._part = array.parts[0]
        self._stored = self._part.view(torch.from_numpy(self._memory))
        self.neurons, self.width = self._part.shape
        self.pointer = np.zeros(capacity, np.int64)
        self._last_active = np.zeros(capacity, np.int64)
        self._place = np.full(array.count, -1, np.int64)
        self.used = 0
        self._now = 0
        self.counters = WindowCounters()

    def hold(self, groups: Groups) -> None:
        """Have these groups in memory, at most `capacity`; others may stay. Raises TargetError."""
        self._now += 1
        there = groups[self._place[groups] >= 0]
        missing = groups[self._place[groups] < 0]
        self._last_active[self._place[there]] = self._now
        self.counters.hits += len(there)
        self.counters.misses += len(missing)
        self._leave(np.flatnonzero(self._last_active[: self.used] <= self._now - self._calls))
        if (excess := self.used + len(missing) - self.capacity) > 0:
            self._leave(np.argsort(self._last_active[: self.used], kind="stable")[:excess])
        self._read(missing)

    def held_first(self, groups: Groups) -> Groups:
        """These groups, those in memory in front."""
        return groups[np.argsort(self._place[groups] < 0, kind="stable")]

    def rows(self, groups: Groups, dtype: torch.dtype) -> tuple[torch.Tensor, Groups]:
        """The neurons of `groups`, which are in memory, as rows [neurons, width], and the groups that these are.

        Where the numbers are stored in this precision, they are all groups in memory, where they lie.
        """
        if self._part.is_in(dtype):
            return self._stored[: self.used].view(-1, self.width), self.pointer[: self.used]
        chosen = self._stored[torch.from_numpy(self._place[groups])]
        return self._part.numbers_of(chosen, dtype).view(-1, self.width), groups

    def _read(self, missing: Groups) -> None:
        """Read groups behind the last one. If a read fails, none of them is there. Raises TargetError."""
        places = range(self.used, self.used + len(missing))
        tickets = [
            self._file.start(self._array, int(group), self._memory[place])
            for group, place in zip(missing, places, strict=True)
        ]
        errors = []
        for ticket, group in zip(tickets, missing, strict=True):
            try:
                self._file.wait(ticket, self._array, int(group))
            except Exception as error:  # the other reads still write into the memory
                errors.append(error)
        if errors:
            raise errors[0]
        self.pointer[places] = missing
        self._last_active[places] = self._now
        self._place[missing] = places
        self.used += len(missing)

    def _leave(self, places: NDArray[np.int64]) -> None:
        """The groups in these places leave; the last ones take their places."""
        for place in sorted(places.tolist(), reverse=True):
            self._place[self.pointer[place]] = -1
            self.used -= 1
            if place != self.used:
                self._memory[place] = self._memory[self.used]
                self.pointer[place] = self.pointer[self.used]
                self._last_active[place] = self._last_active[self.used]
                self._place[self.pointer[place]] = place
