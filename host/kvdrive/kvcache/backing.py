"""The state that all caches of one attached model share: drives with their threads, spill interval, fingerprint."""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Sequence as Several

from kvdrive.errors import InputError, TargetError
from kvdrive.kvcache.drive_sequence import DriveSequence
from kvdrive.kvcache.sequence import Sequence
from kvdrive.kvcache.shipped_scales import NO_SCALES, Scales
from kvdrive.kvcache.slices import gather
from kvdrive.kvcache.xcache.inputs import XCache
from kvdrive.kvcache.xcache.sequence import InputSequence
from kvdrive.nvme.commands import flush
from kvdrive.nvme.wire import RowFormat
from kvdrive.targets.base import Target
from kvdrive.targets.group import split
from kvdrive.targets.queue import DriveQueue

MAX_SPILL = 64
log = logging.getLogger(__name__)


class Backing:
    """`label` (32 bytes) marks every session that is opened here; `spill` tokens of a layer are written back at once.

    `xcache`: stores a share of the rows as layer inputs; None: all as K and V. `stored_as`: the format of K and V.
    `scales`: those of e4m3 that the model's checkpoint ships, by layer.

    Raises InputError for a spill interval outside 1 to MAX_SPILL.
    """

    def __init__(
        self,
        drives: Several[Target],
        spill: int,
        label: bytes,
        xcache: XCache | None = None,
        stored_as: RowFormat = RowFormat.BINARY16,
        scales: Scales = NO_SCALES,
    ) -> None:
        if not 1 <= spill <= MAX_SPILL:
            raise InputError(f"the spill interval {spill} is outside 1 to {MAX_SPILL} tokens")
        self.spill = spill
        self.label = label
        self.xcache = xcache
        self.stored_as = stored_as
        self.scales = scales
        self.queues = [DriveQueue(drive) for drive in drives]
        self._alive = list(self.queues)
        self._abandoned: deque[list[Sequence]] = deque()

    @property
    def alive(self) -> list[DriveQueue]:
        """Drives that have not failed."""
        return self._alive

    def exclude_failed(self) -> None:
        """Stop using drives that have failed. Raises TargetError when no drive is left."""
        self._alive = [queue for queue in self._alive if not queue.failed]
        if not self._alive:
            raise TargetError("no drive is left: attach the model to other drives")

    def open(self, rows: int, heads: int, append_options: int) -> list[Sequence]:
        """Sequences for the rows of a batch with `heads` KV heads. Raises CommandError, TargetError."""
        self._trim_abandoned()
        opened: list[Sequence] = []
        try:
            as_inputs = 0
            if self.xcache is not None:
                as_inputs = self.xcache.sequences_of(rows)
                for parts in split(as_inputs, self.xcache.rows.slices, len(self._alive)):
                    found = DriveSequence.open(self._alive, parts, append_options, self.label)
                    opened.append(InputSequence(found, self.xcache))
            for parts in split(rows - as_inputs, heads, len(self._alive)):
                opened.append(DriveSequence.open(self._alive, parts, append_options, self.label))
            if self.xcache is not None:
                self.xcache.opened(rows, as_inputs)
        except BaseException:
            drop(opened)
            raise
        return opened

    def flush(self) -> None:
        """Make what the drives have received durable. Raises CommandError, TargetError."""

        def work(target: Target) -> None:
            target.execute(flush())

        gather([queue.start(work) for queue in self._alive])

    def abandon(self, sequences: list[Sequence]) -> None:
        """Trim these sequences at the next `open`: no cache uses them now. The garbage collector may call this."""
        self._abandoned.append(sequences)

    def close(self) -> None:
        """Trim abandoned sequences and end the threads."""
        self._trim_abandoned()
        if self.xcache is not None:
            self.xcache.close()
        for queue in self.queues:
            queue.close()

    def _trim_abandoned(self) -> None:
        while self._abandoned:
            drop(self._abandoned.popleft())


def drop(sequences: list[Sequence]) -> None:
    """Trim sequences on drives that may have failed. Sequences that cannot be trimmed are logged."""
    futures = [future for sequence in sequences for future in sequence.close()]
    for future in futures:
        if error := future.exception():
            log.info("a sequence could not be trimmed: %s", error)
    sequences.clear()
