"""Memory for the neurons of one layer that recent tokens used: the paper's memory manager.

Rows lie one behind the other in memory that is allocated once, so that a product reads them without gathering. Which
group of neurons is in which row is the business of engine/fast/neuron_window.hpp.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch

from kvdrive._native import NeuronWindow
from kvdrive.errors import TargetError
from kvdrive.weights.bundles import I64, U8, Array
from kvdrive.weights.file import aligned
from kvdrive.weights.reader import Reader

Groups = I64

_ROWS = 512
_NONE = np.zeros(0, np.int64)


@dataclass
class WindowCounters:
    """Groups of neurons that tokens needed: `hits` were in memory, `misses` were read."""

    hits: int = 0
    misses: int = 0


class Window:
    """At most `capacity` groups of neurons of `array`. Those that none of the last `calls` calls needed are evicted.

    `neurons`: of a group. Not safe to call concurrently.
    """

    def __init__(self, file: Reader, array: Array, capacity: int, calls: int) -> None:
        self._file, self._array = file, array
        self.capacity = capacity
        self._memory = aligned(capacity * array.stride).reshape(capacity, array.stride)
        self._part = array.parts[0]
        self._stored = self._part.view(torch.from_numpy(self._memory))
        self.neurons, self.width = self._part.shape
        self._open: NeuronWindow | None = NeuronWindow(self._memory, array.count, calls)
        self.counters = WindowCounters()

    @property
    def _rows(self) -> NeuronWindow:
        if self._open is None:
            raise TargetError(f"{self._file.path} is closed")
        return self._open

    def close(self) -> None:
        """Nothing is in memory any more. The counters stay."""
        self._open = None

    @property
    def used(self) -> int:
        """Groups in memory, in the first places."""
        return self._rows.num_used

    @property
    def pointer(self) -> Groups:
        """The groups in these places; a view that is valid until the next `hold`."""
        return self._rows.pointer

    def hold(self, groups: Groups, briefly: Groups = _NONE) -> None:
        """Have these groups in memory, at most `capacity`; others may stay. Raises TargetError.

        `briefly`: those of them that this call does not count as a use of. If a read fails, nothing is added.
        """
        missing = self._rows.make_room(groups, briefly)
        self.counters.hits += len(groups) - len(missing)
        self.counters.misses += len(missing)
        if not len(missing):
            return
        places = np.arange(self.used, self.used + len(missing))
        try:
            self._file.read_rows(self._array, missing, self._memory, places)
        except TargetError:
            self._memory[places] = 0  # what `rows` gives behind the neurons stays finite
            raise
        self._rows.append()

    def held_first(self, groups: Groups) -> Groups:
        """These groups, those in memory in front."""
        return groups[np.argsort(self._rows.rows[groups] < 0, kind="stable")]

    def rows(self, groups: Groups, dtype: torch.dtype) -> tuple[torch.Tensor, Groups]:
        """The neurons of `groups`, which are in memory, as rows [neurons, width], and the groups that these are.

        Where the numbers are stored in this precision, they are all groups in memory, where they lie. Finite rows that
        mean nothing follow: torch keeps a kernel for each number of rows, so there are few such numbers.
        """
        if self._part.is_in(dtype):
            return self._stored[: self._rounded(self.used)].view(-1, self.width), self.pointer
        places = np.zeros(self._rounded(len(groups)), np.int64)
        places[: len(groups)] = self._rows.rows[groups]
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
        return self._rows.offsets(neurons, self.neurons, self._part.bytes // self.neurons)
