"""Work for one drive. A thread does it in order while the caller continues."""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable
from concurrent.futures import Future
from operator import methodcaller
from typing import Any, Generic, TypeVar

from kvdrive._native import lend_threads
from kvdrive.errors import TargetError
from kvdrive.targets.base import Target
from kvdrive.targets.process import Owned

Result = TypeVar("Result")
Subject = TypeVar("Subject")


class WorkQueue(Owned, Generic[Subject]):
    """A thread that works with `target`. `failed`: the connection to a drive was lost."""

    def __init__(self, target: Subject, name: str) -> None:
        super().__init__()
        self.target = target
        self.failed = False
        self._work: queue.SimpleQueue[tuple[Future[Any], Callable[[Subject], Any]] | None] = queue.SimpleQueue()
        self._closed = False
        self._turn = threading.Lock()  # held while work is done
        self._count = threading.Lock()
        self._left = 0  # works that were started and have not begun; changes with `_count`
        self._thread = threading.Thread(target=self._serve, name=name, daemon=True)
        self._thread.start()

    def start(self, work: Callable[[Subject], Result]) -> Future[Result]:
        """Call `work(target)` after all work that was started before. The future has its result or error.

        Raises UnsupportedError in a forked child.
        """
        self.require_own()
        future: Future[Result] = Future()
        if self._closed:
            future.set_exception(TargetError("the model is detached from the drive: attach it again"))
        else:
            with self._count:
                self._left += 1
            self._work.put((future, work))
        return future

    def start_here(self, work: Callable[[Subject], Result]) -> Future[Result]:
        """Like `start`, for a caller that waits at once. If nothing else is left, the calling thread does the work:
        to wake another thread, and be woken by it, takes longer than a short command. The threads with which torch
        computes for the caller then compute for the drive.
        """
        if not self._closed and not self.is_foreign and self._turn.acquire(blocking=False):
            resolve = None
            try:
                if self._left == 0:
                    lend_threads(True)
                    resolve = self._do(work)
            finally:
                lend_threads(False)
                self._turn.release()
            if resolve is not None:
                future: Future[Result] = Future()
                resolve(future)
                return future
        return self.start(work)

    def run(self, work: Callable[[Subject], Result]) -> Result:
        """`start` and wait. Raises the errors of `work`."""
        return self.start(work).result()

    def close(self) -> None:
        """Wait for all started work and end the thread."""
        if not self._closed and not self.is_foreign:
            self._closed = True
            self._work.put(None)
            self._thread.join()
            with self._turn:  # the work of another thread's `start_here`
                pass

    def _serve(self) -> None:
        while (item := self._work.get()) is not None:
            future, work = item
            with self._turn:
                with self._count:
                    self._left -= 1
                resolve = self._do(work)
            resolve(future)
            del item, future, work, resolve

    def _do(self, work: Callable[[Subject], Any]) -> Callable[[Future[Any]], None]:
        """Do the work. Returns a callback that resolves its future. Deferred, so that a waiter sees an idle queue."""
        try:
            result = work(self.target)
        except BaseException as error:  # the future raises it in the caller
            self.failed |= isinstance(error, TargetError)
            return methodcaller("set_exception", error)
        return methodcaller("set_result", result)


class DriveQueue(WorkQueue[Target]):
    """The thread that sends commands to `target`."""

    def __init__(self, target: Target) -> None:
        super().__init__(target, "kvdrive-drive")
