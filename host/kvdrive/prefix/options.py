"""How sessions are stored: where the index is, for whom, how much, and what is evicted first."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

from kvdrive.errors import InputError


@dataclass(frozen=True)
class Bounds:
    """0 stands for no limit. `bytes`: K and V of all sessions, shared ones counted once. `sessions`: their number.

    `seconds`: since the last use. `tenant_bytes`: of a tenant that has no quota of its own. Raises InputError.
    """

    bytes: int = 0
    sessions: int = 0
    seconds: float = 0
    tenant_bytes: int = 0

    def __post_init__(self) -> None:
        if min(self.bytes, self.sessions, self.seconds, self.tenant_bytes) < 0:
            raise InputError("bounds of sessions cannot be negative: 0 stands for no limit")


@dataclass(frozen=True)
class SessionOptions:
    """`memory`: bytes for copies of idle sessions in memory, where running sequences are there as well; 0: none.

    `index`: the index's file; None: beside the drive's file, or in the user's cache for a drive that is elsewhere.

    `tenant`: whose sessions these are; tenants share nothing. `eviction`: a policy's name. `daily_bytes`: written in
    a day before only what is wanted a second time is stored; 0: no budget. `every`: tokens between two saves of a
    running sequence; 0: the spill interval.
    """

    index: Path | None = None
    tenant: str = ""
    bounds: Bounds = field(default_factory=Bounds)
    eviction: str = "lru"
    daily_bytes: int = 0
    every: int = 0
    memory: int = 0
