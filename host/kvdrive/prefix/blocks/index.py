"""The index of blocks: which one is in which slot. SQLite in WAL mode, for several processes at once.

It proves nothing: a slot is compared with the wanted key when it is read. A stale or lost index costs time, never an
answer. A new one, also in place of a damaged one (`database`), is filled with what the medium says that it holds.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from kvdrive.database import DamagedError, Database
from kvdrive.errors import InputError
from kvdrive.prefix.accounts import TABLES, Accounts
from kvdrive.prefix.usage import Usage

log = logging.getLogger(__name__)
_VERSION = 2
_BLOCK_BYTES, _SLOTS = "block_bytes", "slots"  # counters: the size of a block, and slots that were ever used
_SCHEMA = (
    *TABLES,
    "CREATE TABLE free(slot INTEGER PRIMARY KEY)",
    "CREATE TABLE blocks(id INTEGER PRIMARY KEY AUTOINCREMENT, name BLOB UNIQUE, slot INTEGER UNIQUE, model BLOB, "
    "owner TEXT, used REAL, tick INTEGER, uses INTEGER, tenant TEXT)",
    "CREATE INDEX block_uses ON blocks(tick)",
    "CREATE INDEX block_models ON blocks(model)",
    "CREATE INDEX block_owners ON blocks(owner) WHERE owner != ''",
)
_FROM_VERSION_1 = (
    *TABLES,
    "INSERT INTO counters SELECT 'block_bytes', block_bytes FROM file",
    "INSERT INTO counters SELECT 'slots', slots FROM file",
    "INSERT INTO counters SELECT 'tick', tick FROM file",
    "DROP TABLE file",
    "DROP TRIGGER freed",
    "ALTER TABLE blocks RENAME COLUMN key TO name",
    "ALTER TABLE blocks ADD COLUMN tenant TEXT DEFAULT ''",
)
_FREED = (  # `size`: bytes of a slot
    "CREATE TRIGGER freed AFTER DELETE ON blocks BEGIN INSERT OR IGNORE INTO free VALUES (old.slot); "
    "UPDATE tenants SET bytes=bytes-{size} WHERE name=old.tenant; END"
)


@dataclass(frozen=True)
class Block:
    """A stored block: its number in the order of storing, its name and its slot."""

    id: int
    name: bytes
    slot: int


class BlockIndex:
    """The index in the file `path`, made where there is none. Blocks have `block_bytes` bytes, slots `slot_bytes`.

    `found`: slot and name of each block that the medium holds, for a new index. Raises InputError.
    """

    def __init__(
        self, path: Path | str, block_bytes: int, slot_bytes: int, found: Callable[[], Iterable[tuple[int, bytes]]]
    ) -> None:
        self.pinned: set[int] = set()  # numbers of blocks that this process is reading: they are not evictable
        self._path, self._block_bytes, self._slot_bytes, self._found = path, block_bytes, slot_bytes, found
        self._db = Database(path, self._begin)

    def _begin(self, db: Database) -> None:
        """Make the tables and fill them, or check them. Raises DamagedError, InputError."""
        self.accounts = Accounts(db)
        self._usage = Usage(db, "blocks", self.accounts, time.time)
        version = db.rows("PRAGMA user_version")[0][0]
        if version not in (0, 1, _VERSION):
            raise InputError(f"{self._path} is an index of another version: remove it and the file of blocks")
        if version != _VERSION:
            for statement in (*(_FROM_VERSION_1 if version else _SCHEMA), _FREED):
                db.write(statement.format(size=self._slot_bytes))
            db.write(f"PRAGMA user_version={_VERSION}")
        if version == 0:
            self.accounts.put(_BLOCK_BYTES, self._block_bytes)
            self._fill(db)
        if version < _VERSION:
            (count,) = db.rows("SELECT count(*) FROM blocks")[0]
            self.accounts.add_bytes("", count * self._slot_bytes)
        if version == 1:
            log.warning("%s was made by an earlier version: it is converted", self._path)
        self._check(db)

    def _fill(self, db: Database) -> None:
        slots = 0
        for slot, name in self._found():
            row = (name, slot, time.time(), self.accounts.ticks())
            db.write("INSERT OR IGNORE INTO blocks VALUES (NULL, ?, ?, x'', '', ?, ?, 0, '')", row)
            slots = max(slots, slot + 1)
        taken = {slot for (slot,) in db.rows("SELECT slot FROM blocks")}
        db.write_many("INSERT INTO free VALUES (?)", [(slot,) for slot in range(slots) if slot not in taken])
        self.accounts.put(_SLOTS, slots)
        if taken and isinstance(self._path, Path):
            log.warning("%s is made from %d blocks that were found", self._path, len(taken))

    def _check(self, db: Database) -> None:
        self.accounts.check()
        found, slots = self.accounts.counter(_BLOCK_BYTES), self.accounts.counter(_SLOTS)
        if not isinstance(found, int) or not isinstance(slots, int):
            raise DamagedError("a count is no number")
        if found != self._block_bytes:
            raise InputError(
                f"{self._path} is for blocks of {found} bytes, and this engine's have {self._block_bytes}: choose "
                "another path"
            )
        for (slot,) in db.rows("SELECT slot FROM blocks"):
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

    def find(self, name: bytes) -> tuple[Block, bool] | None:
        """The block with this name, and True if it is written completely; None if there is none."""
        rows = self._rows("SELECT id, name, slot, owner='' FROM blocks WHERE name=?", (name,))
        return (Block(*rows[0][:3]), bool(rows[0][3])) if rows else None

    def whole(self, names: Sequence[bytes]) -> dict[bytes, Block]:
        """Those of `names`, at most a few hundred, whose blocks are written completely."""
        places = ",".join("?" * len(names))
        rows = self._rows(f"SELECT id, name, slot FROM blocks WHERE owner='' AND name IN ({places})", tuple(names))
        return {block.name: block for block in (Block(*row) for row in rows)}

    def first(self, order: str, condition: str = "1", values: tuple[Any, ...] = ()) -> Block | None:
        """The first evictable block, in the SQL order `order`: neither pinned nor being written."""
        pinned = ",".join(map(str, self.pinned))
        row = self._usage.first("id, name, slot", order, f"id NOT IN ({pinned}) AND {condition}", values)
        return Block(*row) if row else None

    def count(self) -> int:
        """Number of blocks, those that are being written included."""
        return self.accounts.bytes() // self._slot_bytes

    # ---- changing, inside a transaction ----

    def take_slot(self, slots: int) -> int | None:
        """A slot below `slots` that no block has; None if there is none."""
        freed = self._rows("SELECT min(slot) FROM free WHERE slot<?", (slots,))[0][0]
        if freed is not None:
            self._db.write("DELETE FROM free WHERE slot=?", (freed,))
            return int(freed)
        fresh = int(self.accounts.counter(_SLOTS))
        if fresh >= slots:
            return None
        self.accounts.bump(_SLOTS)
        return fresh

    def add(self, slots: Mapping[bytes, int], model: bytes, tenant: str, writer: str) -> None:
        """Note that `writer` writes blocks, by their names, to these slots."""
        now, first = time.time(), self.accounts.ticks(len(slots)) - len(slots)
        rows = [(*item, model, writer, now, first + place, tenant) for place, item in enumerate(slots.items(), 1)]
        self._db.write_many("INSERT INTO blocks VALUES (NULL, ?, ?, ?, ?, ?, ?, 0, ?)", rows)
        self.accounts.add_bytes(tenant, len(slots) * self._slot_bytes)

    def written(self, names: Sequence[bytes]) -> None:
        """Note that blocks are written completely. The first of `names` counts as the one used last."""
        self._usage.note("name", names, "owner=''")

    def use(self, names: Sequence[bytes]) -> None:
        """Note that blocks were used, the first of `names` as the last: a prefix is worth more than what follows."""
        self._usage.note("name", names)

    def remove(self, number: int) -> None:
        """Remove a block by its number."""
        self._db.write("DELETE FROM blocks WHERE id=?", (number,))

    def remove_all(self, names: Sequence[bytes]) -> None:
        """Remove blocks."""
        self._db.write_many("DELETE FROM blocks WHERE name=?", [(name,) for name in names])

    def remove_beyond(self, slots: int) -> list[bytes]:
        """Remove written blocks that are not in the first `slots` slots. Returns their names."""
        return self._remove("slot>=?", slots)

    def remove_model(self, model: bytes) -> list[bytes]:
        """Remove all written blocks of a model, and those of unknown models. Returns their names."""
        return self._remove("model IN (x'', ?)", model)

    def remove_unfinished(self) -> None:
        """Remove blocks whose writer has died."""
        for name in self._usage.dead():
            self._db.write("DELETE FROM blocks WHERE owner=?", (name,))

    # ---- parts ----

    def _remove(self, condition: str, value: Any) -> list[bytes]:
        names = [name for (name,) in self._rows(f"SELECT name FROM blocks WHERE owner='' AND {condition}", (value,))]
        self.remove_all(names)
        return names

    def _rows(self, query: str, values: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
        return self._db.rows(query, values)
