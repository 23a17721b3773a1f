"""The policies by name."""

from __future__ import annotations

from pathlib import Path

from kvdrive.errors import InputError
from kvdrive.weights.eviction.base import Eviction
from kvdrive.weights.eviction.lfu import Lfu
from kvdrive.weights.eviction.lru import Lru
from kvdrive.weights.eviction.prior import Prior

EVICTIONS = {
    "lfu": "the least often used one",
    "lru": "the least recently used one",
    "prior": "lfu that begins with the counts of earlier runs",
}


def make_eviction(name: str, weights: Path) -> Eviction:
    """The policy `name` for the file `weights`, beside which `prior` keeps its counts. Raises InputError."""
    if name == "lfu":
        return Lfu()
    if name == "lru":
        return Lru()
    if name == "prior":
        return Prior(weights.with_name(weights.name + ".counts.json"))
    raise InputError(f"no policy '{name}' for experts in memory: {', '.join(EVICTIONS)}")
