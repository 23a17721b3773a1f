"""FIFO: the one that was stored first."""

from __future__ import annotations

from kvdrive.prefix.eviction.base import Eviction, K, Ranking, of_tenant


class Fifo(Eviction):
    """Evicts the one that was stored first."""

    def victim(self, index: Ranking[K], tenant: str | None = None) -> K | None:
        """See Eviction."""
        return index.first("id", *of_tenant(tenant))
