"""One sequence of a batch, its KV heads spread over drives."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future, wait
from dataclasses import dataclass
from functools import partial
from typing import TypeVar

from kvdrive import abi
from kvdrive.kvcache.session import Session
from kvdrive.nvme.commands import Halves
from kvdrive.targets.base import Target
from kvdrive.targets.group import Part
from kvdrive.targets.queue import DriveQueue

Result = TypeVar("Result")


@dataclass(frozen=True)
class Slice:
    """KV heads `first` to `last` - 1 in a session behind `queue`."""

    queue: DriveQueue
    session: Session
    first: int
    last: int


class Sequence:
    """The slices of one row of a batch. Each drive has a thread, which does the work for it in order."""

    def __init__(self, slices: list[Slice]) -> None:
        self.slices = slices

    @classmethod
    def open(cls, queues: list[DriveQueue], parts: list[Part], append_options: int, label: bytes) -> Sequence:
        """New sessions that carry `label`. Raises CommandError, TargetError; then there are none."""
        sessions = gather([queues[p.drive].start(lambda target: Session(target, append_options)) for p in parts])
        sequence = cls([Slice(queues[p.drive], s, p.first, p.last) for p, s in zip(parts, sessions, strict=True)])
        try:
            sequence.each(lambda session: session.put_label(label))
        except BaseException:
            wait(sequence.trim(0))
            raise
        return sequence

    def append(
        self, layer: int, first_token: int, k: Halves, v: Halves, worked: Callable[[float], None]
    ) -> list[Future[None]]:
        """K and V [heads, tokens, d] of a layer, after its first `first_token` tokens.

        `worked` is called for each slice with the seconds that it took, in the thread of its drive.
        """

        def send(one: Slice, target: Target) -> None:
            began = time.perf_counter()
            one.session.append(layer, abi.KvKind.KEYS, first_token, k[one.first : one.last])
            one.session.append(layer, abi.KvKind.VALUES, first_token, v[one.first : one.last])
            worked(time.perf_counter() - began)

        return [one.queue.start(partial(send, one)) for one in self.slices]

    def trim(self, from_token: int) -> list[Future[None]]:
        """Remove the tokens from `from_token` on in every layer; 0 removes the sequence."""

        def trim(session: Session, target: Target) -> None:
            session.trim(from_token)

        return [one.queue.start(partial(trim, one.session)) for one in self.slices]

    def erase(self) -> None:
        """Remove the sequence and erase its bytes from the drives' files. Raises CommandError, TargetError."""
        self.each(Session.erase)

    def fork(self, tokens: int = abi.MAX_TOKENS) -> Sequence:
        """A new, independent sequence that begins with the same `tokens` tokens. Raises CommandError, TargetError."""
        copies = self.each(lambda session: session.fork(tokens))
        pairs = zip(self.slices, copies, strict=True)
        return Sequence([Slice(one.queue, copy, one.first, one.last) for one, copy in pairs])

    def each(self, work: Callable[[Session], Result]) -> list[Result]:
        """Call `work` for each session, in the thread of its drive. Returns the results; raises errors of `work`."""

        def call(session: Session, target: Target) -> Result:
            return work(session)

        return gather([one.queue.start(partial(call, one.session)) for one in self.slices])

    def __iter__(self) -> Iterator[Slice]:
        return iter(self.slices)


def gather(futures: list[Future[Result]]) -> list[Result]:
    """Results of all futures once all are done. Raises the first error."""
    wait(futures)
    return [future.result() for future in futures]
