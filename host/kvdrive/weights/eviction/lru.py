"""Evicts the least recently used expert."""

from __future__ import annotations

from kvdrive.weights.eviction.base import Eviction, Key, Rank


class Lru(Eviction):
    """Least recently used; experts that were only prefetched are evicted first."""

    def __init__(self) -> None:
        super().__init__()
        self._time = 0
        self._last: dict[Key, int] = {}

    def used(self, key: Key) -> None:
        """Note the use."""
        self._time += 1
        self._last[key] = self._time

    def rank(self, key: Key) -> Rank:
        """The time of the last use."""
        return (self._last.get(key, 0),)
