"""The index: which tokens are kept, and where. SQLite in WAL mode, for several processes at once.

It holds no K and V and no proof: the store compares what it finds with the drive's own copy of the tokens before it is
used. A lost or stale index costs time, never an answer.
"""

from __future__ import annotations

import json
import re
import sqlite3
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from kvdrive.errors import InputError
from kvdrive.sessions import lasting
from kvdrive.sessions.entry import Entry, NewEntry

_VERSION = 1
_WAIT_SECONDS = 30
_CANDIDATES = 16  # sessions with the same longest prefix whose last tokens are compared
_SEEN = 100_000  # prefixes that were wanted and not kept; the oldest are dropped
_COLUMNS = (
    "id, root, name, tenant, model, tokens, tail, last, slices, record, bytes_per_token, block, created, used, tick, "
    "uses, pinned, owner"
)
_SCHEMA = """
CREATE TABLE counters(name TEXT PRIMARY KEY, value) WITHOUT ROWID;
CREATE TABLE tenants(name TEXT PRIMARY KEY, bytes INTEGER, quota INTEGER) WITHOUT ROWID;
CREATE TABLE sessions(
    id INTEGER PRIMARY KEY AUTOINCREMENT, root INTEGER, name TEXT, tenant TEXT, model TEXT, tokens INTEGER, tail TEXT,
    last INTEGER, slices TEXT, record TEXT, bytes_per_token INTEGER, block INTEGER, created REAL, used REAL, tick
    INTEGER, uses INTEGER, pinned INTEGER, owner TEXT);
CREATE UNIQUE INDEX session_names ON sessions(tenant, name) WHERE name != '';
CREATE INDEX session_ends ON sessions(last);
CREATE INDEX session_uses ON sessions(tick);
CREATE INDEX session_ages ON sessions(used, id);
CREATE INDEX session_counts ON sessions(uses, tick);
CREATE TABLE blocks(key INTEGER, session INTEGER, PRIMARY KEY(key, session)) WITHOUT ROWID;
CREATE INDEX blocks_of ON blocks(session);
CREATE TABLE seen(key INTEGER PRIMARY KEY, tick INTEGER);
CREATE INDEX seen_ticks ON seen(tick);
"""


