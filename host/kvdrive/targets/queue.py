"""Work for one drive, done in order by a thread of its own while the caller goes on."""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable
from concurrent.futures import Future
from typing import Any, TypeVar

from kvdrive.errors import TargetError
from kvdrive.targets.base import Target

Result = TypeVar("Result")


class DriveQueue:
    """The thread that talks to `target`. `failed`: the drive could not be reached any more."""

    def __init__(self, target: Target) -> None:
        self.target = target
        self.failed = False
        self._work: queue.SimpleQueue[tuple[Future[Any], Callable[[Target], Any]] | None] = queue.SimpleQueue()
        self._closed = False
        self._thread = threading.Thread(target=self._serve, name="kvdrive-drive", daemon=True)
        self._thread.start()

    def start(self, work: Callable[[Target], Result]) -> Future[Result]:
        """Call `work(target)` after everything that was started before; its result or error comes with the future."""
        future: Future[Result] = Future()
        if self._closed:
            future.set_exception(TargetError("the model is detached from the drive: attach it again"))
        else:
            self._work.put((future, work))
        return future

    def run(self, work: Callable[[Target], Result]) -> Result:
        """`start` and wait. Raises what `work` raises."""
        return self.start(work).result()

    def close(self) -> None:
        """Wait for what was started and end the thread."""
        if not self._closed:
            self._closed = True
            self._work.put(None)
            self._thread.join()

    def _serve(self) -> None:
        while (item := self._work.get()) is not None:
            future, work = item
            try:
                result = work(self.target)
            except BaseException as error:  # it belongs to whoever waits
                self.failed |= isinstance(error, TargetError)
                future.set_exception(error)
            else:
                future.set_result(result)
            del item, future, work
