"""Which expert leaves memory when another one needs its place: one policy per file."""

from kvdrive.weights.eviction.base import Eviction, Key
from kvdrive.weights.eviction.registry import EVICTIONS, make_eviction

__all__ = ["EVICTIONS", "Eviction", "Key", "make_eviction"]
