"""Which session or block is evicted first when there are too many; one policy per file."""

from kvdrive.prefix.eviction.base import Eviction, evict
from kvdrive.prefix.eviction.registry import EVICTIONS, make_eviction

__all__ = ["EVICTIONS", "Eviction", "evict", "make_eviction"]
