"""The index: which tokens are stored, and where. SQLite in WAL mode, for several processes at once.

It holds no K and V and no proof: the store compares what it finds with the drive's own copy of the tokens before it is
used. A lost or stale index costs time, never an answer. A damaged one is made again (`database`); a checksum of each
session guards what the store would remove from a drive.
"""

from __future__ import annotations

import json
import re
import sqlite3
import time
import zlib
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from kvdrive.database import DamagedError, Database
from kvdrive.errors import InputError
from kvdrive.prefix import sidecar
from kvdrive.prefix.accounts import TABLES, Accounts
from kvdrive.prefix.entry import Entry, NewEntry, state_bytes, state_of
from kvdrive.prefix.notes import Notes
from kvdrive.prefix.usage import Usage

_VERSION = 1
_UNFILLED = "unfilled"  # the counter of an index that does not name yet what the drives hold
_AT_ONCE = 500  # keys in one query
_CANDIDATES = 16  # sessions with the same longest prefix whose last tokens are compared
_COUNTERS = ("day", "bytes_today", "bytes_written", "hits", "refused")  # of the governor, also beside the index
_COLUMNS = (
    "id, root, name, tenant, model, tokens, tail, last, slices, record, bytes_per_token, block, created, used, tick, "
    "uses, pinned, owner"
)
_GUARDED = "root, name, tenant, model, tokens, tail, last, slices, record, bytes_per_token, block, pinned, owner"
_ADD_SUMS = "ALTER TABLE sessions ADD COLUMN sum INTEGER"
_SUM = f"checksum({_GUARDED})"
_SCHEMA = """
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
"""


