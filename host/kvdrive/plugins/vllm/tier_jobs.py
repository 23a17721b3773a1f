"""Jobs of a secondary tier: threads that copy blocks between the first tier's memory and the store."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial

from kvdrive.plugins.vllm.options import Options
from kvdrive.prefix.blocks.buffers import Buffers, Bytes
from kvdrive.prefix.blocks.seal import HEADER_BYTES
from kvdrive.prefix.blocks.store import READ_BYTES, BlockStore

log = logging.getLogger(__name__)


@dataclass
class TierJob:
    """A job. `whole`: for each of its blocks, true if it is where it should be now. `seconds` from its submission."""

    number: int
    whole: list[bool]
    parts: int  # that have not ended
    began: float
    seconds: float = 0.0


class TierJobs:
    """Stores and loads of blocks. `rows` [rows, bytes]: memory of the first tier, which pins a job's rows.

    A block is checked in a buffer of our own before it is copied to its row.
    """

    def __init__(self, store: BlockStore, rows: Bytes, options: Options) -> None:
        self._store = store
        self._rows = rows
        most = min(READ_BYTES, options.buffer_bytes // options.threads) // store.slot_bytes
        self._together = max(most, 1)  # blocks of one read
        self._reading = Buffers(options.threads * self._together, store.slot_bytes)
        self._writing = Buffers(options.write_buffers, store.slot_bytes)
        self._readers = ThreadPoolExecutor(options.threads, "kvdrive-read")
        self._writers = ThreadPoolExecutor(options.write_buffers, "kvdrive-write")  # a load never waits behind stores
        self._changed = threading.Condition()
        self._running: dict[int, TierJob] = {}
        self._done: list[TierJob] = []

    def store(self, number: int, keys: Sequence[bytes], rows: Sequence[int]) -> None:
        """Store each row under its key. Blocks that are there already are not written again."""
        job = self._begin(number, len(keys), 1)
        self._writers.submit(self._part, job, 0, partial(self._write, keys, rows))

    def load(self, number: int, keys: Sequence[bytes], rows: Sequence[int]) -> None:
        """Read each block into its row. Rows of blocks that are missing or damaged stay as they are."""
        places = range(0, max(len(keys), 1), self._together)
        job = self._begin(number, len(keys), len(places))
        for first in places:
            part = slice(first, first + self._together)
            self._readers.submit(self._part, job, first, partial(self._read, keys[part], rows[part]))

    def finished(self) -> list[TierJob]:
        """Jobs that ended since the last call."""
        with self._changed:
            done, self._done = self._done, []
        return done

    def drain(self) -> None:
        """Wait until all jobs have ended."""
        with self._changed:
            self._changed.wait_for(lambda: not self._running)

    def close(self) -> None:
        """End the threads, after the jobs that were submitted, and release the first tier's memory."""
        self._readers.shutdown()
        self._writers.shutdown()
        self._rows = self._rows[:0].copy()

    # ---- in threads ----

    def _begin(self, number: int, blocks: int, parts: int) -> TierJob:
        job = TierJob(number, [False] * blocks, parts, time.perf_counter())
        with self._changed:
            self._running[number] = job
        return job

    def _part(self, job: TierJob, first: int, work: Callable[[], list[bool]]) -> None:
        """Do a part of a job, which ends whatever happens: its blocks from `first` on."""
        whole: list[bool] = []
        try:
            whole = work()
        except Exception:
            log.exception("a transfer of blocks failed")
        finally:
            with self._changed:
                job.whole[first : first + len(whole)] = whole
                job.parts -= 1
                if not job.parts:
                    job.seconds = time.perf_counter() - job.began
                    del self._running[job.number]
                    self._done.append(job)
                    self._changed.notify_all()

    def _write(self, keys: Sequence[bytes], rows: Sequence[int]) -> list[bool]:
        row = dict(zip(keys, rows, strict=True))
        reserved = self._store.reserve(keys)

        def fill(place: int, block: Bytes) -> None:
            block[: self._rows.shape[1]] = self._rows[row[reserved[place]]]

        there = self._store.write_all(reserved, self._writing, fill)
        return [key in there or self._store.holds(key) for key in keys]

    def _read(self, keys: Sequence[bytes], rows: Sequence[int]) -> list[bool]:
        # There are buffers for the longest part of each thread, so this never waits for another part.
        buffers = [self._reading.wait() for _ in keys]
        try:
            whole = self._store.read(keys, [self._reading[buffer] for buffer in buffers])
            for buffer, row, good in zip(buffers, rows, whole, strict=True):
                if good:
                    self._rows[row] = self._reading[buffer][HEADER_BYTES : HEADER_BYTES + self._rows.shape[1]]
        finally:
            for buffer in buffers:
                self._reading.give(buffer)
        return whole
