"""What an index counts beside its items: counters, bytes and quotas of tenants, prefixes that were wanted."""

from __future__ import annotations

from typing import Any

from kvdrive.database import DamagedError, Database

TABLES = (
    "CREATE TABLE counters(name TEXT PRIMARY KEY, value) WITHOUT ROWID",
    "CREATE TABLE tenants(name TEXT PRIMARY KEY, bytes INTEGER, quota INTEGER) WITHOUT ROWID",
    "CREATE TABLE seen(key INTEGER PRIMARY KEY, tick INTEGER)",
    "CREATE INDEX seen_ticks ON seen(tick)",
)
_SEEN = 100_000  # prefixes that were wanted and not stored; the oldest are dropped


class Accounts:
    """The accounts in a database that has TABLES."""

    def __init__(self, db: Database) -> None:
        self._db = db

    def check(self) -> None:
        """Raises DamagedError for what no program has written."""
        if any(not isinstance(value, int) for row in self._db.rows("SELECT bytes FROM tenants") for value in row):
            raise DamagedError("the bytes of a tenant are no number")
        if any(not isinstance(value, int | float | str) for (value,) in self._db.rows("SELECT value FROM counters")):
            raise DamagedError("a counter is no number")

    # ---- counters ----

    def counter(self, name: str, default: Any = 0) -> Any:
        """A number or text that survives the process."""
        rows = self._db.rows("SELECT value FROM counters WHERE name=?", (name,))
        return rows[0][0] if rows else default

    def put(self, name: str, value: float | str) -> None:
        """Set a counter."""
        self._db.write("INSERT OR REPLACE INTO counters VALUES (?, ?)", (name, value))

    def bump(self, name: str, by: float = 1) -> None:
        """Add to a counter."""
        self._db.write(
            "INSERT INTO counters VALUES (?, ?) ON CONFLICT(name) DO UPDATE SET value=value+excluded.value", (name, by)
        )

    def remove(self, name: str) -> None:
        """Remove a counter."""
        self._db.write("DELETE FROM counters WHERE name=?", (name,))

    def ticks(self, count: int = 1) -> int:
        """The last of `count` new ticks, which number all uses."""
        self.bump("tick", count)
        return int(self.counter("tick"))

    # ---- tenants ----

    def bytes(self, tenant: str | None = None) -> int:
        """Bytes that are stored in all, or of a tenant; what several items share counts once."""
        if tenant is None:
            return int(self._db.rows("SELECT coalesce(sum(bytes), 0) FROM tenants")[0][0])
        return int(self._db.rows("SELECT coalesce(sum(bytes), 0) FROM tenants WHERE name=?", (tenant,))[0][0])

    def add_bytes(self, tenant: str, by: int) -> None:
        """Count bytes of a tenant that were stored, or removed where `by` is negative."""
        self._db.write(
            "INSERT INTO tenants VALUES (?, ?, NULL) ON CONFLICT(name) DO UPDATE SET bytes=bytes+excluded.bytes",
            (tenant, by),
        )

    def quotas(self) -> dict[str, int]:
        """The quota of each tenant that has one."""
        return dict(self._db.rows("SELECT name, quota FROM tenants WHERE quota IS NOT NULL"))

    def quota(self, tenant: str) -> int | None:
        """The most bytes that a tenant may have; None: no limit of its own."""
        rows = self._db.rows("SELECT quota FROM tenants WHERE name=?", (tenant,))
        return rows[0][0] if rows else None

    def set_quota(self, tenant: str, quota: int | None) -> None:
        """See `quota`."""
        self._db.write(
            "INSERT INTO tenants VALUES (?, 0, ?) ON CONFLICT(name) DO UPDATE SET quota=excluded.quota", (tenant, quota)
        )

    # ---- prefixes ----

    def wanted(self, keys: list[int]) -> bool:
        """Record a lookup of the prefix with these keys. True if one that it begins with was looked up before."""
        before = any(self._db.rows("SELECT 1 FROM seen WHERE key=?", (key,)) for key in keys)
        if keys:
            tick = self.ticks()
            self._db.write("INSERT OR REPLACE INTO seen VALUES (?, ?)", (keys[-1], tick))
            self._db.write("DELETE FROM seen WHERE tick<=?", (tick - _SEEN,))
        return before
