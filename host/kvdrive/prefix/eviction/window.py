"""The window of AttentionStore's look-ahead: how many waiting requests are looked at."""

from __future__ import annotations


class Window:
    """As many requests as a tier holds sessions of the mean size that was stored so far: C / S_kv."""

    def __init__(self) -> None:
        self._bytes = self._sessions = 0

    def stored(self, size: int) -> None:
        """A session of `size` bytes was stored."""
        self._bytes += size
        self._sessions += 1

    def of(self, capacity: int) -> int:
        """Requests for a tier of `capacity` bytes, 1 at least."""
        return max(1, int(capacity * self._sessions / self._bytes)) if self._bytes else 1
