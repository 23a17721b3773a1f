"""SQLite files that are derived from something else: an index of what drives or a file of blocks hold.

Losing one costs time, never an answer. So a damaged one is set aside and made again at once, and where the disk has no
room, or gives no right to write, the database goes on in memory. Both are said in a warning. What is in the file is
checked when it is opened; where it turns out to be damaged later, the database goes on in memory, and empty.
"""

from __future__ import annotations

import fcntl
import logging
import os
import sqlite3
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TypeVar

from kvdrive import private
from kvdrive.errors import InputError

log = logging.getLogger(__name__)
Values = tuple[Any, ...]
Found = TypeVar("Found")
_WAIT_SECONDS = 30
_PARTS = ("", "-wal", "-shm")
_BUSY = {sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED}
_DAMAGED = {sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB}
_NO_ROOM = {sqlite3.SQLITE_FULL, sqlite3.SQLITE_IOERR, sqlite3.SQLITE_READONLY, sqlite3.SQLITE_PERM}


class DamagedError(Exception):
    """What the file has cannot have been written by this program. `begin` raises it too."""


class Database:
    """The database in the file `path`, made where there is none; ":memory:" is none. `begin` makes or checks tables.

    `begin` gets the database inside a transaction, and raises DamagedError where its contents cannot be right. It may
    be called again. Statements can call `functions`. Calls from several threads at once are safe, and so are several
    processes. Raises InputError while another process keeps the database locked, and what `begin` raises.
    """

    def __init__(
        self,
        path: Path | str,
        begin: Callable[[Database], None],
        functions: Mapping[str, Callable[..., Any]] | None = None,
    ) -> None:
        self.path = path
        self._functions = functions or {}
        self.in_memory = not isinstance(path, Path)
        self.lock = threading.RLock()
        self._begin = begin
        self._written: list[tuple[bool, str, Any]] = []  # statements of the transaction that is open
        self._open = False
        self._opening = True
        self._db = self._opened()
        self._opening = False

    def close(self) -> None:
        """Close the file."""
        with self.lock:
            self._db.close()

    @contextmanager
    def transaction(self) -> Iterator[None]:
        """All changes inside happen or none; no other process changes the database meanwhile."""
        with self.lock:
            self._db.execute("BEGIN IMMEDIATE")
            self._open = True
            try:
                yield
                self._retried(lambda: self._db.execute("COMMIT"))
            except BaseException:
                if self._db.in_transaction:
                    self._db.execute("ROLLBACK")
                raise
            finally:
                self._open = False
                self._written.clear()

    def rows(self, query: str, values: Values = ()) -> list[Values]:
        """What a query finds."""
        with self.lock:
            return self._retried(lambda: self._db.execute(query, values).fetchall())

    def write(self, statement: str, values: Values = ()) -> sqlite3.Cursor:
        """Execute a statement that changes something."""
        return self._write(False, statement, values)

    def write_many(self, statement: str, rows: Sequence[Values]) -> None:
        """Execute a statement once for each of `rows`."""
        self._write(True, statement, rows)

    # ---- parts ----

    def _write(self, many: bool, statement: str, values: Any) -> sqlite3.Cursor:
        with self.lock:
            cursor = self._retried(lambda: self._run(many, statement, values))
            if self._open:
                self._written.append((many, statement, values))
            return cursor

    def _run(self, many: bool, statement: str, values: Any) -> sqlite3.Cursor:
        return self._db.executemany(statement, values) if many else self._db.execute(statement, values)

    def _retried(self, work: Callable[[], Found]) -> Found:
        """Do `work`; where the file cannot be used, in memory, after what the open transaction did so far."""
        try:
            return work()
        except sqlite3.Error as error:
            if self._opening or self.in_memory or _kind(error) not in _NO_ROOM | _DAMAGED:
                raise
            reason, damaged = str(error), _kind(error) in _DAMAGED
        self._move_to_memory(reason, empty=damaged)
        if self._open:
            self._db.execute("BEGIN IMMEDIATE")
            for many, statement, values in self._written:
                self._run(many, statement, values)
        return work()

    def _move_to_memory(self, reason: str, *, empty: bool) -> None:
        log.warning("%s cannot be used (%s): it goes on in memory, and is made again later", self.path, reason)
        if self._db.in_transaction:
            self._db.execute("ROLLBACK")
        memory = sqlite3.connect(":memory:", isolation_level=None, check_same_thread=False)
        self._add_functions(memory)
        if not empty:
            self._db.backup(memory)
        self._db.close()
        self._db, self.in_memory = memory, True
        if empty:
            written, self._written = self._written, []
            self._begin(self)
            self._written = written

    def _opened(self) -> sqlite3.Connection:
        if not isinstance(self.path, Path):
            return self._connected(self.path)
        try:
            private.make_folder(self.path.parent)
            try:
                return self._connected(self.path)
            except DamagedError:
                with _locked(self.path.parent):  # other processes find the same
                    return self._made_again(self.path)
        except OSError as error:
            return self._memory(str(error))
        except sqlite3.Error as error:
            if _kind(error) in _BUSY:
                raise InputError(f"{self.path} is in use by another process ({error}): try again later") from error
            return self._memory(str(error))

    def _made_again(self, path: Path) -> sqlite3.Connection:
        try:
            return self._connected(path)
        except DamagedError as error:
            log.warning("%s is damaged (%s): it is made again; %s keeps what it was", path, error, _set_aside(path))
        try:
            return self._connected(path)
        except DamagedError as error:
            return self._memory(str(error))

    def _memory(self, reason: str) -> sqlite3.Connection:
        log.warning("%s cannot be used (%s): it is made in memory, for this run", self.path, reason)
        self.in_memory = True
        return self._connected(":memory:")

    def _connected(self, path: Path | str) -> sqlite3.Connection:
        """Raises DamagedError, sqlite3.Error for a lack of room or rights, OSError, and what `begin` raises."""
        try:
            if isinstance(path, Path):
                private.make_file(path)
            db = sqlite3.connect(path, timeout=_WAIT_SECONDS, isolation_level=None, check_same_thread=False)
        except sqlite3.Error as error:
            raise _damage(error, path) from error
        try:
            db.execute("PRAGMA journal_mode=WAL")
            db.execute("PRAGMA synchronous=NORMAL")
            found = db.execute("PRAGMA quick_check(1)").fetchone()[0]
            if found != "ok":
                raise DamagedError(found)
            self._add_functions(db)
            self._db = db
            with self.transaction():
                self._begin(self)
        except (sqlite3.Error, ValueError, TypeError, KeyError, IndexError) as error:  # also values of wrong types
            db.close()
            raise _damage(error, path) from error
        except BaseException:
            db.close()
            raise
        return db

    def _add_functions(self, db: sqlite3.Connection) -> None:
        for name, call in self._functions.items():
            db.create_function(name, -1, call, deterministic=True)


