"""LFU: the one that was used least often, and among those not for the longest time."""

from __future__ import annotations

from kvdrive.sessions.entry import Entry
from kvdrive.sessions.eviction.base import Eviction, of_tenant
from kvdrive.sessions.index import Index


class Lfu(Eviction):
    """Evicts the one that was used least often, and among those not for the longest time."""

    def victim(self, index: Index, tenant: str | None = None) -> Entry | None:
        """See Eviction."""
        return index.first("uses, tick", *of_tenant(tenant))
