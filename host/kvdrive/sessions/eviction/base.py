"""The interface of an eviction policy."""

from __future__ import annotations

from abc import ABC, abstractmethod

from kvdrive.sessions.entry import Entry
from kvdrive.sessions.index import Index


class Eviction(ABC):
    """Chooses among the sessions that may leave: those neither pinned nor open."""

    @abstractmethod
    def victim(self, index: Index, tenant: str | None = None) -> Entry | None:
        """The session that leaves next, of `tenant` only if one is named; None if no session may leave."""

    def look_ahead(self, sessions: list[int]) -> None:  # noqa: B027 (most policies need no window)
        """The sessions that waiting requests will use, the next request first."""


def of_tenant(tenant: str | None) -> tuple[str, tuple[str, ...]]:
    """Condition and values for Index.first."""
    return ("1", ()) if tenant is None else ("tenant=?", (tenant,))
