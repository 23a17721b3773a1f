"""Which session is evicted first when there are too many; one policy per file."""

from kvdrive.sessions.eviction.base import Eviction
from kvdrive.sessions.eviction.registry import EVICTIONS, make_eviction

__all__ = ["EVICTIONS", "Eviction", "make_eviction"]
