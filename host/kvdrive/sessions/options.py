"""How sessions are stored: where the index is, for whom, how much, and what is evicted first."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

from kvdrive.sessions.bounds import Bounds


@dataclass(frozen=True)
class SessionOptions:
    """`index`: the index's file; None: beside the drive's file, or in the user's cache for a drive that is elsewhere.

    `tenant`: whose sessions these are; tenants share nothing. `eviction`: a policy's name. `daily_bytes`: written in
    a day
    before only what is wanted a second time is kept; 0: no budget. `every`: tokens between two saves of a running
    sequence; 0: the spill interval.
    """

    index: Path | None = None
    tenant: str = ""
    bounds: Bounds = field(default_factory=Bounds)
    eviction: str = "lru"
    daily_bytes: int = 0
    every: int = 0
