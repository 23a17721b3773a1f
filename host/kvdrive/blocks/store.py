"""Blocks in a file, by key: found again by later processes, checked when they are read, within a bound of bytes.

The order is bytes, then index, so the index names whole blocks. Nothing is synced: what a power cut takes back fails
its checksum and counts as not there.
"""

from __future__ import annotations

import errno
import itertools
import logging
import threading
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from kvdrive.blocks.buffers import Bytes
from kvdrive.blocks.index import Block, BlockIndex
from kvdrive.blocks.slots import SlotFile
from kvdrive.errors import InputError
from kvdrive.sessions import owner
from kvdrive.sessions.eviction import make_eviction

log = logging.getLogger(__name__)
_stores = itertools.count()


@dataclass
class BlockStats:
    """Counts of this process, in blocks and bytes. `damaged`: read, and not what the index promised."""

    written: int = 0
    bytes_written: int = 0
    failed_writes: int = 0
    read: int = 0
    bytes_read: int = 0
    damaged: int = 0
    evictions: int = 0


class BlockStore:
    """Blocks of `block_bytes` bytes in the file `path`, which has at most `capacity_bytes`.

    `model`: whose blocks these are. `eviction`: a policy's name. Several processes may use one file at once. Calls from
    several threads are safe.
    Raises InputError.
    """

    def __init__(
        self, path: Path, block_bytes: int, capacity_bytes: int, model: bytes = b"", eviction: str = "lru"
    ) -> None:
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            self._file = SlotFile(path, block_bytes)
        except OSError as error:
            raise InputError(f"{path} cannot be opened ({error.strerror}): choose another path") from error
        self.slots = capacity_bytes // self.slot_bytes
        if self.slots == 0:
            self._file.close()
            raise InputError(f"a block takes {self.slot_bytes} bytes and the bound is {capacity_bytes}: raise it")
        try:
            self._index = BlockIndex(path.with_name(path.name + ".index"), block_bytes)
        except InputError:
            self._file.close()
            raise
        self.path = path
        self.stats = BlockStats()
        self._model = model
        self._eviction = make_eviction(eviction)
        self._writer = owner.this_process(next(_stores))
        self._uses: Counter[bytes] = Counter()  # -1: being written; > 0: being read; 0, absent: may leave
        self._lock = threading.Lock()
        with self._index.transaction():
            self._index.remove_unfinished()
            self._index.remove_from(self.slots)  # the bound may have been higher before

    @property
    def slot_bytes(self) -> int:
        """Bytes of a buffer: header, block, padding."""
        return self._file.slot_bytes

    def close(self) -> None:
        """Close the files. What was not written completely is forgotten."""
        with self._index.transaction():
            self._index.remove([key for key, uses in self._uses.items() if uses < 0])
        self._index.close()
        self._file.close()

    # ---- looking up ----

    def holds(self, key: bytes) -> bool:
        """True if the block is written completely."""
        found = self._index.find(key)
        return found is not None and found[1]

    def uses(self, key: bytes) -> int:
        """-1 if this process writes the block, the number of its readers if it reads it, 0 otherwise."""
        return self._uses[key]

    def count(self) -> int:
        """Number of blocks, those that are being written included."""
        return self._index.count()

    def read(self, key: bytes, buffer: Bytes) -> bool:
        """Read a block into `buffer` [slot_bytes]. False if it is not there or damaged; then it is forgotten."""
        with self._lock:
            found = self._index.find(key)
            if found is None or not found[1]:
                return False
            block = found[0]
            self._uses[key] += 1
            self._index.pinned.add(block.id)
        try:
            whole = self._file.read(block.slot, key, buffer)
        except OSError as error:
            log.warning("a block of %s cannot be read: %s", self.path, error.strerror)
            whole = False
        with self._lock:
            self._uses[key] -= 1
            if not self._uses[key]:
                del self._uses[key]
                self._index.pinned.discard(block.id)
            self.stats.read += whole
            self.stats.bytes_read += whole * self.slot_bytes
            self.stats.damaged += not whole
            if not whole:
                with self._index.transaction():
                    self._index.remove([key])
        return whole

    def touch(self, keys: Sequence[bytes]) -> None:
        """Note that blocks were used; the first of `keys` leaves last."""
        with self._index.transaction():
            self._index.use(keys)

    # ---- changing ----

    def reserve(self, keys: Sequence[bytes]) -> list[bytes]:
        """Make room for blocks, the first ones first. Returns those that have to be written: each must be, or failed.

        Blocks that are there or being written are not among them, and none for which nothing may leave.
        """
        reserved: list[bytes] = []
        with self._lock, self._index.transaction():
            for key in keys:
                if self._index.find(key) is not None:
                    continue
                slot = self._room()
                if slot is None:
                    break
                self._index.add(key, slot, self._model, self._writer)
                self._uses[key] = -1
                reserved.append(key)
        return reserved

    def write(self, key: bytes, buffer: Bytes) -> bool:
        """Write a reserved block from `buffer` [slot_bytes]. False if that failed: `finish` has to be told."""
        found = self._index.find(key)
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
        """Reserved blocks are written, or will not be."""
        with self._lock, self._index.transaction():
            self._index.written(written)
            self._index.remove(failed)
            for key in (*written, *failed):
                self._uses.pop(key, None)

    def forget_model(self) -> None:
        """Remove all written blocks of this store's model."""
        with self._index.transaction():
            self._index.remove_model(self._model)

    # ---- parts ----

    def _room(self) -> int | None:
        """A slot that nobody has; a block that may leave makes room for it."""
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
