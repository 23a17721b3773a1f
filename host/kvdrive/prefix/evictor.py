"""Evicts sessions beyond the bounds. Pinned and open sessions stay."""

from __future__ import annotations

from collections.abc import Callable

from kvdrive.prefix.entry import Entry
from kvdrive.prefix.eviction import make_eviction
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
            quota = index.quota(tenant)
            quota = bounds.tenant_bytes if quota is None else quota
            gone += self._shrink(lambda: bool(quota) and index.bytes(tenant) > quota, tenant)
            gone += self._shrink(lambda: bool(bounds.bytes) and index.bytes() > bounds.bytes)
            gone += self._shrink(lambda: bool(bounds.sessions) and index.count() > bounds.sessions)
        return self._remove(gone)

    def shrink(self, size: int) -> int:
        """Evict until at most `size` bytes are stored, or nothing is evictable. Returns how many sessions."""
        with self._index.transaction():
            gone = self._shrink(lambda: self._index.bytes() > size)
        return self._remove(gone)

    def make_room(self) -> bool:
        """Evict an eighth of all bytes, because a drive is full. False if nothing is evictable."""
        return self.shrink(self._index.bytes() // 8 * 7) > 0

    def _shrink(self, too_much: Callable[[], bool], tenant: str | None = None) -> list[Entry]:
        gone: list[Entry] = []
        if too_much():
            self._index.close_dead()
        while too_much():
            victim = self.policy.victim(self._index, tenant)
            if victim is None:
                break
            self._index.remove(victim.id)
            gone.append(victim)
        return gone

    def _remove(self, gone: list[Entry]) -> int:
        self._stored.stats.evictions += len(gone)
        self._stored.remove(gone)
        return len(gone)
