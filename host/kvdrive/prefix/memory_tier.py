"""Idle sessions in memory above the drives (AttentionStore's DRAM tier).

The drives have every session, so one that leaves memory is only dropped. A copy has the drives' bytes: it is made of
the sequence in memory when that ends, or read from the drives for a request that waits or begins. A request whose
session is here loads it from here, layer by layer, as it would from the drives. `residents.Residents` decides what is
here; sessions of all tenants share the memory, and only who finds a session in the index gets its copy.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Iterable
from collections.abc import Sequence as Several
from itertools import islice
from typing import TYPE_CHECKING, Any

from kvdrive import abi
from kvdrive.kvcache.memory import MemoryLayer
from kvdrive.kvcache.sources import HeldRows, List
from kvdrive.nvme.rows import Bytes, format_of
from kvdrive.prefix.entry import Entry
from kvdrive.prefix.eviction.window import Window
from kvdrive.prefix.record import Record
from kvdrive.prefix.residents import Residents
from kvdrive.prefix.stored import StoredSessions
from kvdrive.targets.queue import WorkQueue

if TYPE_CHECKING:
    from kvdrive.kvcache.batch import Batch

log = logging.getLogger(__name__)


class MemoryTier:
    """Copies of sessions of `stored`, of at most `limit` bytes, which leave by the policy called `eviction`.

    All methods but `forget` are called in the thread that made it, the model's. A copy that a load reads, or that
    drives are reading, stays and counts until that has ended.
    """

    def __init__(self, stored: StoredSessions, limit: int, eviction: str) -> None:
        self._stored = stored
        self._residents = Residents(limit, eviction, lambda: stored.index.now)
        self._window = Window()
        self._held: dict[int, HeldRows] = {}
        self._gone: set[int] = set()  # sessions that the index does not name any more, while their copies are used
        self._wanted: list[int | None] = []
        self._queue: WorkQueue[None] = WorkQueue(None, "kvdrive-memory")
        self._keeps = True
        self._thread = threading.get_ident()
        stored.index.on_removal = self.forget

    # ---- what is here ----

    def __contains__(self, session: int) -> bool:
        return session in self._held

    def __len__(self) -> int:
        return len(self._held)

    @property
    def bytes(self) -> int:
        """Of all copies, also of those that are being read."""
        return self._residents.bytes

    def whole(self, entry: Entry) -> bool:
        """True if all of a session is here."""
        held = self._held.get(entry.id)
        return held is not None and held.tokens == entry.tokens and held.is_whole

    # ---- copies come and go ----

    def keep(self, entry: Entry, batch: Batch) -> None:
        """A sequence in memory has ended, and the drives have it as `entry`. Raises TargetError."""
        self._window.stored(entry.bytes)
        if not self._keeps or batch.placement.drives_attend or not self._admit(entry):
            return
        try:
            self._held[entry.id] = self._copied(entry, batch) or self._reading(entry)
        except BaseException:
            self._residents.forget(entry.id)
            raise

    def open(self, entry: Entry) -> HeldRows | None:
        """The copy from which a request loads its session: the one that is here, or one that the drives begin to fill.
        None where memory has no room for it.
        """
        if self.whole(entry):
            self._residents.use(entry.id)
        elif entry.id not in self._held and self._keeps and self._admit(entry):
            self._held[entry.id] = self._reading(entry)
        held = self._held.get(entry.id)
        return held if held is not None and held.failed is None and held.tokens == entry.tokens else None

    def look_ahead(self, waiting: Several[Entry | None]) -> None:
        """The sessions that waiting requests will use, None for those without one; the next request first."""
        first = islice(waiting, self._window.of(self._residents.limit))
        self._wanted = [None if entry is None else entry.id for entry in first]

    def bring(self, waiting: Several[Entry | None]) -> None:
        """`look_ahead`, and begin to read what is not here: as much as fits together. Raises TargetError."""
        self.look_ahead(waiting)
        wanted = {entry.id: entry for entry in waiting[: len(self._wanted)] if entry is not None}
        missing = self._residents.missing((session, entry.bytes) for session, entry in wanted.items())
        for session, _ in missing:
            if self._keeps and self._admit(wanted[session]):
                self._held[session] = self._reading(wanted[session])
                self._stored.stats.memory_fetches += 1

    def forget(self, session: int) -> None:
        """The index does not name a session any more. Another thread's call has its effect at the next change here."""
        self._gone.add(session)
        if threading.get_ident() == self._thread:
            self._sweep()

    def wait(self) -> None:
        """Return when the drives have ended their reads. Raises CommandError, TargetError."""
        for held in list(self._held.values()):
            held.wait()

    def clear(self) -> None:
        """Forget all that no load reads."""
        for session in list(self._held):
            self.forget(session)

    def stop(self) -> None:
        """Take no more copies: the store is about to be closed."""
        self._keeps = False

    def close(self) -> None:
        """Forget all, and end the thread."""
        self.stop()
        self._stored.index.on_removal = lambda session: None
        self._held.clear()
        self._queue.close()
        self._residents.close()

    # ---- parts ----

    def _admit(self, entry: Entry) -> bool:
        """Make room for a session. False where there is none. The copies that leave are dropped first."""
        self._gone |= {one for one in self._held if self._stored.index.get(one) is None}  # other processes remove, too
        self._sweep()
        if entry.id in self._held:
            return False
        for session, held in self._held.items():
            self._residents.pin(session, pinned=held.is_used)
        gone = self._residents.admit(entry.id, entry.bytes, self._first_wanted)
        for session in gone:
            if self._held.pop(session, None) is not None:
                self._stored.stats.memory_evictions += 1
        return entry.id not in gone

    def _first_wanted(self) -> Iterable[int]:
        return (session for session in self._wanted if session is not None)

    def _sweep(self) -> None:
        """Forget what is not named any more and not used, and what could not be read."""
        for session in list(self._gone):
            if session not in self._held:
                self._gone.discard(session)
        for session, held in list(self._held.items()):
            if not held.is_used and (session in self._gone or held.failed is not None):
                del self._held[session]
                self._residents.forget(session)
                self._gone.discard(session)

    def _copied(self, entry: Entry, batch: Batch) -> HeldRows | None:
        """A copy of a sequence in memory; None where that does not hold the drives' numbers."""
        rows: dict[List, Bytes] = {}
        for view in batch.rows:
            found = view.stored_rows(entry.tokens) if isinstance(view, MemoryLayer) else None
            if found is None:
                return None
            rows.update(zip(((view.stored.index, kind) for kind in abi.KvKind), found, strict=True))
        return HeldRows(rows, format_of(Record.of(entry.record).append_options), self._queue)

    def _reading(self, entry: Entry) -> HeldRows:
        """A copy, for which there is room, that the drives begin to fill."""
        record, slices = Record.of(entry.record), self._stored.open(entry).slices
        return HeldRows.of_drives(slices, record.lists(), entry.tokens, format_of(record.append_options), self._queue)


def figures(tier: MemoryTier | None) -> dict[str, Any]:
    """Sizes, for the metrics."""
    return {"memory": len(tier) if tier else 0, "memory_bytes": tier.bytes if tier else 0}
