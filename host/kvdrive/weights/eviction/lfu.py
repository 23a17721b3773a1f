"""The expert that was used least often leaves; among equals, the one that was used longest ago."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping

from kvdrive.weights.eviction.base import Key


class Lfu:
    """Least frequently used. `counts`: uses to begin with."""

    def __init__(self, counts: Mapping[Key, int] | None = None) -> None:
        self.counts = Counter(counts or {})
        self._time = 0
        self._last: dict[Key, int] = {}

    def used(self, key: Key) -> None:
        """Count the use."""
        self._time += 1
        self._last[key] = self._time
        self.counts[key] += 1

    def victim(self, among: Iterable[Key]) -> Key:
        """The one with the fewest uses."""
        return min(among, key=lambda key: (self.counts[key], self._last.get(key, 0)))
