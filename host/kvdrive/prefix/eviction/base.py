"""An eviction policy, and its use."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Protocol, TypeVar


class Numbered(Protocol):
    """An item of an index."""

    @property
    def id(self) -> int:
        """Its number, in the order of storing."""


Item = TypeVar("Item", bound=Numbered, covariant=True)
K = TypeVar("K", bound=Numbered)


class Ranking(Protocol[Item]):
    """An index of sessions or blocks: its columns `id`, `tick`, `used`, `uses` and `tenant` say when each was used."""

    def first(self, order: str, condition: str = "1", values: tuple[Any, ...] = ()) -> Item | None:
        """The first evictable one, in the SQL order `order`."""

    def remove(self, number: int) -> object:
        """Remove an item."""


class Eviction:
    """Evicts in the SQL order `order`, among evictable items: sessions neither pinned nor open, blocks not in use."""

    def __init__(self, order: str) -> None:
        self._order = order

    def victim(self, index: Ranking[K], tenant: str | None = None) -> K | None:
        """What to evict next, of `tenant` only if one is named; None if nothing is evictable."""
        return index.first(self._order, *of_tenant(tenant))

    def look_ahead(self, sessions: list[int]) -> None:
        """The sessions that waiting requests will use, the next request first: most policies need no window."""


def evict(policy: Eviction, index: Ranking[K], too_much: Callable[[], bool], tenant: str | None = None) -> list[K]:
    """Remove items from `index`, of `tenant` only if one is named, while there is `too_much` and one is evictable.

    Returns them.
    """
    gone: list[K] = []
    while too_much() and (victim := policy.victim(index, tenant)) is not None:
        index.remove(victim.id)
        gone.append(victim)
    return gone


def of_tenant(tenant: str | None) -> tuple[str, tuple[str, ...]]:
    """Condition and values for Ranking.first."""
    return ("1", ()) if tenant is None else ("tenant=?", (tenant,))
