"""Which session is evicted first when there are too many; one policy per file."""

from kvdrive.prefix.eviction.base import Eviction
from kvdrive.prefix.eviction.registry import EVICTIONS, make_eviction

__all__ = ["EVICTIONS", "Eviction", "make_eviction"]
