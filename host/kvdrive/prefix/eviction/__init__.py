"""Which session or block is evicted first when there are too many."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from kvdrive.errors import InputError
from kvdrive.prefix.eviction.base import Eviction, evict
from kvdrive.prefix.eviction.queue_aware import QueueAware

__all__ = ["EVICTIONS", "Eviction", "evict", "make_eviction"]
EVICTIONS: dict[str, Callable[[], Eviction]] = {
    "lru": partial(Eviction, "tick"),  # not used for the longest time, counted in uses
    "fifo": partial(Eviction, "id"),  # stored first
    "lfu": partial(Eviction, "uses, tick"),  # used least often, and among those not for the longest time
    "ttl": partial(Eviction, "used, id"),  # not used for the longest time, by the clock
    "queue-aware": QueueAware,
}


def make_eviction(name: str) -> Eviction:
    """The policy with this name. Raises InputError."""
    if name not in EVICTIONS:
        raise InputError(f"there is no eviction policy '{name}': choose {', '.join(EVICTIONS)}")
    return EVICTIONS[name]()
