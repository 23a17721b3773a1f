"""The parts of a sequence on single drives, and rows in transfer to them."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable
from concurrent.futures import Future
from dataclasses import dataclass
from typing import TypeVar

from kvdrive import abi
from kvdrive.kvcache.session import Session
from kvdrive.nvme.commands import Halves
from kvdrive.targets.base import Target
from kvdrive.targets.queue import DriveQueue

Result = TypeVar("Result")


@dataclass(frozen=True)
class Slice:
    """KV heads `first` to `last` - 1 in a session behind `queue`."""

    queue: DriveQueue
    session: Session
    first: int
    last: int


class Append:
    """Rows [heads, tokens, d] of a layer in transfer to one drive, kind by kind, behind `first_token` tokens.

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


def gather(futures: list[Future[Result]]) -> list[Result]:
    """Results of all futures once all are done. Raises the first error."""
    for future in futures:  # one after the other: `wait` sets up a watch over all of them, which costs more than a step
        future.exception()
    return [future.result() for future in futures]
