"""Stored sessions that waiting requests will use, brought into memory before their turn (AttentionStore's prefetch).

Where sequences run in memory, their K and V are loaded; where the drive attends and keeps in the page cache what it
reads, they are read there. The window covers as many requests as there is room for: C_mem / S_kv. The queue-aware
eviction policy keeps the sessions of all waiting requests.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence as Several
from dataclasses import dataclass
from typing import TYPE_CHECKING

from kvdrive.errors import KvdriveError, TargetError
from kvdrive.sessions.record import Record

if TYPE_CHECKING:
    from kvdrive.kvcache.batch import Batch
    from kvdrive.sessions.store import SessionStore

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Waiting:
    """A request that waits: its prompt, the name of its session or "", the tokens that it will generate, and whose it
    is.
    """

    prompt: tuple[int, ...]
    name: str
    new_tokens: int
    tenant: str = ""


class LookAhead:
    """The caches that are being loaded for waiting requests of `store`."""

    def __init__(self, store: SessionStore) -> None:
        self._store = store
        self._warm: set[int] = set()
        self._ready: dict[Waiting, Batch] = {}

    def see(self, waiting: Several[Waiting]) -> None:
        """The requests that wait now, the next one first. Loads for those that memory has room for.

        Raises TargetError.
        """
        wanted: list[int] = []
        room = self._store.cache_bytes
        for request in list(self._ready):
            if request not in waiting:
                self._store.discard(self._ready.pop(request))
        full = False
        for request in waiting:
            known, entry = self._store.finder_of(request.tenant).longest_prefix(request.prompt[:-1])
            if entry is None:
                continue
            wanted.append(entry.id)
            room -= known * Record.of(entry.record).bytes_per_token
            if room >= 0 and entry.id not in self._warm:
                self._warm.add(entry.id)
                self._store.warm(entry, known)
            if full or request in self._ready:
                continue
            try:
                cache = self._store.load_ahead(request, known, entry)
            except TargetError:
                raise
            except KvdriveError as error:
                log.info("a session was not loaded ahead: %s", error)
                cache = None
            full = cache is None
            if cache is not None:
                self._ready[request] = cache
        self._warm &= set(wanted)
        self._store.shelf.eviction.look_ahead(wanted)

    def take(self, request: Waiting) -> Batch | None:
        """The cache of a request whose turn has come; None if it was not loaded."""
        return self._ready.pop(request, None)

    def close(self) -> None:
        """Forget what was loaded."""
        self.see(())
