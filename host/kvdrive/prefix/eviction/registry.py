"""Eviction policies by name."""

from __future__ import annotations

from kvdrive.errors import InputError
from kvdrive.prefix.eviction.base import Eviction
from kvdrive.prefix.eviction.fifo import Fifo
from kvdrive.prefix.eviction.lfu import Lfu
from kvdrive.prefix.eviction.lru import Lru
from kvdrive.prefix.eviction.queue_aware import QueueAware
from kvdrive.prefix.eviction.ttl import Ttl

EVICTIONS: dict[str, type[Eviction]] = {"lru": Lru, "fifo": Fifo, "lfu": Lfu, "ttl": Ttl, "queue-aware": QueueAware}


def make_eviction(name: str) -> Eviction:
    """The policy with this name. Raises InputError."""
    if name not in EVICTIONS:
        raise InputError(f"there is no eviction policy '{name}': choose {', '.join(EVICTIONS)}")
    return EVICTIONS[name]()