def _damage(error: Exception, path: Path | str) -> Exception:
    """`error` itself where it is a lack of room or rights, DamagedError otherwise."""
    kind = _kind(error)
    if isinstance(error, sqlite3.Error) and (kind in _BUSY or kind in _NO_ROOM):
        return error
    if kind == sqlite3.SQLITE_CANTOPEN and isinstance(path, Path) and all(map(_usable, _parts(path))):
        return error
    return DamagedError(str(error))


def _usable(part: Path) -> bool:
    return not part.exists() or part.is_file()


def _kind(error: Exception) -> int:
    return getattr(error, "sqlite_errorcode", sqlite3.SQLITE_ERROR) & 0xFF


def _parts(path: Path) -> list[Path]:
    return [path.with_name(path.name + part) for part in _PARTS]


def _set_aside(path: Path) -> Path:
    """Give what is at `path` another name, which is returned. Raises OSError."""
    aside = path.with_name(path.name + ".damaged")
    number = 1
    while aside.is_dir() or (path.is_dir() and aside.exists()):
        number += 1
        aside = path.with_name(f"{path.name}.damaged-{number}")
    for part, to in zip(_parts(path), _parts(aside), strict=True):
        if os.path.lexists(part):
            os.replace(part, to)
    return aside


@contextmanager
def _locked(folder: Path) -> Iterator[None]:
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield
    finally:
        os.close(descriptor)