class Index:
    """The index in the file `path`, made where there is none. `made`: it was. `clock`: seconds since 1970.

    Raises InputError for a file that is no index.
    """

    def __init__(self, path: Path | str, clock: Callable[[], float] = time.time) -> None:
        self.path = path
        self._clock = clock
        self._lock = threading.RLock()
        self._lasting_changed = False
        if isinstance(path, Path):
            path.parent.mkdir(parents=True, exist_ok=True)
        self._db = sqlite3.connect(path, timeout=_WAIT_SECONDS, isolation_level=None, check_same_thread=False)
        try:
            self._db.execute("PRAGMA journal_mode=WAL")
            self._db.execute("PRAGMA synchronous=NORMAL")
            with self.transaction():
                version = self._db.execute("PRAGMA user_version").fetchone()[0]
                self.made = version == 0
                if self.made:
                    for statement in _SCHEMA.split(";"):
                        self._db.execute(statement)
                    self._db.execute(f"PRAGMA user_version={_VERSION}")
        except sqlite3.DatabaseError as error:
            self._db.close()
            raise InputError(f"{path} is no index of sessions ({error}): remove it, and it is made again") from error
        if version not in (0, _VERSION):
            self._db.close()
            raise InputError(f"{path} is an index of another version: remove it, and it is made again")

    def close(self) -> None:
        """Close the file."""
        with self._lock:
            lasting.write(self)
            self._db.close()

    @contextmanager
    def transaction(self) -> Iterator[None]:
        """All changes inside happen or none; no other process changes the index meanwhile."""
        with self._lock:
            self._db.execute("BEGIN IMMEDIATE")
            try:
                yield
            except BaseException:
                self._db.execute("ROLLBACK")
                raise
            self._db.execute("COMMIT")
            if self._lasting_changed:
                self._lasting_changed = False
                lasting.write(self)

    # ---- looking up ----

    def find(self, root: int, keys: Iterable[int]) -> tuple[int, list[Entry]]:
        """The number of blocks of the longest kept prefix, and sessions that have them, the last used first.

        With no block in common these are sessions of less than a block under the same `root`.
        """
        execute, depth, last = self._db.execute, 0, root
        with self._lock:
            for key in keys:
                if execute("SELECT 1 FROM blocks WHERE key=? LIMIT 1", (key,)).fetchone() is None:
                    break
                depth, last = depth + 1, key
            ends = self._entries(f"WHERE last=? ORDER BY tick DESC LIMIT {_CANDIDATES}", (last,))
            longer: list[Entry] = []
            if depth:
                some = f"SELECT session FROM blocks WHERE key=? ORDER BY session DESC LIMIT {_CANDIDATES}"
                longer = self._entries(f"WHERE id IN ({some}) ORDER BY tick DESC", (last,))
        there = {entry.id for entry in ends}
        return depth, ends + [entry for entry in longer if entry.id not in there]

    def get(self, number: int) -> Entry | None:
        """The session with this number."""
        found = self._entries("WHERE id=?", (number,))
        return found[0] if found else None

    def named(self, name: str, tenant: str) -> Entry | None:
        """The session with this name."""
        found = self._entries("WHERE tenant=? AND name=?", (tenant, name))
        return found[0] if found else None

    def look_up(self, wanted: str, tenant: str) -> Entry | None:
        """The tenant's session with this name, or with this number."""
        found = self.named(wanted, tenant)
        if found is None and re.fullmatch(r"[0-9]{1,18}", wanted):
            found = self.get(int(wanted))
        return found if found is not None and found.tenant == tenant else None

    def entries(self, tenant: str | None = None) -> list[Entry]:
        """All sessions, the last used first."""
        if tenant is None:
            return self._entries("ORDER BY tick DESC", ())
        return self._entries("WHERE tenant=? ORDER BY tick DESC", (tenant,))

    def first(self, order: str, condition: str = "1", values: tuple[Any, ...] = ()) -> Entry | None:
        """The first session that may leave, in the SQL order `order`: neither pinned nor open."""
        found = self._entries(f"WHERE pinned=0 AND owner='' AND {condition} ORDER BY {order} LIMIT 1", values)
        return found[0] if found else None

    def owners(self) -> list[str]:
        """Owners of open sessions."""
        return [row[0] for row in self._rows("SELECT DISTINCT owner FROM sessions WHERE owner!=''")]

    def places(self) -> set[tuple[int, int]]:
        """All (drive, session number) that sessions use."""
        rows = self._rows("SELECT slices FROM sessions")
        return {(one[0], one[1]) for (slices,) in rows for one in json.loads(slices)}

    # ---- changing ----

    def add(self, new: NewEntry, keys: list[int], *, pinned: bool = False) -> int:
        """Add a session with the keys of its whole blocks. Returns its number."""
        now, tick = self._clock(), self._tick()
        row = (
            new.root, new.name, new.tenant, new.model, new.tokens, json.dumps(new.tail), new.last,
            json.dumps(new.slices),
            new.record, new.bytes_per_token, new.block, now, now, tick, 0, int(pinned), new.owner,
        )  # fmt: skip
        marks = ",".join("?" * len(row))
        cursor = self._db.execute(f"INSERT INTO sessions({_COLUMNS.removeprefix('id, ')}) VALUES ({marks})", row)
        number = cursor.lastrowid
        assert number is not None
        self._lasting_changed |= pinned
        self._count(new.tenant, len(new.tail) * new.bytes_per_token)
        self._add_blocks(number, new.tenant, keys, new.block * new.bytes_per_token)
        return number

    def grow(self, number: int, keys: list[int], tokens: int, tail: list[int], last: int) -> bool:
        """Note that an open session has more tokens: `keys` of its new blocks. False if it is not there any more."""
        entry = self.get(number)
        if entry is None:
            return False
        self._count(entry.tenant, (len(tail) - len(entry.tail)) * entry.bytes_per_token)
        self._add_blocks(number, entry.tenant, keys, entry.block * entry.bytes_per_token)
        self._db.execute(
            "UPDATE sessions SET tokens=?, tail=?, last=?, used=?, tick=? WHERE id=?",
            (tokens, json.dumps(tail), last, self._clock(), self._tick(), number),
        )
        return True

    def remove(self, number: int) -> Entry | None:
        """Remove a session. Returns what it was."""
        entry = self.get(number)
        if entry is None:
            return None
        size = entry.block * entry.bytes_per_token
        gone = self._rows(
            "SELECT count(*) FROM blocks b WHERE session=? AND NOT EXISTS "
            "(SELECT 1 FROM blocks o WHERE o.key=b.key AND o.session!=b.session)",
            (number,),
        )[0][0]
        self._count(entry.tenant, -gone * size - len(entry.tail) * entry.bytes_per_token)
        self._db.execute("DELETE FROM blocks WHERE session=?", (number,))
        self._db.execute("DELETE FROM sessions WHERE id=?", (number,))
        self._lasting_changed |= entry.pinned
        return entry

    def use(self, number: int) -> None:
        """Note that a session was found and used."""
        values = (self._clock(), self._tick(), number)
        self._db.execute("UPDATE sessions SET used=?, tick=?, uses=uses+1 WHERE id=?", values)

    def set(self, number: int, **fields: object) -> None:
        """Change `name`, `pinned` or `owner`. Raises InputError for a name that another session of the tenant has."""
        assert fields.keys() <= {"name", "pinned", "owner"}
        assignments = ", ".join(f"{name}=?" for name in fields)
        self._lasting_changed |= "pinned" in fields
        try:
            self._db.execute(f"UPDATE sessions SET {assignments} WHERE id=?", (*fields.values(), number))
        except sqlite3.IntegrityError as error:
            raise InputError(f"another session is called '{fields.get('name')}': choose another name") from error

    def close_owned(self, owner: str) -> None:
        """Nobody appends to the sessions of `owner` any more."""
        self._db.execute("UPDATE sessions SET owner='' WHERE owner=?", (owner,))

    def forget_future(self) -> None:
        """Sessions used in the future, before the clock was set back, count as used now."""
        now = self._clock()
        self._db.execute("UPDATE sessions SET used=? WHERE used>?", (now, now))

    # ---- counters ----

    @property
    def now(self) -> float:
        """The clock's time, seconds since 1970."""
        return self._clock()

    def count(self) -> int:
        """Number of sessions."""
        return int(self._rows("SELECT count(*) FROM sessions")[0][0])

    def blocks(self) -> int:
        """Number of distinct blocks."""
        return int(self._rows("SELECT count(*) FROM (SELECT DISTINCT key FROM blocks)")[0][0])

    def bytes(self, tenant: str | None = None) -> int:
        """Bytes of K and V of all sessions, or of a tenant's; what several share counts once."""
        if tenant is None:
            return int(self._rows("SELECT coalesce(sum(bytes), 0) FROM tenants")[0][0])
        return int(self._rows("SELECT coalesce(sum(bytes), 0) FROM tenants WHERE name=?", (tenant,))[0][0])

    def pinned(self) -> list[Entry]:
        """All pinned sessions."""
        return self._entries("WHERE pinned=1 ORDER BY id", ())

    def quotas(self) -> dict[str, int]:
        """The quota of each tenant that has one."""
        return dict(self._rows("SELECT name, quota FROM tenants WHERE quota IS NOT NULL"))

    def set_quota(self, tenant: str, quota: int | None) -> None:
        """The most bytes that a tenant's sessions may have; None: no limit of its own."""
        self._lasting_changed = True
        self._db.execute(
            "INSERT INTO tenants VALUES (?, 0, ?) ON CONFLICT(name) DO UPDATE SET quota=excluded.quota", (tenant, quota)
        )

    def quota(self, tenant: str) -> int | None:
        """See `set_quota`."""
        rows = self._rows("SELECT quota FROM tenants WHERE name=?", (tenant,))
        return rows[0][0] if rows else None

    def counter(self, name: str, default: Any = 0) -> Any:
        """A number or text that survives the process."""
        rows = self._rows("SELECT value FROM counters WHERE name=?", (name,))
        return rows[0][0] if rows else default

    def put_counter(self, name: str, value: float | str) -> None:
        """See `counter`."""
        self._db.execute("INSERT OR REPLACE INTO counters VALUES (?, ?)", (name, value))

    def bump(self, name: str, by: float = 1) -> None:
        """Add to a counter."""
        self._db.execute(
            "INSERT INTO counters VALUES (?, ?) ON CONFLICT(name) DO UPDATE SET value=value+excluded.value", (name, by)
        )

    def wanted(self, keys: list[int]) -> bool:
        """Note that somebody wants the prefix with these keys. True if one that it begins with was wanted before."""
        known = "SELECT 1 FROM seen WHERE key=?"
        before = any(self._db.execute(known, (key,)).fetchone() for key in keys)
        if keys:
            tick = self._tick()
            self._db.execute("INSERT OR REPLACE INTO seen VALUES (?, ?)", (keys[-1], tick))
            self._db.execute("DELETE FROM seen WHERE tick<=?", (tick - _SEEN,))
        return before

    # ---- parts ----

    def _entries(self, rest: str, values: tuple[Any, ...]) -> list[Entry]:
        return [_entry(row) for row in self._rows(f"SELECT {_COLUMNS} FROM sessions {rest}", values)]

    def _rows(self, query: str, values: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
        with self._lock:
            return self._db.execute(query, values).fetchall()

    def _tick(self) -> int:
        self.bump("tick")
        return int(self.counter("tick"))

    def _count(self, tenant: str, by: int) -> None:
        self._db.execute(
            "INSERT INTO tenants VALUES (?, ?, NULL) ON CONFLICT(name) DO UPDATE SET bytes=bytes+excluded.bytes",
            (tenant, by),
        )

    def _add_blocks(self, number: int, tenant: str, keys: list[int], size: int) -> None:
        known = "SELECT 1 FROM blocks WHERE key=? LIMIT 1"
        fresh = sum(self._db.execute(known, (key,)).fetchone() is None for key in keys)
        self._db.executemany("INSERT OR IGNORE INTO blocks VALUES (?, ?)", [(key, number) for key in keys])
        if fresh:
            self._count(tenant, fresh * size)


def _entry(row: tuple[Any, ...]) -> Entry:
    fields = list(row)
    fields[6], fields[8], fields[16] = json.loads(row[6]), json.loads(row[8]), bool(row[16])
    return Entry(*fields)
