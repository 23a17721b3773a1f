"""Counters and sizes of stored sessions, for the metrics."""

from __future__ import annotations

from dataclasses import asdict

from kvdrive.prefix.memory_tier import MemoryTier
from kvdrive.prefix.memory_tier import figures as of_memory
from kvdrive.prefix.stored import StoredSessions
from kvdrive.prefix.wear import Governor


def figures(stored: StoredSessions, governor: Governor, memory: MemoryTier | None = None) -> dict[str, float]:
    """By the names of `metrics`."""
    wear = governor.wear()
    return {
        **asdict(stored.stats),
        **of_memory(memory),
        "stored": stored.index.count(),
        "stored_bytes": stored.index.accounts.bytes(),
        "bytes_written": wear.bytes_written,
        "bytes_today": wear.bytes_today,
        "bytes_per_hit": wear.bytes_per_hit or 0,
        "admits_all": wear.state == "open",
        "refused": wear.refused,
    }
