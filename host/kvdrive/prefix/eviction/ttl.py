"""TTL: sessions are evicted when their time since the last use is over; the one closest to it first."""

from __future__ import annotations

from kvdrive.prefix.eviction.base import Eviction, K, Ranking, of_tenant


class Ttl(Eviction):
    """Evicts the session whose last use, by the clock, is the oldest; the order of uses does not count."""

    def victim(self, index: Ranking[K], tenant: str | None = None) -> K | None:
        """See Eviction."""
        return index.first("used, id", *of_tenant(tenant))
