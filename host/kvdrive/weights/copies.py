"""The copies of a file of weights, each on a drive of its own: a read goes where it ends first."""

from __future__ import annotations

import errno
import logging
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from kvdrive._native import PieceReader
from kvdrive.weights.bundles import I64, U8, Table

log = logging.getLogger(__name__)
Outcome = tuple[int, int]  # errno or 0, and the first piece with another checksum or -1


@dataclass
class _Read:
    """A read in flight: `ticket` of reader `copy`."""

    copy: int
    ticket: int
    offset: int
    to: U8
    checksums: Table


class Copies:
    """Readers of equal files. What one of them cannot read is read from another one. Not safe to call concurrently.

    The queue of a copy is as long as the bytes in it take at the rate that the copy has had so far.
    """

    def __init__(self, readers: Sequence[PieceReader]) -> None:
        self._readers = list(readers)
        self._queued = np.zeros(len(readers))  # bytes
        self._reads: dict[int, _Read] = {}
        self._last = 0
        self.repaired = 0  # reads that another copy has served after an error

    def start(self, offset: int, to: U8, checksums: Table, ahead: bool = False) -> int:
        """As `PieceReader.start`, from the copy with the shortest queue."""
        copy = int(np.argmin((self._queued + to.nbytes) / self._rates())) if len(self._readers) > 1 else 0
        self._last += 1
        ticket = self._readers[copy].start(offset, to, checksums, ahead)
        self._queued[copy] += to.nbytes
        self._reads[self._last] = _Read(copy, ticket, offset, to, checksums)
        return self._last

    def hurry(self, ticket: int) -> None:
        """As `PieceReader.hurry`."""
        read = self._reads[ticket]
        self._readers[read.copy].hurry(read.ticket)

    def cancel(self, ticket: int) -> bool:
        """As `PieceReader.cancel`."""
        read = self._reads[ticket]
        return self._readers[read.copy].cancel(read.ticket)

    def has_ended(self, ticket: int) -> bool:
        """As `PieceReader.has_ended`."""
        read = self._reads[ticket]
        return self._readers[read.copy].has_ended(read.ticket)

    def wait(self, ticket: int) -> Outcome:
        """As `PieceReader.wait`; an error is that of the last copy that was tried."""
        read = self._reads.pop(ticket)
        outcome = self._readers[read.copy].wait(read.ticket)
        self._queued[read.copy] -= read.to.nbytes
        for copy, reader in enumerate(self._readers):
            if outcome == (0, -1) or outcome[0] == errno.ECANCELED:
                break
            if copy != read.copy:
                outcome = reader.wait(reader.start(read.offset, read.to, read.checksums, False))
                self._count_repair(read.copy, outcome == (0, -1))
        return outcome

    def read_rows(self, offsets: I64, to: U8, places: I64, checksums: NDArray[np.uint32]) -> tuple[int, int, int]:
        """Read bundles at `offsets` [n] into rows `places` of `to`; which one failed first, and its outcome as `wait`.

        All reads have ended then; (-1, 0, -1) if none failed. The copies share them by their rates.
        """
        rates = self._rates()
        ends = np.round(np.cumsum(rates) / rates.sum() * len(offsets)).astype(int)
        parts = [slice(begin, end) for begin, end in zip([0, *ends[:-1].tolist()], ends.tolist(), strict=True)]
        tickets = [
            reader.start_rows(offsets[part], to, places[part], checksums[part])
            for reader, part in zip(self._readers, parts, strict=True)
        ]
        failed = (-1, 0, -1)
        for copy, (reader, part) in enumerate(zip(self._readers, parts, strict=True)):
            found = reader.wait_all(tickets[copy])
            for other in (one for one in self._readers if one is not reader):
                if found[0] >= 0:
                    found = other.wait_all(other.start_rows(offsets[part], to, places[part], checksums[part]))
                    self._count_repair(copy, found[0] < 0)
            if found[0] >= 0 > failed[0]:
                failed = (part.start + found[0], *found[1:])
        return failed

    def counters(self) -> dict[str, int]:
        """Those of all copies together; the time is that of the busiest one."""
        all_of_them = [reader.counters() for reader in self._readers]
        found = {name: sum(one[name] for one in all_of_them) for name in all_of_them[0]}
        found["busy_ns"] = max(one["busy_ns"] for one in all_of_them)
        return found

    @property
    def bytes_by_copy(self) -> list[int]:
        """What each copy has read."""
        return [reader.counters()["bytes"] for reader in self._readers]

    @property
    def around_cache(self) -> bool:
        """True if all reads bypass the page cache."""
        return all(reader.around_cache for reader in self._readers)

    def _rates(self) -> NDArray[np.float64]:
        """Bytes per ns with reads in flight; equal ones until every copy has read."""
        found = [reader.counters() for reader in self._readers]
        rates = np.array([one["bytes"] / max(1, one["busy_ns"]) for one in found])
        return rates if rates.all() else np.ones(len(found))

    def _count_repair(self, copy: int, read: bool) -> None:
        if read:
            if not self.repaired:
                log.warning("copy %d of the weights has errors: another one serves these reads", copy)
            self.repaired += 1
