"""LRU: the one that was not used for the longest time."""

from __future__ import annotations

from kvdrive.prefix.eviction.base import Eviction, K, Ranking, of_tenant


class Lru(Eviction):
    """Evicts the one that was not used for the longest time."""

    def victim(self, index: Ranking[K], tenant: str | None = None) -> K | None:
        """See Eviction."""
        return index.first("tick", *of_tenant(tenant))
