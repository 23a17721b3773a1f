"""Evicts the expert that was used least often; among equals, the least recently used one."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping

from kvdrive.weights.eviction.base import Eviction, Key, Rank


class Lfu(Eviction):
    """Least frequently used. `counts`: uses to begin with."""

    def __init__(self, counts: Mapping[Key, int] | None = None) -> None:
        super().__init__()
        self.counts = Counter(counts or {})
        self._time = 0
        self._last: dict[Key, int] = {}

    def used(self, key: Key) -> None:
        """Count the use."""
        self._time += 1
        self._last[key] = self._time
        self.counts[key] += 1

    def rank(self, key: Key) -> Rank:
        """The uses, and the time of the last one."""
        return self.counts[key], self._last.get(key, 0)
