"""The worker's side: threads that copy blocks between KV tensors and buffers, and write them to the file."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, wait
from dataclasses import dataclass
from functools import partial

from kvdrive.kvcache.copies import Mark
from kvdrive.plugins.vllm.pages import Pages
from kvdrive.plugins.vllm.staging import Staged, Staging
from kvdrive.prefix.blocks.buffers import Buffers, Bytes
from kvdrive.prefix.blocks.seal import HEADER_BYTES
from kvdrive.prefix.blocks.store import BlockStore

log = logging.getLogger(__name__)
_COPIERS = 2


@dataclass(frozen=True)
class Done:
    """A job that ended: its bytes of K and V, and the seconds from its submission."""

    job: int
    bytes: int
    seconds: float


class Transfers:
    """Stores and loads of one engine. `staged`: buffers with blocks that were read; `free`: buffers for writing.

    A block that could not be written is not in the store afterwards; the job counts as done, because vLLM has no
    failed jobs.
    """

    def __init__(self, pages: Pages, store: BlockStore, staging: Staging, staged: Buffers, free: Buffers) -> None:
        self._pages = pages
        self._store = store
        self._staging = staging
        self._staged = staged
        self._free = free
        self._writers = ThreadPoolExecutor(free.count, "kvdrive-write")
        self._copiers = ThreadPoolExecutor(_COPIERS, "kvdrive-copy")  # a load never waits behind stores
        self._lock = threading.Lock()
        self._running: dict[int, Future[None]] = {}
        self._done: list[Done] = []

    def store(self, job: int, blocks: Sequence[int], keys: Sequence[bytes]) -> None:
        """Write the engine's `blocks`, `blocks_per_chunk` for each of `keys`, which are reserved."""
        self._start(self._writers, job, partial(self._write, blocks, keys, self._pages.given()))

    def load(self, job: int, staged: Sequence[Staged], skip: int, blocks: Sequence[int]) -> None:
        """Copy `staged`, without the first `skip` blocks of the first one, to the engine's `blocks`."""
        self._start(self._copiers, job, partial(self._copy, blocks, staged, skip, self._pages.given()))

    def finished(self) -> list[Done]:
        """Jobs that ended since the last call."""
        with self._lock:
            done, self._done = self._done, []
        return done

    def wait(self, jobs: set[int]) -> None:
        """Until these jobs have ended."""
        with self._lock:
            running = [self._running[job] for job in jobs if job in self._running]
        wait(running)

    def close(self) -> None:
        """End the threads, after the jobs that were submitted."""
        self._writers.shutdown()
        self._copiers.shutdown()

    # ---- in threads ----

    def _start(self, pool: ThreadPoolExecutor, job: int, work: Callable[[], int]) -> None:
        began = time.perf_counter()

        def run() -> None:
            size = 0
            try:
                size = work()
            except Exception:
                log.exception("a transfer of blocks failed")
                raise
            finally:
                with self._lock:
                    self._done.append(Done(job, size, time.perf_counter() - began))
                    self._running.pop(job, None)

        with self._lock:
            self._running[job] = pool.submit(run)

    def _write(self, blocks: Sequence[int], keys: Sequence[bytes], after: Mark) -> int:
        each = self._pages.blocks_per_chunk

        def fill(place: int, stored: Bytes) -> None:
            self._pages.gather(blocks[place * each : (place + 1) * each], stored, after)

        return len(self._store.write_all(keys, self._free, fill)) * self._pages.bytes

    def _copy(self, blocks: Sequence[int], staged: Sequence[Staged], skip: int, after: Mark) -> int:
        try:
            for block, part in zip(staged, self._pages.split(skip, blocks), strict=True):
                self._pages.scatter(self._staged[block.buffer][HEADER_BYTES:], *part, after)
        finally:
            self._staging.release(staged)
        return len(blocks) * self._pages.bytes // self._pages.blocks_per_chunk
