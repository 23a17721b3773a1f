"""Sessions that are in the index and on the drives, and how they are evicted.

An evicted session is removed from the index first, then from the drives. A process that is killed between the two
leaves an orphan, which `rebuild.collect` removes.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from collections.abc import Sequence as Several
from dataclasses import dataclass

from kvdrive.errors import TargetError
from kvdrive.kvcache.backing import Backing
from kvdrive.kvcache.drive_sequence import DriveSequence
from kvdrive.kvcache.sequence import Sequence
from kvdrive.kvcache.session import Session
from kvdrive.kvcache.slices import Slice
from kvdrive.nvme.errors import CommandError
from kvdrive.sessions import record
from kvdrive.sessions.entry import Entry
from kvdrive.sessions.eviction import make_eviction
from kvdrive.sessions.index import Index
from kvdrive.sessions.options import SessionOptions
from kvdrive.sessions.owner import is_alive
from kvdrive.sessions.record import Record
from kvdrive.sessions.resume import Way

log = logging.getLogger(__name__)


@dataclass
class StoreStats:
    """Counts of this process. `hit_tokens`: tokens that were found. `loads`, `attends`, `recomputes`: how requests
    went on with them; `late_loads`: loads that were given up for computing again; `loaded_bytes`: of K and V.
    """

    lookups: int = 0
    hits: int = 0
    hit_tokens: int = 0
    saves: int = 0
    failed_saves: int = 0
    evictions: int = 0
    stale: int = 0
    lost: int = 0
    loads: int = 0
    attends: int = 0
    recomputes: int = 0
    late_loads: int = 0
    loaded_bytes: int = 0

    def count(self, way: Way | None) -> None:
        """Count a request that goes on with found tokens in this way."""
        self.loads += way == "load"
        self.attends += way == "attend"
        self.recomputes += way == "recompute"


class Shelf:
    """The sessions that `index` names on the drives of `backing`, within the bounds of `options`."""

    def __init__(self, index: Index, backing: Backing, options: SessionOptions) -> None:
        self.index = index
        self.backing = backing
        self.options = options
        self.eviction = make_eviction(options.eviction)
        self.stats = StoreStats()

    def existing(self, entry: Entry) -> DriveSequence:
        """A kept session on the drives. It can be forked, read and trimmed."""
        queues, options = self.backing.queues, Record.of(entry.record).append_options

        def part(drive: int, number: int, first: int, last: int) -> Slice:
            return Slice(queues[drive], Session.existing(queues[drive].target, number, options), first, last)

        return DriveSequence([part(*one) for one in entry.slices])

    def drop(self, numbers: list[int]) -> int:
        """Remove sessions, first from the index, then from the drives. Returns how many there were."""
        with self.index.transaction():
            gone = [entry for number in numbers if (entry := self.index.remove(number))]
        self.remove(gone)
        return len(gone)

    def erase(self, numbers: list[int]) -> None:
        """Remove sessions and erase the bytes that no other session shares. Raises CommandError, TargetError."""
        with self.index.transaction():
            gone = [entry for number in numbers if (entry := self.index.remove(number))]
        for entry in gone:
            self.existing(entry).erase()

    def enforce(self, tenant: str) -> int:
        """Remove what the bounds do not allow, of `tenant` and of all together. Returns how many sessions left."""
        bounds, index = self.options.bounds, self.index
        gone: list[Entry] = []
        with index.transaction():
            if bounds.seconds:
                self.close_dead()
                index.forget_future()
                while old := index.first("used", "used < ?", (index.now - bounds.seconds,)):
                    gone += [old]
                    index.remove(old.id)
            quota = index.quota(tenant)
            quota = bounds.tenant_bytes if quota is None else quota
            gone += self._shrink(lambda: bool(quota) and index.bytes(tenant) > quota, tenant)
            gone += self._shrink(lambda: bool(bounds.bytes) and index.bytes() > bounds.bytes, None)
            gone += self._shrink(lambda: bool(bounds.sessions) and index.count() > bounds.sessions, None)
        self.stats.evictions += len(gone)
        self.remove(gone)
        return len(gone)

    def shrink(self, size: int) -> None:
        """Evict sessions until at most `size` bytes are stored, or none is evictable."""
        with self.index.transaction():
            gone = self._shrink(lambda: self.index.bytes() > size, None)
        self.stats.evictions += len(gone)
        self.remove(gone)

    def make_room(self) -> bool:
        """Remove sessions with an eighth of all bytes, because a drive is full. False if none is evictable."""
        before = self.stats.evictions
        self.shrink(self.index.bytes() // 8 * 7)
        return self.stats.evictions > before

    def close_dead(self) -> None:
        """Let sessions leave whose process has died before it could close them."""
        for name in self.index.owners():
            if not is_alive(name):
                self.index.close_owned(name)

    def _shrink(self, too_much: Callable[[], bool], tenant: str | None) -> list[Entry]:
        gone: list[Entry] = []
        if too_much():
            self.close_dead()
        while too_much():
            victim = self.eviction.victim(self.index, tenant)
            if victim is None:
                break
            self.index.remove(victim.id)
            gone.append(victim)
        return gone

    def remove(self, entries: list[Entry]) -> None:
        """Remove from the drives what the index does not name any more. A session that is another one by now stays."""
        for entry in entries:
            if any(drive >= len(self.backing.queues) for drive, *_ in entry.slices):
                continue  # kept with more drives than there are now
            expected = Record.of(entry.record)
            sequence = self.existing(entry)

            def ours(session: Session, expected: Record = expected) -> bool:
                found = record.read_record(session)
                return found is not None and found.model == expected.model and found.layers == expected.layers

            try:
                if all(sequence.each(ours)):
                    trim_all([sequence])
            except (CommandError, TargetError) as error:
                log.info("a session could not be removed from the drive: %s", error)


def trim_all(sequences: Several[Sequence]) -> None:
    """Remove sequences from the drives, as far as these respond."""
    for sequence in sequences:
        for future in sequence.trim(0):
            if error := future.exception():
                log.info("a session could not be trimmed: %s", error)
