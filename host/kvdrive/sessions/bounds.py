"""How much may be kept, and how long."""

from __future__ import annotations

from dataclasses import dataclass

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
