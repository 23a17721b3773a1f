"""The time that memory management takes, apart from the reads that it waits for and from the arithmetic."""

from __future__ import annotations

import time
from types import TracebackType

from kvdrive.weights.reader import Reader


class Managing:
    """Counts the time of `with` blocks that decide what a layer needs, let other weights leave, and prepare a product.

    `ns` is without the time in which these blocks wait for reads of `reader`. Blocks do not contain each other.
    """

    def __init__(self, reader: Reader) -> None:
        self._reader = reader
        self._began = 0
        self.ns = 0

    def __enter__(self) -> None:
        self._began = time.perf_counter_ns() - self._reader.waited_ns

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.ns += time.perf_counter_ns() - self._reader.waited_ns - self._began
