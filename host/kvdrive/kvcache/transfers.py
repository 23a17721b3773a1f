"""K and V on their way to the drives: bounded, in the background, measured."""

from __future__ import annotations

import threading
import time
from collections import deque
from concurrent.futures import Future, wait
from dataclasses import dataclass

from kvdrive.kvcache.sequence import gather

LAYERS_AT_ONCE = 2


@dataclass(frozen=True)
class TransferStats:
    """Of one cache: bytes of K and V sent, the most that existed on the host at once, and wall times in seconds.

    `writes`: times that a layer sent some. `sending`: drives at work on appends, summed over them; `waiting`: the model
    stood still for them.
    """

    writes: int
    bytes_sent: int
    peak_bytes: int
    sending: float
    waiting: float

    @property
    def overlap(self) -> float:
        """Share of the sending that the model did not wait for."""
        return max(0.0, 1 - self.waiting / self.sending) if self.sending else 1.0


class Transfers:
    """Appends that drives have not finished. Errors of earlier ones come up in whatever is called next."""

    def __init__(self) -> None:
        self._pending: deque[tuple[int, list[Future[None]]]] = deque()
        self._lock = threading.Lock()
        self._bytes = self._peak = self._sent = self._writes = 0
        self._sending = self._waiting = 0.0

    def make_room(self) -> None:
        """Wait until the next layer may exist beside what is on its way. Raises what a drive raised."""
        while len(self._pending) >= LAYERS_AT_ONCE:
            self._finish_oldest()

    def add(self, size: int, futures: list[Future[None]]) -> None:
        """`size` bytes are under way."""
        self._bytes += size
        self._sent += size
        self._writes += 1
        self._peak = max(self._peak, self._bytes)
        self._pending.append((size, futures))

    def worked(self, seconds: float) -> None:
        """A drive's thread has spent this on an append."""
        with self._lock:
            self._sending += seconds

    def finish(self) -> None:
        """Wait for everything. Raises what a drive raised."""
        while self._pending:
            self._finish_oldest()

    def abandon(self) -> None:
        """Wait for everything, whatever became of it."""
        while self._pending:
            size, futures = self._pending.popleft()
            self._bytes -= size
            wait(futures)

    def stats(self) -> TransferStats:
        """Numbers so far."""
        return TransferStats(self._writes, self._sent, self._peak, self._sending, self._waiting)

    def _finish_oldest(self) -> None:
        size, futures = self._pending.popleft()
        began = time.perf_counter()
        try:
            gather(futures)
        finally:
            self._bytes -= size
            self._waiting += time.perf_counter() - began
