"""One sequence of a batch, its KV heads spread over drives."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Iterator
from collections.abc import Sequence as Several
from concurrent.futures import Future, wait
from dataclasses import dataclass
from functools import partial
from typing import Any, TypeVar

from kvdrive import abi
from kvdrive.kvcache.session import Query, Session, attend
from kvdrive.nvme.commands import AttentionOutput, Halves
from kvdrive.targets.base import Target
from kvdrive.targets.group import Part
from kvdrive.targets.queue import DriveQueue, WorkQueue

Result = TypeVar("Result")
Answer = Callable[[Any, Several[Query]], list[AttentionOutput]]


@dataclass(frozen=True)
class Slice:
    """KV heads `first` to `last` - 1 in a session behind `queue`."""

    queue: DriveQueue
    session: Session
    first: int
    last: int


class Append:
    """Rows [heads, tokens, d] of a layer on their way to one drive, kind by kind, behind `first_token` tokens.

    `future` ends when the drive has them all. `worked` gets the seconds that this took, in the drive's thread.
    """

    def __init__(
        self,
        one: Slice,
        layer: int,
        first_token: int,
        rows: dict[abi.KvKind, Halves],
        worked: Callable[[float], None],
    ) -> None:
        self.first_token = first_token
        self._one = one
        self._layer = layer
        self._left = deque(
            (kind, first_token + start, part)
            for kind, all_rows in rows.items()
            for start, part in one.session.parts(layer, all_rows)
        )
        self._worked = worked
        self.future = one.queue.start(self._send)

    def again(self) -> None:
        """Send what the drive has not taken."""
        self.future = self._one.queue.start(self._send)

    def _send(self, target: Target) -> None:
        began = time.perf_counter()
        while self._left:
            self._one.session.append(self._layer, *self._left[0])
            self._left.popleft()
        self._worked(time.perf_counter() - began)


@dataclass(frozen=True)
class Sent:
    """What drives work on, and its bytes."""

    size: int
    appends: list[Append]

    def wait(self) -> None:
        """Return when the drives have it. Raises CommandError, TargetError."""
        gather([one.future for one in self.appends])


@dataclass(frozen=True)
class Endpoint:
    """Where queries of KV heads `first` to `last` - 1 of a row are answered: `answer(queue.target, queries)`, in the
    thread of `queue`. A query names `session`.
    """

    queue: WorkQueue[Any]
    session: Any
    first: int
    last: int
    answer: Answer


class Sequence:
    """The slices of one row of a batch. Each drive has a thread, which does the work for it in order."""

    def __init__(self, slices: list[Slice]) -> None:
        self.slices = slices
        self._endpoints = [Endpoint(one.queue, one.session, one.first, one.last, attend) for one in slices]

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

    def append(self, layer: int, first_token: int, k: Halves, v: Halves, worked: Callable[[float], None]) -> Sent:
        """K and V [heads, tokens, d] of a layer, after its first `first_token` tokens.

        `worked` is called for each slice with the seconds that it took, in the thread of its drive.
        """
        kinds = {abi.KvKind.KEYS: k, abi.KvKind.VALUES: v}
        appends = [
            Append(one, layer, first_token, {kind: rows[one.first : one.last] for kind, rows in kinds.items()}, worked)
            for one in self.slices
        ]
        return Sent(k.nbytes + v.nbytes, appends)

    def endpoints(self) -> list[Endpoint]:
        """Where queries of this row are answered."""
        return self._endpoints

    def keep(self, tokens: int) -> None:
        """The cache has removed all but the first `tokens` tokens, pending ones included. Sends no command."""

    def trim(self, from_token: int) -> list[Future[None]]:
        """Remove the tokens from `from_token` on in every layer; 0 removes the sequence."""

        def trim(session: Session, target: Target) -> None:
            session.trim(from_token)

        return [one.queue.start(partial(trim, one.session)) for one in self.slices]

    def remove(self, removed: range, before: int, layers: int) -> None:
        """See Session.remove. Raises CommandError, TargetError."""
        self.each(lambda session: session.remove(removed, before, layers))

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
    for future in futures:  # one after the other: `wait` sets up a watch over all of them, which costs more than a step
        future.exception()
    return [future.result() for future in futures]
