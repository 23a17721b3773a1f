"""Transfers of K and V to the drives. They run in the background, are bounded, and are measured."""

from __future__ import annotations

import threading
import time
from collections import deque
from concurrent.futures import Future, wait
from dataclasses import dataclass

from kvdrive.kvcache.slices import Append, gather

LAYERS_AT_ONCE = 2
FROM_GPU = 1 << 30  # bytes in flight from a GPU: it makes K and V faster than a drive takes them


@dataclass(frozen=True)
class TransferStats:
    """Transfers of one cache: bytes of K and V sent, the most that were on the host at once, wall times in seconds.

    `writes`: how often a layer sent tokens. `sending`: time that drives spent on appends, summed over the drives.
    `waiting`: time that the model waited for them.
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
    """Appends that drives have not finished. The error of a failed append is raised by the next method called.

    `most_bytes`: how much may be in flight; 0: the K and V of LAYERS_AT_ONCE layers, or FROM_GPU.
    """

    def __init__(self, most_bytes: int = 0) -> None:
        self._most_bytes = most_bytes
        self._pending: deque[tuple[int, list[Append]]] = deque()
        self._raised: list[Append] = []
        self._lock = threading.Lock()
        self._bytes = self._peak = self._sent = self._writes = 0
        self._sending = self._waiting = 0.0

    def make_room(self, from_gpu: bool = False) -> None:
        """Wait until memory for the K and V of one more layer is free. Raises the error of a drive that failed."""
        most = self._most_bytes or (FROM_GPU if from_gpu else 0)
        while self._pending and (self._is_full(most) or all(one.future.done() for one in self._pending[0][1])):
            self._finish_oldest()

    def outstanding(self) -> list[Future[None]]:
        """The appends in flight."""
        return [one.future for _, appends in self._pending for one in appends]

    def add(self, size: int, appends: list[Append]) -> None:
        """Note that `size` bytes are being sent."""
        self._bytes += size
        self._sent += size
        self._writes += 1
        self._peak = max(self._peak, self._bytes)
        self._pending.append((size, appends))

    def worked(self, seconds: float) -> None:
        """Add the time that a drive's thread has spent on an append."""
        with self._lock:
            self._sending += seconds

    def finish(self) -> None:
        """Wait for all transfers. Raises the error of a drive that failed."""
        while self._pending:
            self._finish_oldest()

    def abandon(self, tokens: int = 0) -> None:
        """Wait for all transfers and ignore their errors. What brings some of the first `tokens` can be sent again."""
        self._raised = self.failed()
        self.forget_after(tokens)
        self._pending.clear()
        self._bytes = 0

    def forget_after(self, tokens: int) -> None:
        """Do not send what was refused behind the first `tokens` tokens again."""
        self._raised = [one for one in self._raised if one.first_token < tokens]

    @property
    def refused(self) -> bool:
        """True if a drive has not taken tokens whose error was raised."""
        return any(one.future.exception() for one in self._raised)

    def failed(self) -> list[Append]:
        """Wait for all transfers. Returns those that failed since `abandon`, whose errors were raised or will be."""
        appends = [*self._raised, *(one for _, several in self._pending for one in several)]
        wait([one.future for one in appends])
        return [one for one in appends if one.future.exception()]

    def send_again(self) -> BaseException | None:
        """Send what the drives refused since `abandon`, and wait. Returns the first error; None: they have it now."""
        failed = self.failed()
        for one in failed:
            one.again()
        wait([one.future for one in failed])
        return next((error for one in failed if (error := one.future.exception())), None)

    def stats(self) -> TransferStats:
        """The statistics so far."""
        return TransferStats(self._writes, self._sent, self._peak, self._sending, self._waiting)

    def _is_full(self, most_bytes: int) -> bool:
        if most_bytes:
            return self._bytes >= most_bytes
        return len(self._pending) >= LAYERS_AT_ONCE

    def _finish_oldest(self) -> None:
        size, appends = self._pending.popleft()
        began = time.perf_counter()
        try:
            gather([one.future for one in appends])
        except BaseException:
            self._raised += appends
            raise
        finally:
            self._bytes -= size
            self._waiting += time.perf_counter() - began
