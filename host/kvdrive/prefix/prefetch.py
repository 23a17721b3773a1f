"""Stored sessions that waiting requests will use, brought into memory before their turn (AttentionStore's prefetch).

Where sequences run in memory, their K and V are loaded; where the drive attends and holds in the page cache what it
reads, they are read there. The window covers as many requests as there is room for: C_mem / S_kv. The queue-aware
eviction policy spares the sessions of all waiting requests. With a memory tier, copies are read into that instead, from
which a request loads its session when its turn comes.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence as Several

from kvdrive.errors import KvdriveError, TargetError
from kvdrive.prefix.entry import Entry
from kvdrive.prefix.evictor import Evictor
from kvdrive.prefix.memory_tier import MemoryTier
from kvdrive.prefix.open_session import OpenSession
from kvdrive.prefix.opener import Opener
from kvdrive.prefix.record import Record
from kvdrive.prefix.request import Request
from kvdrive.prefix.stored import StoredSessions

log = logging.getLogger(__name__)


class Prefetch:
    """The sessions that `opener` opened before the turn of their requests."""

    def __init__(
        self, opener: Opener, stored: StoredSessions, evictor: Evictor, memory: MemoryTier | None = None
    ) -> None:
        self._opener = opener
        self._stored = stored
        self._evictor = evictor
        self._memory = memory
        self._read: set[int] = set()  # sessions in the page cache
        self._ready: dict[Request, OpenSession] = {}

    def see(self, waiting: Several[Request]) -> None:
        """The requests that wait now, the next one first. Loads for those that memory has room for.

        Raises TargetError.
        """
        if self._memory is not None:
            self._memory.bring(self._look_ahead(waiting))
            return
        wanted: list[int] = []
        room = self._cache_bytes
        for request in list(self._ready):
            if request not in waiting:
                self._ready.pop(request).discard()
        full = False
        for request in waiting:
            known, entry = self._opener.lookups.of(request.tenant).longest_prefix(request.prompt[:-1])
            if entry is None:
                continue
            wanted.append(entry.id)
            room -= known * Record.of(entry.record).bytes_per_token
            if room >= 0 and entry.id not in self._read:
                self._read.add(entry.id)
                self._stored.read_ahead(entry, known)
            if not full and request not in self._ready:
                full = not self._load(request, known, entry)
        self._read &= set(wanted)
        self._evictor.policy.look_ahead(wanted)

    def note(self, waiting: Several[Request]) -> None:
        """The requests that wait now, of which nothing is to be read yet: with a memory tier, what leaves next."""
        if self._memory is not None:
            self._memory.look_ahead(self._look_ahead(waiting))

    def _look_ahead(self, waiting: Several[Request]) -> list[Entry | None]:
        """The session of each request that loading pays for. Notifies the eviction policy of all sessions."""
        found = [self._opener.lookups.of(one.tenant).longest_prefix(one.prompt[:-1]) for one in waiting]
        self._evictor.policy.look_ahead([entry.id for _, entry in found if entry is not None])
        planner = self._opener.planner
        return [
            entry if entry is not None and planner.pays(request, known, entry) else None
            for request, (known, entry) in zip(waiting, found, strict=True)
        ]

    def take(self, request: Request) -> OpenSession | None:
        """The session of a request whose turn has come; None if it was not loaded."""
        return self._ready.pop(request, None)

    def close(self) -> None:
        """Discard what was loaded."""
        self.see(())

    @property
    def _cache_bytes(self) -> int:
        """K and V that the drives hold in this machine's memory once they were read, where they attend to them."""
        if self._opener.planner.in_memory:
            return 0
        return sum(queue.target.cache_bytes for queue in self._stored.backing.alive)

    def _load(self, request: Request, known: int, entry: Entry) -> bool:
        """Begin to load `known` tokens. False where that does not pay, or memory has no room. Raises TargetError."""
        try:
            if not self._opener.planner.loads(request, known, entry):
                return False
            self._ready[request] = self._opener.open(request, waits=True)
        except TargetError:
            raise
        except KvdriveError as error:
            log.info("a session was not loaded before its turn: %s", error)
            return False
        return True
