"""Evicts sessions beyond the bounds. Pinned and open sessions stay."""

from __future__ import annotations

from collections.abc import Callable

from kvdrive.prefix.entry import Entry
from kvdrive.prefix.eviction import evict, make_eviction
from kvdrive.prefix.options import SessionOptions
from kvdrive.prefix.stored import StoredSessions


class Evictor:
    """Holds stored sessions within the bounds of `options`, by its eviction policy."""

    def __init__(self, stored: StoredSessions, options: SessionOptions) -> None:
        self.policy = make_eviction(options.eviction)
        self._stored = stored
        self._index = stored.index
        self._bounds = options.bounds

    def enforce(self, tenant: str) -> int:
        """Evict what the bounds do not allow, of `tenant` and of all together. Returns how many sessions."""
        bounds, index = self._bounds, self._index
        gone: list[Entry] = []
        with index.transaction():
            if bounds.seconds:
                index.close_dead()
                index.forget_future()
                while old := index.first("used", "used < ?", (index.now - bounds.seconds,)):
                    gone += [old]
                    index.remove(old.id)
            quota = index.accounts.quota(tenant)
            quota = bounds.tenant_bytes if quota is None else quota
            gone += self._shrink(lambda: bool(quota) and index.accounts.bytes(tenant) > quota, tenant)
            gone += self._shrink(lambda: bool(bounds.bytes) and index.accounts.bytes() > bounds.bytes)
            gone += self._shrink(lambda: bool(bounds.sessions) and index.count() > bounds.sessions)
        return self._remove(gone)

    def shrink(self, size: int) -> int:
        """Evict until at most `size` bytes are stored, or nothing is evictable. Returns how many sessions."""
        with self._index.transaction():
            gone = self._shrink(lambda: self._index.accounts.bytes() > size)
        return self._remove(gone)

    def make_room(self) -> bool:
        """Evict an eighth of all bytes, because a drive is full. False if nothing is evictable."""
        return self.shrink(self._index.accounts.bytes() // 8 * 7) > 0

    def _shrink(self, too_much: Callable[[], bool], tenant: str | None = None) -> list[Entry]:
        if too_much():
            self._index.close_dead()
        return evict(self.policy, self._index, too_much, tenant)

    def _remove(self, gone: list[Entry]) -> int:
        self._stored.stats.evictions += len(gone)
        self._stored.remove(gone)
        return len(gone)
