"""The index: which block is in which slot. SQLite in WAL mode, for several processes at once.

It proves nothing: a slot is compared with the wanted key when it is read. A stale or lost index costs time, never an
answer. A damaged one begins anew, with no block (`database`).
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from kvdrive.database import DamagedError, Database
from kvdrive.errors import InputError
from kvdrive.prefix import owner

_VERSION = 1
_SCHEMA = """\
CREATE TABLE file(block_bytes INTEGER, tick INTEGER, slots INTEGER);

CREATE TABLE free(slot INTEGER PRIMARY KEY);

CREATE TABLE blocks(
    id INTEGER PRIMARY KEY AUTOINCREMENT, key BLOB UNIQUE, slot INTEGER UNIQUE, model BLOB, owner TEXT, used REAL,
    tick INTEGER, uses INTEGER);

CREATE INDEX block_uses ON blocks(tick);

CREATE INDEX block_models ON blocks(model);

CREATE INDEX block_owners ON blocks(owner) WHERE owner != '';

CREATE TRIGGER freed AFTER DELETE ON blocks BEGIN INSERT OR IGNORE INTO free VALUES (old.slot); END;
"""


@dataclass(frozen=True)
class Block:
    """A kept block: its number in the order of keeping, and its slot."""

    id: int
    slot: int


class BlockIndex:
    """The index in the file `path`, made where there is none, of blocks of `block_bytes` bytes. Raises InputError."""

    def __init__(self, path: Path, block_bytes: int) -> None:
        self.pinned: set[int] = set()  # numbers of blocks that this process is reading: `first` passes them over
        self._path, self._block_bytes = path, block_bytes
        self._db = Database(path, self._begin)

    def _begin(self, db: Database) -> None:
        """Make the tables, or check them. Raises DamagedError, InputError."""
        version = db.rows("PRAGMA user_version")[0][0]
        if version == 0:
            for statement in _SCHEMA.split("\n\n"):
                db.write(statement)
            db.write("INSERT INTO file VALUES (?, 0, 0)", (self._block_bytes,))
            db.write(f"PRAGMA user_version={_VERSION}")
        elif version != _VERSION:
            raise InputError(f"{self._path} is an index of another version: remove it and the file of blocks")
        ((found, tick, slots),) = db.rows("SELECT block_bytes, tick, slots FROM file")
        if not all(isinstance(value, int) for value in (found, tick, slots)):
            raise DamagedError("a count is no number")
        if found != self._block_bytes:
            raise InputError(
                f"{self._path} is for blocks of {found} bytes, and this engine's have {self._block_bytes}: choose "
                "another path"
            )
        for _, slot in db.rows("SELECT id, slot FROM blocks"):
            if not isinstance(slot, int) or not 0 <= slot < slots:
                raise DamagedError(f"a block is said to be in slot {slot}")

    def close(self) -> None:
        """Close the file."""
        self._db.close()

    @contextmanager
    def transaction(self) -> Iterator[None]:
        """All changes inside happen or none; no other process changes the index meanwhile."""
        with self._db.transaction():
            yield

    # ---- looking up ----

    def find(self, key: bytes) -> tuple[Block, bool] | None:
        """The block with this key, and True if it is written completely; None if there is none."""
        rows = self._rows("SELECT id, slot, owner='' FROM blocks WHERE key=?", (key,))
        return (Block(rows[0][0], rows[0][1]), bool(rows[0][2])) if rows else None

    def whole(self, keys: Sequence[bytes]) -> dict[bytes, Block]:
        """Those of `keys`, at most a few hundred, whose blocks are written completely."""
        places = ",".join("?" * len(keys))
        rows = self._rows(f"SELECT key, id, slot FROM blocks WHERE owner='' AND key IN ({places})", tuple(keys))
        return {key: Block(number, slot) for key, number, slot in rows}

    def first(self, order: str, condition: str = "1", values: tuple[Any, ...] = ()) -> Block | None:
        """The first evictable block, in the SQL order `order`: neither pinned nor being written."""
        pinned = ",".join(map(str, self.pinned))
        rows = self._rows(
            f"SELECT id, slot FROM blocks WHERE owner='' AND id NOT IN ({pinned}) AND {condition} "
            f"ORDER BY {order} LIMIT 1",
            values,
        )
        return Block(*rows[0]) if rows else None

    def count(self) -> int:
        """Number of blocks, those that are being written included."""
        return int(self._rows("SELECT count(*) FROM blocks")[0][0])

    # ---- changing, inside a transaction ----

    def take_slot(self, slots: int) -> int | None:
        """A slot below `slots` that no block has; None if there is none."""
        freed = self._rows("SELECT min(slot) FROM free WHERE slot<?", (slots,))[0][0]
        if freed is not None:
            self._db.write("DELETE FROM free WHERE slot=?", (freed,))
            return int(freed)
        (fresh,) = self._rows("SELECT slots FROM file")[0]
        if fresh >= slots:
            return None
        self._db.write("UPDATE file SET slots=slots+1")
        return int(fresh)

    def add(self, key: bytes, slot: int, model: bytes, writer: str) -> None:
        """Note that `writer` writes a block."""
        row = (key, slot, model, writer, time.time(), self._ticks(1))
        self._db.write("INSERT INTO blocks VALUES (NULL, ?, ?, ?, ?, ?, ?, 0)", row)

    def written(self, keys: Sequence[bytes]) -> None:
        """Note that blocks are written completely. The first of `keys` counts as the one used last."""
        self._use(keys, "owner=''")

    def use(self, keys: Sequence[bytes]) -> None:
        """Note that blocks were used, the first of `keys` as the last one: a prefix is worth more than what follows."""
        self._use(keys, "uses=uses+1")

    def remove(self, keys: Sequence[bytes]) -> None:
        """Forget blocks."""
        self._db.write_many("DELETE FROM blocks WHERE key=?", [(key,) for key in keys])

    def remove_number(self, number: int) -> None:
        """Forget a block by its number."""
        self._db.write("DELETE FROM blocks WHERE id=?", (number,))

    def remove_from(self, slot: int) -> None:
        """Forget written blocks in `slot` and behind it."""
        self._db.write("DELETE FROM blocks WHERE slot>=? AND owner=''", (slot,))

    def remove_model(self, model: bytes) -> None:
        """Forget all written blocks of a model."""
        self._db.write("DELETE FROM blocks WHERE model=? AND owner=''", (model,))

    def remove_unfinished(self) -> None:
        """Forget blocks whose writer has died."""
        for (name,) in self._rows("SELECT DISTINCT owner FROM blocks WHERE owner!=''"):
            if not owner.is_alive(name):
                self._db.write("DELETE FROM blocks WHERE owner=?", (name,))

    # ---- parts ----

    def _use(self, keys: Sequence[bytes], change: str) -> None:
        last = self._ticks(len(keys))
        rows = [(time.time(), last - place, key) for place, key in enumerate(keys)]
        self._db.write_many(f"UPDATE blocks SET {change}, used=?, tick=? WHERE key=?", rows)

    def _ticks(self, count: int) -> int:
        """The last of `count` new ticks."""
        self._db.write("UPDATE file SET tick=tick+?", (count,))
        return int(self._rows("SELECT tick FROM file")[0][0])

    def _rows(self, query: str, values: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
        return self._db.rows(query, values)
