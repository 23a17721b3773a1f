"""LFU: the one that was used least often, and among those not for the longest time."""

from __future__ import annotations

from kvdrive.prefix.eviction.base import Eviction, K, Ranking, of_tenant


class Lfu(Eviction):
    """Evicts the one that was used least often, and among those not for the longest time."""

    def victim(self, index: Ranking[K], tenant: str | None = None) -> K | None:
        """See Eviction."""
        return index.first("uses, tick", *of_tenant(tenant))
