"""FIFO: the one that was kept first."""

from __future__ import annotations

from kvdrive.sessions.entry import Entry
from kvdrive.sessions.eviction.base import Eviction, of_tenant
from kvdrive.sessions.index import Index


class Fifo(Eviction):
    """Evicts the one that was kept first."""

    def victim(self, index: Index, tenant: str | None = None) -> Entry | None:
        """See Eviction."""
        return index.first("id", *of_tenant(tenant))
