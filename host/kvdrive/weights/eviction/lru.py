"""The expert that was used longest ago leaves."""

from __future__ import annotations

from collections.abc import Iterable

from kvdrive.weights.eviction.base import Key


class Lru:
    """Least recently used."""

    def __init__(self) -> None:
        self._time = 0
        self._last: dict[Key, int] = {}

    def used(self, key: Key) -> None:
        """Note the use."""
        self._time += 1
        self._last[key] = self._time

    def victim(self, among: Iterable[Key]) -> Key:
        """The one with the oldest use; those that were only read ahead come first."""
        return min(among, key=lambda key: self._last.get(key, 0))
