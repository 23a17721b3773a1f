"""TTL: sessions leave only when their time since the last use is over; the one closest to it first."""

from __future__ import annotations

from kvdrive.sessions.entry import Entry
from kvdrive.sessions.eviction.base import Eviction, of_tenant
from kvdrive.sessions.index import Index


class Ttl(Eviction):
    """Evicts the session whose last use, by the clock, is the oldest; the order of uses does not count."""

    def victim(self, index: Index, tenant: str | None = None) -> Entry | None:
        """See Eviction."""
        return index.first("used, id", *of_tenant(tenant))
