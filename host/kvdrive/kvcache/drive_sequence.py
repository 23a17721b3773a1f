"""The rows of one sequence as K and V on drives, its KV heads spread over them. The drives attend."""

from __future__ import annotations

from collections.abc import Callable
from collections.abc import Sequence as Several
from concurrent.futures import Future, wait
from functools import partial
from typing import TypeVar

import numpy as np

from kvdrive import abi
from kvdrive.kvcache.sequence import Endpoint, Sequence
from kvdrive.kvcache.session import Session, attend
from kvdrive.kvcache.slices import Append, Sent, Slice, gather
from kvdrive.nvme.commands import Halves
from kvdrive.targets.base import Target
from kvdrive.targets.group import Part
from kvdrive.targets.queue import DriveQueue

Result = TypeVar("Result")
Places = list[list[int]]  # [drive, session number on it, first KV head, last KV head + 1] for each part of a sequence


class DriveSequence(Sequence):
    """See Sequence. Without slices it stands for rows that are in memory alone: what is appended is dropped."""

    def __init__(self, slices: list[Slice]) -> None:
        self.slices = slices
        self._endpoints = [Endpoint(one.queue, one.session, one.first, one.last, attend) for one in slices]

    @classmethod
    def open(cls, queues: list[DriveQueue], parts: list[Part], append_options: int, label: bytes) -> DriveSequence:
        """New sessions that carry `label`. Raises CommandError, TargetError; then there are none."""
        sessions = gather([queues[p.drive].start(lambda target: Session(target, append_options)) for p in parts])
        sequence = cls([Slice(queues[p.drive], s, p.first, p.last) for p, s in zip(parts, sessions, strict=True)])
        try:
            sequence.each(lambda session: session.put_label(label))
        except BaseException:
            wait(sequence.close())
            raise
        return sequence

    def append(self, layer: int, first_token: int, k: Halves, v: Halves, worked: Callable[[float], None]) -> Sent:
        kinds = {abi.KvKind.KEYS: k, abi.KvKind.VALUES: v}
        appends = [
            Append(one, layer, first_token, {kind: rows[one.first : one.last] for kind, rows in kinds.items()}, worked)
            for one in self.slices
        ]
        return Sent(k.nbytes + v.nbytes, appends)

    def endpoints(self) -> list[Endpoint]:
        return self._endpoints

    def read(self, layer: int, tokens: int, head_dim: int) -> tuple[Halves, Halves]:
        kinds = [self.start_read(layer, kind, tokens, head_dim) for kind in abi.KvKind]
        k, v = (np.concatenate(gather(parts)) for parts in kinds)
        return k, v

    def start_read(self, layer: int, kind: abi.KvKind, tokens: int, head_dim: int) -> list[Future[Halves]]:
        """Start reading K or V: from each slice its heads, [heads, tokens, d]."""

        def read(one: Slice, target: Target) -> Halves:
            return one.session.read(layer, kind, 0, (one.last - one.first, tokens, head_dim))

        return [one.queue.start(partial(read, one)) for one in self.slices]

    def truncate(self, tokens: int, *, stored: bool = True) -> list[Future[None]]:
        return self.trim(tokens) if stored else []

    def trim(self, tokens: int) -> list[Future[None]]:
        def trim(session: Session, target: Target) -> None:
            session.trim(tokens)

        return [one.queue.start(partial(trim, one.session)) for one in self.slices]

    def remove(self, removed: range, before: int, layers: int) -> None:
        self.each(lambda session: session.remove(removed, before, layers))

    def fork(self, tokens: int = abi.MAX_TOKENS) -> DriveSequence:
        copies = self.each(lambda session: session.fork(tokens))
        pairs = zip(self.slices, copies, strict=True)
        return DriveSequence([Slice(one.queue, copy, one.first, one.last) for one, copy in pairs])

    def close(self) -> list[Future[None]]:
        return self.trim(0)

    def erase(self) -> None:
        self.each(Session.erase)

    def note(self, *call: object) -> None:
        """See Sequence. Needs no inputs."""

    def prepare(self, layer: int) -> None:
        """See Sequence. Drives prepare nothing."""

    def each(self, work: Callable[[Session], Result]) -> list[Result]:
        """Call `work` for each session, in the thread of its drive. Returns the results; raises errors of `work`."""

        def call(session: Session, target: Target) -> Result:
            return work(session)

        return gather([one.queue.start(partial(call, one.session)) for one in self.slices])


def places_of(sequence: Sequence, queues: Several[DriveQueue]) -> Places:
    """Where a sequence is; drives are numbered as their `queues`."""
    numbers = {queue: number for number, queue in enumerate(queues)}
    return [[numbers[one.queue], one.session.number, one.first, one.last] for one in sequence.slices]


def stored_at(places: Places, queues: Several[DriveQueue], append_options: int) -> DriveSequence:
    """The sequence that an earlier process left there. It can be forked, read and trimmed, not appended to."""

    def part(drive: int, number: int, first: int, last: int) -> Slice:
        return Slice(queues[drive], Session.existing(queues[drive].target, number, append_options), first, last)

    return DriveSequence([part(*one) for one in places])
