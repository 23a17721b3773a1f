"""Stored sessions: what the index names, on the drives.

A session is removed from the index first, then from the drives. A process that is killed between the two leaves an
orphan, which `rebuild.collect` removes.
"""

from __future__ import annotations

import logging
from dataclasses import dataclass

from kvdrive.errors import TargetError
from kvdrive.kvcache.backing import Backing, drop
from kvdrive.kvcache.drive_sequence import DriveSequence, stored_at
from kvdrive.kvcache.session import Session
from kvdrive.nvme.errors import CommandError
from kvdrive.prefix import states
from kvdrive.prefix.entry import Entry, state_of
from kvdrive.prefix.index import Index
from kvdrive.prefix.metadata import read_record
from kvdrive.prefix.record import Record, State
from kvdrive.prefix.resume import Strategy
from kvdrive.targets.queue import DriveQueue

log = logging.getLogger(__name__)


@dataclass
class StoreStats:
    """Counts of this process. `hit_tokens`: tokens that were found. `loads`, `attends`, `recomputes`: how requests
    went on with them; `late_loads`: loads that were given up for computing again; `loaded_bytes`: of K and V.
    `memory_hits`: loads from a copy in memory, the others of `loads` are from the drives; `memory_loaded_bytes`: of
    `loaded_bytes`; `memory_fetches`: sessions that were brought there before their turn, `memory_evictions`: copies
    that left for others.
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
    memory_hits: int = 0
    memory_loaded_bytes: int = 0
    memory_fetches: int = 0
    memory_evictions: int = 0

    def count(self, strategy: Strategy | None) -> None:
        """Count a request that resumes found tokens by this strategy."""
        self.loads += strategy == "load"
        self.attends += strategy == "attend"
        self.recomputes += strategy == "recompute"


class StoredSessions:
    """The sessions that `index` names on the drives of `backing`."""

    def __init__(self, index: Index, backing: Backing) -> None:
        self.index = index
        self.backing = backing
        self.stats = StoreStats()

    def open(self, entry: Entry) -> DriveSequence:
        """A stored session. It can be forked, read and trimmed."""
        return stored_at(entry.slices, self.backing.queues, Record.of(entry.record).append_options)

    def read_ahead(self, entry: Entry, tokens: int) -> None:
        """Begin to read a session's first `tokens` tokens, so that they are in the page cache. Layer by layer, so that
        the drives attend to other sequences in between.
        """
        sequence = self.open(entry)
        for layer, kind, _, numbers in Record.of(entry.record).lists():
            sequence.start_read(layer, kind, tokens, numbers)

    def drop(self, numbers: list[int]) -> int:
        """Remove sessions, first from the index, then from the drives. Returns how many there were."""
        gone = self._forget(numbers)
        self.remove(gone)
        return len(gone)

    def erase(self, numbers: list[int]) -> None:
        """Remove sessions and erase the bytes that no other session shares. Raises CommandError, TargetError."""
        for entry in self._forget(numbers):
            self.open(entry).erase()
            if (place := self._state_of(entry)) is not None:
                states.remove(*place, entry.model, erase=True)

    def state(self, entry: Entry) -> bytes:
        """The state of a session's layers in memory; empty where its model has none.

        Raises StaleError, CommandError, TargetError."""
        place = self._state_of(entry)
        return b"" if place is None else states.read(*place)

    def remove_state(self, entry: Entry) -> None:
        """Remove the state of a session that the index does not name any more, while its sequence still runs."""
        if (place := self._state_of(entry)) is not None:
            self.remove_state_at(*place, entry.model)

    def remove_state_at(self, queue: DriveQueue, state: State, model: str) -> None:
        """Remove a state of `model` from a drive."""
        try:
            states.remove(queue, state, model)
        except (CommandError, TargetError) as error:
            log.info("a state could not be removed from the drive: %s", error)

    def _state_of(self, entry: Entry) -> tuple[DriveQueue, State] | None:
        state = state_of(entry.record)
        return None if state is None else (self.backing.queues[entry.slices[0][0]], state)

    def _forget(self, numbers: list[int]) -> list[Entry]:
        with self.index.transaction():
            return [entry for number in numbers if (entry := self.index.remove(number))]

    def remove(self, entries: list[Entry]) -> None:
        """Remove from the drives what the index does not name any more. A session that is another one by now stays."""
        for entry in entries:
            if any(drive >= len(self.backing.queues) for drive, *_ in entry.slices):
                continue  # stored on more drives than there are now
            expected = Record.of(entry.record)
            sequence = self.open(entry)

            def ours(session: Session, expected: Record = expected) -> bool:
                found = read_record(session)
                return found is not None and found.model == expected.model and found.layers == expected.layers

            try:
                if all(sequence.each(ours)):
                    drop([sequence])
            except (CommandError, TargetError) as error:
                log.info("a session could not be removed from the drive: %s", error)
            self.remove_state(entry)