class Index:
    """The index in the file `path`, made where there is none. `clock`: seconds since 1970.

    `made`: it is new, or a process was killed before `filled`: whoever has the drives fills it (`rebuild`). A file that
    is damaged or no index is made anew, and one that cannot be written is made in memory. Raises InputError for an
    index of a later version, and while another process holds its lock.
    """

    def __init__(self, path: Path | str, clock: Callable[[], float] = time.time) -> None:
        self.path = path
        self.made = False
        self._clock = clock
        self.on_removal: Callable[[int], None] = lambda number: None  # of a session, by its number
        self._sidecar_changed = False
        if isinstance(path, Path):
            sidecar.convert(path)
        self._db = Database(path, self._begin, {"checksum": _checksum})

    def _begin(self, db: Database) -> None:
        """Make the tables, or check every session. Raises DamagedError, InputError."""
        self.accounts = Accounts(db)
        self._usage = Usage(db, "sessions", self.accounts, lambda: self.now)
        version = db.rows("PRAGMA user_version")[0][0]
        if version == 0:
            for statement in (*TABLES, *_SCHEMA.split(";"), _ADD_SUMS):
                db.write(statement)
            self.accounts.put(_UNFILLED, 1)
            db.write(f"PRAGMA user_version={_VERSION}")
            version = _VERSION
        if version != _VERSION:
            raise InputError(f"{self.path} is an index of another version: remove it, and it is made again")
        if "sum" not in {row[1] for row in db.rows("PRAGMA table_info(sessions)")}:  # as earlier versions made it
            db.write(_ADD_SUMS)
            db.write(f"UPDATE sessions SET sum={_SUM}")
        if wrong := db.rows(f"SELECT id FROM sessions WHERE sum IS NOT {_SUM} LIMIT 1"):
            raise DamagedError(f"session {wrong[0][0]} has a wrong checksum")
        for row in db.rows(f"SELECT {_COLUMNS} FROM sessions"):
            _entry(row)
        self.accounts.check()
        self.notes = Notes(db)
        self.made = bool(self.accounts.counter(_UNFILLED))

    def filled(self) -> None:
        """The index names what the drives hold. Until this is said inside a transaction, every opening says `made`."""
        self.accounts.remove(_UNFILLED)
        self.made = False

    def close(self) -> None:
        """Close the file."""
        with self._db.lock:
            self._write_sidecar()
            self._db.close()

    @contextmanager
    def transaction(self) -> Iterator[None]:
        """All changes inside happen or none; no other process changes the index meanwhile."""
        with self._db.lock:
            with self._db.transaction():
                yield
            if self._sidecar_changed:
                self._sidecar_changed = False
                self._write_sidecar()

    def _write_sidecar(self) -> None:
        if self.made:  # an index that is not filled knows no pins
            return
        pins = [(entry.tenant, entry.slices) for entry in self.pinned()]
        counters = {name: value for name in _COUNTERS if (value := self.accounts.counter(name, None)) is not None}
        sidecar.write(self.path, sidecar.Sidecar(pins, self.accounts.quotas(), counters))

    def read_sidecar(self) -> None:
        """Take pins, quotas and counters from the file beside the index, for sessions that the index names already."""
        found = sidecar.read(self.path)
        for tenant, quota in found.quotas.items():
            self.set_quota(tenant, quota)
        for name in _COUNTERS:
            if name in found.counters:
                self.accounts.put(name, found.counters[name])
        pins = {(tenant, json.dumps(slices)) for tenant, slices in found.pins}
        for entry in self.entries():
            if (entry.tenant, json.dumps(entry.slices)) in pins:
                self.set(entry.id, pinned=True)

    # ---- looking up ----

    def find(self, root: int, keys: Iterable[int]) -> tuple[int, list[Entry]]:
        """The number of blocks of the longest stored prefix, and sessions that have them, the last used first.

        With no block in common these are sessions of less than a block under the same `root`.
        """
        depth, last = 0, root
        with self._db.lock:
            for key in keys:
                if not self._rows("SELECT 1 FROM blocks WHERE key=? LIMIT 1", (key,)):
                    break
                depth, last = depth + 1, key
            ends = self._entries(f"WHERE last=? ORDER BY tick DESC LIMIT {_CANDIDATES}", (last,))
            longer: list[Entry] = []
            if depth:
                some = f"SELECT session FROM blocks WHERE key=? ORDER BY session DESC LIMIT {_CANDIDATES}"
                longer = self._entries(f"WHERE id IN ({some}) ORDER BY tick DESC", (last,))
        there = {entry.id for entry in ends}
        return depth, ends + [entry for entry in longer if entry.id not in there]

    def prefixes(self, root: int, keys: list[int], ids: Sequence[int]) -> list[Entry]:
        """The sessions all of whose tokens are a prefix of `ids`, whose whole blocks have `keys`; the longest first."""
        found: list[Entry] = []
        with self._db.lock:
            for first in range(0, len(keys) + 1, _AT_ONCE):
                some = [root, *keys][first : first + _AT_ONCE]
                found += self._entries(f"WHERE root=? AND last IN ({','.join('?' * len(some))})", (root, *some))
        whole = {key: number for number, key in enumerate([root, *keys])}
        return sorted(
            (
                entry
                for entry in found
                if whole[entry.last] == entry.tokens // entry.block
                and entry.tail == list(ids[entry.tokens - len(entry.tail) : entry.tokens])
            ),
            key=lambda entry: -entry.tokens,
        )

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

    def latest(self, roots: Sequence[int]) -> Entry | None:
        """The session under one of these roots that was used last."""
        found = self._entries(f"WHERE root IN ({','.join('?' * len(roots))}) ORDER BY tick DESC LIMIT 1", tuple(roots))
        return found[0] if found else None

    def first(self, order: str, condition: str = "1", values: tuple[Any, ...] = ()) -> Entry | None:
        """The first evictable session, in the SQL order `order`: neither pinned nor open."""
        row = self._usage.first(_COLUMNS, order, f"pinned=0 AND {condition}", values)
        return None if row is None else _entry(row)

    def places(self) -> set[tuple[int, int]]:
        """All (drive, session number) that sessions and their states use."""
        found = set()
        for slices, record in self._rows("SELECT slices, record FROM sessions"):
            places = json.loads(slices)
            found |= {(one[0], one[1]) for one in places}
            if (state := state_of(record)) is not None:
                found.add((places[0][0], state.session))
        return found

    # ---- changing ----

    def add(self, new: NewEntry, keys: list[int], *, pinned: bool = False) -> int:
        """Add a session with the keys of its whole blocks. Returns its number."""
        now, tick = self._clock(), self.accounts.ticks()
        row = (
            new.root, new.name, new.tenant, new.model, new.tokens, json.dumps(new.tail), new.last,
            json.dumps(new.slices),
            new.record, new.bytes_per_token, new.block, now, now, tick, 0, int(pinned), new.owner,
        )  # fmt: skip
        marks = ",".join("?" * len(row))
        cursor = self._db.write(f"INSERT INTO sessions({_COLUMNS.removeprefix('id, ')}) VALUES ({marks})", row)
        number = cursor.lastrowid
        assert number is not None
        self._guard(number)
        self._sidecar_changed |= pinned
        self.accounts.add_bytes(new.tenant, len(new.tail) * new.bytes_per_token + state_bytes(new.record))
        self._add_blocks(number, new.tenant, keys, new.block * new.bytes_per_token)
        return number

    def grow(self, number: int, keys: list[int], tokens: int, tail: list[int], last: int) -> bool:
        """Note that an open session has more tokens; `keys`: of all its blocks. False if it is not there any more."""
        entry = self.get(number)
        if entry is None:
            return False
        self.accounts.add_bytes(entry.tenant, (len(tail) - len(entry.tail)) * entry.bytes_per_token)
        fresh = keys[entry.tokens // entry.block :]
        self._add_blocks(number, entry.tenant, fresh, entry.block * entry.bytes_per_token)
        self._db.write(
            "UPDATE sessions SET tokens=?, tail=?, last=?, used=?, tick=? WHERE id=?",
            (tokens, json.dumps(tail), last, self._clock(), self.accounts.ticks(), number),
        )
        self._guard(number)
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
        self.accounts.add_bytes(
            entry.tenant, -gone * size - len(entry.tail) * entry.bytes_per_token - entry.state_bytes
        )
        self._db.write("DELETE FROM blocks WHERE session=?", (number,))
        self._db.write("DELETE FROM sessions WHERE id=?", (number,))
        self.notes.remove(number)
        self._sidecar_changed |= entry.pinned
        self.on_removal(number)
        return entry

    def use(self, number: int) -> None:
        """Note that a session was found and used."""
        self._usage.note("id", [number])

    def set(self, number: int, **fields: object) -> None:
        """Change `name`, `pinned` or `owner`. Raises InputError for a name that another session of the tenant has."""
        assert fields.keys() <= {"name", "pinned", "owner"}
        assignments = ", ".join(f"{name}=?" for name in fields)
        self._sidecar_changed |= "pinned" in fields
        try:
            self._db.write(f"UPDATE sessions SET {assignments} WHERE id=?", (*fields.values(), number))
            self._guard(number)
        except sqlite3.IntegrityError as error:
            raise InputError(f"another session is called '{fields.get('name')}': choose another name") from error

    def close_dead(self) -> None:
        """Close sessions whose process has died before it could."""
        for name in self._usage.dead():
            self.close_owned(name)

    def close_owned(self, owner: str) -> None:
        """Nobody appends to the sessions of `owner` any more."""
        numbers = self._rows("SELECT id FROM sessions WHERE owner=?", (owner,))
        self._db.write("UPDATE sessions SET owner='' WHERE owner=?", (owner,))
        for (number,) in numbers:
            self._guard(number)

    def forget_future(self) -> None:
        """Sessions used in the future, before the clock was set back, count as used now."""
        self._usage.forget_future()

    # ---- counting ----

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

    def pinned(self) -> list[Entry]:
        """All pinned sessions."""
        return self._entries("WHERE pinned=1 ORDER BY id", ())

    def set_quota(self, tenant: str, quota: int | None) -> None:
        """The most bytes that a tenant's sessions may have; None: no limit of its own."""
        self._sidecar_changed = True
        self.accounts.set_quota(tenant, quota)

    # ---- parts ----

    def _entries(self, rest: str, values: tuple[Any, ...]) -> list[Entry]:
        return [_entry(row) for row in self._rows(f"SELECT {_COLUMNS} FROM sessions {rest}", values)]

    def _rows(self, query: str, values: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
        return self._db.rows(query, values)

    def _guard(self, number: int) -> None:
        """Give a changed session its checksum."""
        self._db.write(f"UPDATE sessions SET sum={_SUM} WHERE id=?", (number,))

    def _add_blocks(self, number: int, tenant: str, keys: list[int], size: int) -> None:
        known = "SELECT 1 FROM blocks WHERE key=? LIMIT 1"
        fresh = sum(not self._rows(known, (key,)) for key in keys)
        self._db.write_many("INSERT OR IGNORE INTO blocks VALUES (?, ?)", [(key, number) for key in keys])
        if fresh:
            self.accounts.add_bytes(tenant, fresh * size)


def _checksum(*values: object) -> int:
    return zlib.crc32(repr(values).encode())


def _entry(row: tuple[Any, ...]) -> Entry:
    """Raises ValueError, TypeError for values that no session has."""
    if not all(isinstance(value, int | float) for value in row[12:16]):
        raise ValueError("a time or a count of uses is no number")
    fields = list(row)
    fields[6], fields[8], fields[16] = json.loads(row[6]), json.loads(row[8]), bool(row[16])
    return Entry(*fields)
