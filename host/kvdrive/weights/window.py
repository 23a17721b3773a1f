"""Memory for the neurons of one layer that recent tokens used: the paper's memory manager.

Rows lie one behind the other in memory that is allocated once, so that a product reads them without gathering. A group
of neurons that leaves is replaced by the last one, and a new group comes behind the last one.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch

from kvdrive.errors import TargetError
from kvdrive.weights.bundles import I64, U8, Array
from kvdrive.weights.file import aligned
from kvdrive.weights.reader import Reader

Groups = I64

_ROWS = 512


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

    def __init__(self, file: Reader, array: Array, capacity: int, calls: int) -> None:
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

    def hold(self, groups: Groups, briefly: Groups | None = None) -> None:
        """Have these groups in memory, at most `capacity`; others may stay. Raises TargetError.

        `briefly`: those of them that this call does not count as a use of.
        """
        self._now += 1
        briefly = np.zeros(0, np.int64) if briefly is None else briefly
        before = self._last_active[self._place[briefly]]
        before[self._place[briefly] < 0] = self._now - self._calls  # they leave with the next call
        there = groups[self._place[groups] >= 0]
        missing = groups[self._place[groups] < 0]
        self._last_active[self._place[there]] = self._now
        self.counters.hits += len(there)
        self.counters.misses += len(missing)
        self._leave(np.flatnonzero(self._last_active[: self.used] <= self._now - self._calls))
        if (excess := self.used + len(missing) - self.capacity) > 0:
            self._leave(np.argsort(self._last_active[: self.used], kind="stable")[:excess])
        self._read(missing)
        self._last_active[self._place[briefly]] = before

    def held_first(self, groups: Groups) -> Groups:
        """These groups, those in memory in front."""
        return groups[np.argsort(self._place[groups] < 0, kind="stable")]

    def rows(self, groups: Groups, dtype: torch.dtype) -> tuple[torch.Tensor, Groups]:
        """The neurons of `groups`, which are in memory, as rows [neurons, width], and the groups that these are.

        Where the numbers are stored in this precision, they are all groups in memory, where they lie. Finite rows that
        mean nothing follow: torch keeps a kernel for each number of rows, so there are few such numbers.
        """
        if self._part.is_in(dtype):
            return self._stored[: self._rounded(self.used)].view(-1, self.width), self.pointer[: self.used]
        places = np.zeros(self._rounded(len(groups)), np.int64)
        places[: len(groups)] = self._place[groups]
        chosen = self._stored[torch.from_numpy(places)]
        return self._part.numbers_of(chosen, dtype).view(-1, self.width), groups

    def _rounded(self, groups: int) -> int:
        """This many groups and a few more, so that products are with a multiple of `_ROWS` neurons."""
        step = -(-_ROWS // self.neurons)
        return min(-(-groups // step) * step, self.capacity)

    @property
    def memory(self) -> U8:
        """The groups in memory, [capacity, bytes]."""
        return self._memory

    def holds(self, dtype: torch.dtype) -> bool:
        """True if the numbers are stored in this precision, so that they are computed with where they lie."""
        return self._part.is_in(dtype)

    def offsets(self, neurons: Groups) -> Groups:
        """Where in `memory` the rows of these neurons, whose groups are there, begin. Bytes."""
        row = self._part.bytes // self.neurons
        return self._place[neurons // self.neurons] * self._array.stride + neurons % self.neurons * row

    def _read(self, missing: Groups) -> None:
        """Read groups behind the last one. If a read fails, none of them is there. Raises TargetError."""
        places = np.arange(self.used, self.used + len(missing))
        try:
            self._file.read_rows(self._array, missing, self._memory, places)
        except TargetError:
            self._memory[places] = 0  # what `rows` gives behind the neurons stays finite
            raise
        self.pointer[places] = missing
        self._last_active[places] = self._now
        self._place[missing] = places
        self.used += len(missing)

    def _leave(self, places: Groups) -> None:
        """The groups in these places leave; the last ones take their places."""
        stays = np.ones(self.used, bool)
        stays[places] = False
        self._place[self.pointer[places]] = -1
        self.used -= len(places)
        holes = np.flatnonzero(~stays[: self.used])
        last = self.used + np.flatnonzero(stays[self.used :])
        for array in (self._memory, self.pointer, self._last_active):
            array[holes] = array[last]
        self._place[self.pointer[holes]] = holes
