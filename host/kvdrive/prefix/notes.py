"""Texts beside sessions, in the index: what a server has to know of a session beyond its tokens.

A note goes with its session, and a new index has none. One that is not what was written counts as none.
"""

from __future__ import annotations

import logging
import zlib

from kvdrive.database import Database
from kvdrive.prefix.entry import Entry

log = logging.getLogger(__name__)
_TABLE = "CREATE TABLE IF NOT EXISTS notes(session INTEGER PRIMARY KEY, text BLOB, sum INTEGER)"
_OF_TENANT = (
    "SELECT session, length(text) FROM notes JOIN sessions ON sessions.id=session WHERE tenant=? ORDER BY tick DESC"
)


class Notes:
    """`most`: notes of a tenant, and `most_bytes` of them together; those of the sessions that were used least recently
    go first. Changes belong inside the index's transaction.
    """

    def __init__(self, db: Database, most: int = 1000, most_bytes: int = 32 << 20) -> None:
        self._db, self._most, self._most_bytes = db, most, most_bytes
        db.write(_TABLE)
        db.write("DELETE FROM notes WHERE session NOT IN (SELECT id FROM sessions)")  # by a program that knows no notes

    def put(self, entry: Entry, text: bytes) -> None:
        """Give a session a note, and remove others of its tenant that have no room beside it."""
        self._db.write("INSERT OR REPLACE INTO notes VALUES (?, ?, ?)", (entry.id, text, _sum(entry, text)))
        held = 0
        for count, (session, size) in enumerate(self._db.rows(_OF_TENANT, (entry.tenant,)), 1):
            held += size
            if count > self._most or held > self._most_bytes:
                self.remove(session)

    def of(self, entry: Entry) -> bytes | None:
        """The note of a session; None without one."""
        rows = self._db.rows("SELECT text, sum FROM notes WHERE session=?", (entry.id,))
        if not rows:
            return None
        text, found = rows[0]
        if isinstance(text, bytes) and found == _sum(entry, text):
            return text
        log.warning("what the index has beside session %d is damaged, and is removed", entry.id)
        self.remove(entry.id)
        return None

    def remove(self, session: int) -> None:
        """Remove the note of a session, if it has one."""
        self._db.write("DELETE FROM notes WHERE session=?", (session,))


def _sum(entry: Entry, text: bytes) -> int:
    """A checksum that no other session's text has."""
    return zlib.crc32(text, zlib.crc32(repr((entry.id, entry.tenant, entry.name)).encode()))
