"""The interface of eviction policies."""

from __future__ import annotations

import heapq
from abc import ABC, abstractmethod
from collections.abc import Callable

Key = tuple[int, int]  # number of the module with experts, number of the expert
Rank = tuple[int, ...]


class Eviction(ABC):
    """Chooses experts to evict: those of the lowest rank. It changes what is read, never a result.

    A use never lowers a rank. So a heap of ranks, some of them out of date, finds the lowest one without looking at
    all experts.
    """

    def __init__(self) -> None:
        self._heap: list[tuple[Rank, Key]] = []
        self._held: set[Key] = set()

    @abstractmethod
    def used(self, key: Key) -> None:
        """A token has been routed to this expert, in memory or not."""

    @abstractmethod
    def rank(self, key: Key) -> Rank:
        """The expert with the lowest rank is evicted first."""

    def came(self, key: Key) -> None:
        """The expert is in memory, or being read."""
        self._held.add(key)
        heapq.heappush(self._heap, (self.rank(key), key))

    def left(self, key: Key) -> None:
        """The expert is not in memory any more."""
        self._held.discard(key)

    def victim(self, may_leave: Callable[[Key], bool]) -> Key | None:
        """The expert to evict; None if none of them is evictable."""
        kept = []
        found = None
        while self._heap and found is None:
            rank, key = heapq.heappop(self._heap)
            if key not in self._held:
                continue
            if (now := self.rank(key)) != rank:
                heapq.heappush(self._heap, (now, key))
            elif may_leave(key):
                found = key
            else:
                kept.append((rank, key))
        for one in kept:
            heapq.heappush(self._heap, one)
        if found is not None:
            self.left(found)
        return found
