"""Blocks on a drive, as values of its Key Value command set: in this process, behind a socket or over NVMe/TCP.

A key on the drive is 4 bytes of the model's fingerprint and 12 of the block's key; the value begins with a header that
names the whole key. The drive checks its bytes and keeps them over kills and power cuts. Which blocks there are is
listed when the drive is opened, so this process learns of another engine's later blocks when it would store the same.
"""

from __future__ import annotations

import logging
import threading
from collections import Counter, OrderedDict
from collections.abc import Sequence
from contextlib import ExitStack

from kvdrive.blocks.base import Blocks, BlockStats
from kvdrive.blocks.buffers import Bytes
from kvdrive.blocks.slots import HEADER_BYTES, Seal
from kvdrive.errors import InputError, TargetError
from kvdrive.nvme.errors import CommandError, KeyExistsError
from kvdrive.targets.key_value import KeyValueNamespace
from kvdrive.targets.opening import open_named
from kvdrive.targets.options import DriveOptions

log = logging.getLogger(__name__)
_MODEL_BYTES, _KEY_BYTES = 4, 16


class DriveBlocks(Blocks):
    """See Blocks. `drive`: a drive's file, PATH.sock, tcp://HOST:PORT or nvme:/dev/ngXnY. `model`: 32 bytes.

    At most `capacity_bytes` of this model's blocks are kept; the least recently used one is evicted.
    Raises InputError, TargetError.
    """

    def __init__(self, drive: str, block_bytes: int, capacity_bytes: int, model: bytes) -> None:
        self._seal = Seal(block_bytes)
        self.slot_bytes = self._seal.slot_bytes
        self.slots = capacity_bytes // self.slot_bytes
        if self.slots == 0:
            raise InputError(f"a block takes {self.slot_bytes} bytes and the bound is {capacity_bytes}: raise it")
        self.stats = BlockStats()
        self._model = model[:_MODEL_BYTES]
        self._size = HEADER_BYTES + block_bytes
        self._lock = threading.Lock()
        self._uses: Counter[bytes] = Counter()  # -1: being written; > 0: being read; 0, absent: evictable
        self._gone: list[bytes] = []  # left to make room, and still on the drive
        self._open = ExitStack()
        try:
            group = self._open.enter_context(open_named(drive, DriveOptions()))
            self._values = KeyValueNamespace(group.drives[0])
            self._kept = OrderedDict.fromkeys(self._list())  # the next to be evicted comes first
        except BaseException:
            self._open.close()
            raise

    def close(self) -> None:
        """See Blocks."""
        self._open.close()

    def holds(self, key: bytes) -> bool:
        """See Blocks."""
        with self._lock:
            return self._short(key) in self._kept and self._uses[self._short(key)] >= 0

    def uses(self, key: bytes) -> int:
        """See Blocks."""
        return self._uses[self._short(key)]

    def count(self) -> int:
        """See Blocks."""
        return len(self._kept)

    def read(self, keys: Sequence[bytes], buffers: Sequence[Bytes]) -> list[bool]:
        """See Blocks."""
        return [self._read(key, buffer) for key, buffer in zip(keys, buffers, strict=True)]

    def touch(self, keys: Sequence[bytes]) -> None:
        """See Blocks."""
        with self._lock:
            for key in reversed(keys):
                if self._short(key) in self._kept:
                    self._kept.move_to_end(self._short(key))

    def reserve(self, keys: Sequence[bytes]) -> list[bytes]:
        """See Blocks."""
        reserved: list[bytes] = []
        with self._lock:
            for key in keys:
                short = self._short(key)
                if short in self._kept:
                    continue
                if len(self._kept) >= self.slots and not self._evict():
                    break
                self._kept[short] = None
                self._uses[short] = -1
                reserved.append(key)
        return reserved

    def write(self, key: bytes, buffer: Bytes) -> bool:
        """See Blocks. Blocks that left are deleted by the thread that writes, not by the one that reserves."""
        with self._lock:
            gone, self._gone = self._gone, []
        self._delete(gone)
        self._seal.put(key, buffer)
        try:
            self._values.store(self._short(key), buffer[: self._size], "not-exist")
        except KeyExistsError:
            return True  # another engine was faster
        except (CommandError, TargetError) as error:
            with self._lock:
                self.stats.failed_writes += 1
                log.warning("a block cannot be written to the drive: %s", error)
            return False
        with self._lock:
            self.stats.written += 1
            self.stats.bytes_written += self.slot_bytes
        return True

    def finish(self, written: Sequence[bytes], failed: Sequence[bytes]) -> None:
        """See Blocks."""
        with self._lock:
            for key in reversed(written):
                self._kept.move_to_end(self._short(key))
            for key in failed:
                self._kept.pop(self._short(key), None)
            for key in (*written, *failed):
                self._uses.pop(self._short(key), None)
            if failed:  # the drive is full: new blocks take the place of old ones
                self.slots = max(min(self.slots, len(self._kept)), 1)

    def forget_model(self) -> None:
        """See Blocks."""
        with self._lock:
            gone = [short for short in self._kept if self._uses[short] >= 0]
            for short in gone:
                del self._kept[short]
        self._delete(gone)

    # ---- parts ----

    def _read(self, key: bytes, buffer: Bytes) -> bool:
        short = self._short(key)
        with self._lock:
            if short not in self._kept or self._uses[short] < 0:
                return False
            self._uses[short] += 1
        try:
            found = self._values.retrieve(short, 0, buffer[: self._size])
            whole = found == self._size and self._seal.holds(key, buffer)
        except (CommandError, TargetError) as error:
            log.warning("a block cannot be read from the drive: %s", error)
            whole = False
        with self._lock:
            self._uses[short] -= 1
            self.stats.read += whole
            self.stats.bytes_read += whole * self.slot_bytes
            self.stats.damaged += not whole
            if not whole:
                self._kept.pop(short, None)
        if not whole:
            self._delete([short])
        return whole

    def _short(self, key: bytes) -> bytes:
        return self._model + key[: _KEY_BYTES - _MODEL_BYTES]

    def _list(self) -> list[bytes]:
        found = []
        for short in self._values.keys(self._model):
            if not short.startswith(self._model):
                break
            if len(short) == _KEY_BYTES:
                found.append(short)
        return found

    def _evict(self) -> bool:
        for short in self._kept:
            if not self._uses[short]:
                del self._kept[short]
                self._gone.append(short)
                self.stats.evictions += 1
                return True
        return False

    def _delete(self, gone: Sequence[bytes]) -> None:
        for short in gone:
            try:
                self._values.delete(short)
            except (CommandError, TargetError) as error:
                log.warning("a block cannot be removed from the drive: %s", error)
