"""Blocks in a file, by key: found again by later processes, checked when they are read, within a bound of bytes.

The order is bytes, then index, so the index names whole blocks. Nothing is synced: what a power cut takes back fails
its checksum and counts as not there.
"""

from __future__ import annotations

import errno
import itertools
import logging
import sqlite3
import threading
from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path

from kvdrive import private
from kvdrive.blocks.base import Blocks, BlockStats
from kvdrive.blocks.buffers import Bytes
from kvdrive.blocks.index import Block, BlockIndex
from kvdrive.blocks.slots import SlotFile
from kvdrive.errors import InputError
from kvdrive.prefix import owner
from kvdrive.prefix.eviction import make_eviction

log = logging.getLogger(__name__)
_stores = itertools.count()


class FileBlocks(Blocks):
    """See Blocks. Those of `block_bytes` bytes in the file `path`, which has at most `capacity_bytes`.

    `model`: whose blocks these are. `eviction`: a policy's name. Several processes may use one file at once.
    Raises InputError.
    """

    def __init__(
        self, path: Path, block_bytes: int, capacity_bytes: int, model: bytes = b"", eviction: str = "lru"
    ) -> None:
        try:
            private.make_folder(path.parent)
            self._file = SlotFile(path, block_bytes)
        except OSError as error:
            raise InputError(f"{path} cannot be opened ({error.strerror}): choose another path") from error
        self.slot_bytes = self._file.slot_bytes
        self.slots = capacity_bytes // self.slot_bytes
        if self.slots == 0:
            self._file.close()
            raise InputError(f"a block takes {self.slot_bytes} bytes and the bound is {capacity_bytes}: raise it")
        try:
            self._index = BlockIndex(path.with_name(path.name + ".index"), block_bytes)
        except InputError:
            self._file.close()
            raise
        private.warn_of_others(path)
        self.path = path
        self.stats = BlockStats()
        self._model = model
        self._eviction = make_eviction(eviction)
        self._writer = owner.this_process(next(_stores))
        self._uses: Counter[bytes] = Counter()  # -1: being written; > 0: being read; 0, absent: evictable
        self._lock = threading.Lock()
        with self._index.transaction():
            self._index.remove_unfinished()
            self._index.remove_from(self.slots)  # the bound may have been higher before

    def close(self) -> None:
        """Close the files. What was not written completely is forgotten."""
        unfinished = [key for key, uses in self._uses.items() if uses < 0]
        self._change(lambda: self._index.remove(unfinished))
        self._index.close()
        self._file.close()

    # ---- looking up ----

    def holds(self, key: bytes) -> bool:
        """See Blocks."""
        found = self._find(key)
        return found is not None and found[1]

    def uses(self, key: bytes) -> int:
        """See Blocks."""
        return self._uses[key]

    def count(self) -> int:
        """See Blocks."""
        return self._index.count()

    def read(self, keys: Sequence[bytes], buffers: Sequence[Bytes]) -> list[bool]:
        """See Blocks."""
        with self._lock:
            blocks = self._whole(keys)
            self._uses.update(blocks.keys())
            self._index.pinned.update(block.id for block in blocks.values())
        there = [place for place, key in enumerate(keys) if key in blocks]
        whole = [False] * len(keys)
        slots = [blocks[keys[place]].slot for place in there]
        done = self._file.read(slots, [keys[place] for place in there], [buffers[place] for place in there])
        for place, good in zip(there, done, strict=True):
            whole[place] = good
        with self._lock:
            self._uses.subtract(blocks.keys())
            for key, block in blocks.items():
                if not self._uses[key]:
                    del self._uses[key]
                    self._index.pinned.discard(block.id)
            self.stats.read += sum(whole)
            self.stats.bytes_read += sum(whole) * self.slot_bytes
            if lost := [keys[place] for place in there if not whole[place]]:
                self.stats.damaged += len(lost)
                self._change(lambda: self._index.remove(lost))
        return whole

    def touch(self, keys: Sequence[bytes]) -> None:
        """See Blocks."""
        self._change(lambda: self._index.use(keys))

    # ---- changing ----

    def reserve(self, keys: Sequence[bytes]) -> list[bytes]:
        """See Blocks."""
        reserved: list[bytes] = []
        with self._lock:
            if not self._change(lambda: self._reserve(keys, reserved)):
                return []
            self._uses.update(dict.fromkeys(reserved, -1))
        return reserved

    def write(self, key: bytes, buffer: Bytes) -> bool:
        """See Blocks."""
        found = self._find(key)
        if found is None:
            return False
        try:
            self._file.write(found[0].slot, key, buffer)
        except OSError as error:
            self._refused(found[0].slot, error)
            return False
        with self._lock:
            self.stats.written += 1
            self.stats.bytes_written += self.slot_bytes
        return True

    def finish(self, written: Sequence[bytes], failed: Sequence[bytes]) -> None:
        """See Blocks."""

        def work() -> None:
            self._index.written(written)
            self._index.remove(failed)

        with self._lock:
            self._change(work)
            for key in (*written, *failed):
                self._uses.pop(key, None)

    def forget_model(self) -> None:
        """See Blocks."""
        self._change(lambda: self._index.remove_model(self._model))

    # ---- parts ----

    def _change(self, work: Callable[[], object]) -> bool:
        """Change the index. False if the disk has no room for that: nothing has changed, and the engine goes on."""
        try:
            with self._index.transaction():
                work()
        except sqlite3.Error as error:
            log.warning("the index of %s cannot be changed: %s", self.path, error)
            return False
        return True

    def _find(self, key: bytes) -> tuple[Block, bool] | None:
        try:
            return self._index.find(key)
        except sqlite3.Error as error:
            log.warning("the index of %s cannot be read: %s", self.path, error)
            return None

    def _whole(self, keys: Sequence[bytes]) -> dict[bytes, Block]:
        try:
            return self._index.whole(keys)
        except sqlite3.Error as error:
            log.warning("the index of %s cannot be read: %s", self.path, error)
            return {}

    def _reserve(self, keys: Sequence[bytes], reserved: list[bytes]) -> None:
        for key in keys:
            if self._index.find(key) is not None:
                continue
            slot = self._room()
            if slot is None:
                return
            self._index.add(key, slot, self._model, self._writer)
            reserved.append(key)

    def _room(self) -> int | None:
        """A free slot; an evictable block makes room for it."""
        while (slot := self._index.take_slot(self.slots)) is None:
            victim: Block | None = self._eviction.victim(self._index)
            if victim is None:
                return None
            self._index.remove_number(victim.id)
            self.stats.evictions += 1
        return slot

    def _refused(self, slot: int, error: OSError) -> None:
        with self._lock:
            self.stats.failed_writes += 1
            if error.errno not in (errno.ENOSPC, errno.EDQUOT, errno.EFBIG):
                log.warning("a block cannot be written to %s: %s", self.path, error.strerror)
                return
            if slot < self.slots:
                log.warning("%s: %s; from now on new blocks take the place of old ones", self.path, error.strerror)
                self.slots = max(slot, 1)
