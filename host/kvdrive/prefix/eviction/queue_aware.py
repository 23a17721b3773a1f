"""Queue-aware eviction (AttentionStore): what a waiting request will use stays."""

from __future__ import annotations

import json

from kvdrive.prefix.eviction.base import Eviction, K, Ranking, of_tenant


class QueueAware(Eviction):
    """Evicts the least recently used session that no waiting request will use.

    If the window of waiting requests covers all sessions, the one that is needed last is evicted.
    """

    def __init__(self) -> None:
        super().__init__("tick")
        self._window: dict[int, int] = {}  # session -> place of the first request that uses it

    def look_ahead(self, sessions: list[int]) -> None:
        self._window = {}
        for place, session in enumerate(sessions):
            self._window.setdefault(session, place)

    def victim(self, index: Ranking[K], tenant: str | None = None) -> K | None:
        condition, values = of_tenant(tenant)
        unwanted = f"{condition} AND id NOT IN (SELECT value FROM json_each(?))"
        outside = index.first(self._order, unwanted, (*values, json.dumps(list(self._window))))
        if outside is not None:
            return outside
        for session in sorted(self._window, key=lambda session: self._window[session], reverse=True):
            found = index.first(self._order, f"{condition} AND id={session}", values)
            if found is not None:
                return found
        return None
