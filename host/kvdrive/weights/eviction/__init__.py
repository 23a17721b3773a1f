"""Which expert is evicted when another one needs its slot: one policy per file."""

from kvdrive.weights.eviction.base import Eviction, Key
from kvdrive.weights.eviction.registry import EVICTIONS, make_eviction

__all__ = ["EVICTIONS", "Eviction", "Key", "make_eviction"]
