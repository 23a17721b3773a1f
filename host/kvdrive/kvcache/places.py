"""Where a stored sequence is: [drive, session number on it, first KV head, last KV head + 1] for each part."""

from __future__ import annotations

from collections.abc import Sequence as Several

from kvdrive.kvcache.drive_sequence import DriveSequence
from kvdrive.kvcache.sequence import Sequence
from kvdrive.kvcache.session import Session
from kvdrive.kvcache.slices import Slice
from kvdrive.targets.queue import DriveQueue

Places = list[list[int]]


def places_of(sequence: Sequence, queues: Several[DriveQueue]) -> Places:
    """Where a sequence is; drives are numbered as their `queues`."""
    numbers = {queue: number for number, queue in enumerate(queues)}
    return [[numbers[one.queue], one.session.number, one.first, one.last] for one in sequence.slices]


def stored_at(places: Places, queues: Several[DriveQueue], append_options: int) -> DriveSequence:
    """The sequence that an earlier process left there. It can be forked, read and trimmed, not appended to."""

    def part(drive: int, number: int, first: int, last: int) -> Slice:
        return Slice(queues[drive], Session.existing(queues[drive].target, number, append_options), first, last)

    return DriveSequence([part(*one) for one in places])
