"""Threads that take turns at computing. The order is fixed, so that drives get the same commands in every run."""

from __future__ import annotations

import threading
from collections import deque


class Turns:
    """Turns of `count` threads, which are numbered from 0 on. One computes, the others wait for their turn."""

    def __init__(self, count: int) -> None:
        self._order = deque(range(count))
        self._changed = threading.Condition()

    def wait(self, number: int) -> None:
        """Return when it is the turn of thread `number`."""
        with self._changed:
            self._changed.wait_for(lambda: self._order[0] == number)

    def pass_on(self, number: int) -> None:
        """Let the others have their turns, and return at this thread's next one. Precondition: it is its turn."""
        with self._changed:
            assert self._order[0] == number
            self._order.rotate(-1)
            self._changed.notify_all()
        self.wait(number)

    def end(self, number: int) -> None:
        """The thread takes no more turns; if it is its turn, the next thread has it."""
        with self._changed:
            self._order.remove(number)
            self._changed.notify_all()
