"""Work for one drive. A thread does it in order while the caller continues."""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable
from concurrent.futures import Future
from typing import Any, Generic, TypeVar

from kvdrive.errors import TargetError
from kvdrive.targets.base import Target

Result = TypeVar("Result")
Subject = TypeVar("Subject")


class WorkQueue(Generic[Subject]):
    """A thread that works with `target`. `failed`: the connection to a drive was lost."""

    def __init__(self, target: Subject, name: str) -> None:
        self.target = target
        self.failed = False
        self._work: queue.SimpleQueue[tuple[Future[Any], Callable[[Subject], Any]] | None] = queue.SimpleQueue()
        self._closed = False
        self._thread = threading.Thread(target=self._serve, name=name, daemon=True)
        self._thread.start()

    def start(self, work: Callable[[Subject], Result]) -> Future[Result]:
        """Call `work(target)` after all work that was started before. The future has its result or error."""
        future: Future[Result] = Future()
        if self._closed:
            future.set_exception(TargetError("the model is detached from the drive: attach it again"))
        else:
            self._work.put((future, work))
        return future

    def run(self, work: Callable[[Subject], Result]) -> Result:
        """`start` and wait. Raises the errors of `work`."""
        return self.start(work).result()

    def close(self) -> None:
        """Wait for all started work and end the thread."""
        if not self._closed:
            self._closed = True
            self._work.put(None)
            self._thread.join()

    def _serve(self) -> None:
        while (item := self._work.get()) is not None:
            future, work = item
            try:
                result = work(self.target)
            except BaseException as error:  # the future raises it in the caller
                self.failed |= isinstance(error, TargetError)
                future.set_exception(error)
            else:
                future.set_result(result)
            del item, future, work


class DriveQueue(WorkQueue[Target]):
    """The thread that sends commands to `target`."""

    def __init__(self, target: Target) -> None:
        super().__init__(target, "kvdrive-drive")
