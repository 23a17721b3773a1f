"""Blocks in transfer from the file to the engine: read and checked before the scheduler hears of a hit.

vLLM has no way to say that a load failed. So a block counts as found only when it is in memory, whole. The memory is
bounded, and requests share it in the order in which they came: the oldest one gets what it needs, at the cost of
younger ones, and what does not fit in all of the memory is not found.
"""

from __future__ import annotations

import threading
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from enum import Enum, auto

from kvdrive.prefix.blocks.buffers import Buffers
from kvdrive.prefix.blocks.store import READ_BYTES, BlockStore


class Found(Enum):
    """What a look-up says: not there, ready, being written, or ask again later."""

    MISS = auto()
    HIT = auto()
    PENDING = auto()
    RETRY = auto()


class _State(Enum):
    WANTED = auto()
    READING = auto()
    READY = auto()
    LOST = auto()


@dataclass(eq=False)
class Staged:
    """A block in buffer `buffer`, read for `request`; `uses`: loads that copy from it."""

    key: bytes
    buffer: int
    request: str
    state: _State = _State.WANTED
    uses: int = 0
    dropped: bool = False  # cancelled: its buffer is free, or will be when it is read and copied


class Staging:
    """Reads blocks of `store` into `buffers` with `threads` threads. Thread-safe."""

    def __init__(self, store: BlockStore, buffers: Buffers, threads: int) -> None:
        self._store = store
        self._buffers = buffers
        self._threads = threads
        self._pool = ThreadPoolExecutor(threads, "kvdrive-read")
        self._wanted: list[Staged] = []
        self._lock = threading.Lock()
        self._blocks: dict[bytes, Staged] = {}
        self._requests: dict[str, list[Staged]] = {}  # in the order in which they came

    def look(self, key: bytes, request: str) -> Found:
        """Look for the block `key` on behalf of `request`: HIT when it is in memory and checked."""
        with self._lock:
            block = self._blocks.get(key)
            if block is not None and block.state is not _State.LOST:
                return Found.HIT if block.state is _State.READY else Found.RETRY
            if block is not None:
                self._give_up(block)
                return Found.MISS
            if not self._store.holds(key):
                return Found.PENDING if self._store.uses(key) < 0 else Found.MISS
            buffer = self._take(request)
            if buffer is None:
                return Found.RETRY if self._others(request) else Found.MISS
            block = Staged(key, buffer, request)
            self._blocks[key] = block
            self._requests.setdefault(request, []).append(block)
            self._wanted.append(block)
            return Found.RETRY

    def submit(self) -> None:
        """Begin to read what was looked for since the last call: blocks of a request next to each other by one read."""
        with self._lock:
            wanted, self._wanted = [block for block in self._wanted if not block.dropped], []
            for block in wanted:
                block.state = _State.READING
        most = max(READ_BYTES // self._store.slot_bytes, 1)
        count = min(-(-len(wanted) // self._threads), most)
        for first in range(0, len(wanted), count or 1):
            self._pool.submit(self._read, wanted[first : first + count])

    def close(self) -> None:
        """End the threads, after the reads that have begun."""
        self._pool.shutdown(cancel_futures=True)

    def use(self, keys: Sequence[bytes], request: str) -> list[Staged]:
        """The blocks `keys`, which stay until `release`. What else was read for `request` is dropped."""
        with self._lock:
            blocks = [self._blocks[key] for key in keys]
            for block in blocks:
                block.uses += 1
            self._drop_request(request)
            return blocks

    def release(self, blocks: Sequence[Staged]) -> None:
        """A load has copied these blocks."""
        with self._lock:
            for block in blocks:
                block.uses -= 1
                if not block.uses:
                    self._drop(block)

    def finish(self, request: str) -> None:
        """A request has ended: drop what was read for it."""
        with self._lock:
            self._drop_request(request)

    def reset(self) -> None:
        """Drop everything that no load is copying."""
        with self._lock:
            for block in list(self._blocks.values()):
                self._drop(block)

    # ---- parts, called with the lock ----

    def _take(self, request: str) -> int | None:
        buffer = self._buffers.take()
        if buffer is not None:
            return buffer
        if request not in self._requests:
            return None
        for other in reversed(self._requests):
            if other == request:
                break
            for block in reversed(self._requests[other]):
                if block.state is _State.READY and not block.uses:
                    self._drop(block)
                    return self._buffers.take()
        return None

    def _others(self, request: str) -> bool:
        """True if a buffer will become free that is not waiting for `request` itself."""
        own = sum(not block.uses for block in self._requests.get(request, ()))
        return own < self._buffers.count

    def _give_up(self, lost: Staged) -> None:
        """Drop a damaged block, and what was read behind it for the same request, which it cannot use."""
        blocks = self._requests.get(lost.request, [])
        for block in blocks[blocks.index(lost) :] if lost in blocks else [lost]:
            if not block.uses:
                self._drop(block)

    def _drop_request(self, request: str) -> None:
        for block in list(self._requests.get(request, ())):
            if not block.uses:
                self._drop(block)

    def _drop(self, block: Staged) -> None:
        """Nobody finds the block any more. Its buffer is free when no thread reads or copies it."""
        if self._blocks.get(block.key) is block:
            del self._blocks[block.key]
        own = self._requests.get(block.request)
        if own is not None and block in own:
            own.remove(block)
            if not own:
                del self._requests[block.request]
        block.dropped = True
        if block.state is not _State.READING and not block.uses and block.buffer >= 0:
            self._buffers.give(block.buffer)
            block.buffer = -1

    def _read(self, blocks: Sequence[Staged]) -> None:
        whole: dict[Staged, bool] = {}
        try:
            wanted = [block for block in blocks if not block.dropped]
            buffers = [self._buffers[block.buffer] for block in wanted]
            found = self._store.read([block.key for block in wanted], buffers)
            whole = dict(zip(wanted, found, strict=True))
        finally:
            with self._lock:
                for block in blocks:
                    block.state = _State.READY if whole.get(block) else _State.LOST
                    if block.dropped:
                        self._drop(block)
