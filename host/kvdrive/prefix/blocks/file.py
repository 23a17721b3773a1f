"""Blocks in slots of one size in a file, read and written around the page cache.

A slot is a header of 64 bytes and a block, filled up to a multiple of 4096 bytes.
"""

from __future__ import annotations

import errno
import logging
import os
from collections.abc import Iterator, Sequence
from pathlib import Path

from kvdrive import private
from kvdrive.errors import InputError
from kvdrive.prefix.blocks.buffers import Buffers, Bytes
from kvdrive.prefix.blocks.index import Block
from kvdrive.prefix.blocks.medium import write_whole
from kvdrive.prefix.blocks.seal import HEADER_BYTES, PAGE, Seal
from kvdrive.prefix.blocks.store import BlockOptions, BlockStore

log = logging.getLogger(__name__)
_RUN = 256  # slots of one read; Linux takes at most 1024 buffers


class SlotFile:
    """The file `path`, made where there is none. See Medium. Raises InputError."""

    def __init__(self, path: Path, block_bytes: int) -> None:
        self._seal = Seal(block_bytes)
        self.place = str(path)
        self.block_bytes = block_bytes
        self.slot_bytes = self._seal.slot_bytes
        try:
            private.make_folder(path.parent)
            try:
                self._file = private.open_descriptor(path, os.O_RDWR | os.O_DIRECT)
            except OSError as error:
                if error.errno != errno.EINVAL:  # a file system in memory has no page cache to go around
                    raise
                self._file = private.open_descriptor(path, os.O_RDWR)
        except OSError as error:
            raise InputError(f"{path} cannot be opened ({error.strerror}): choose another path") from error

    def close(self) -> None:
        os.close(self._file)

    def name_of(self, key: bytes) -> bytes:
        return key

    def found(self) -> Iterator[tuple[int, bytes]]:
        """See Medium. The headers are read; a block that is not whole is recognised when it is read itself."""
        buffer = Buffers(1, PAGE)[0]
        for slot in range(os.fstat(self._file).st_size // self.slot_bytes):
            try:
                read = os.preadv(self._file, [buffer.data], slot * self.slot_bytes)
            except OSError as error:
                log.warning("slot %d cannot be read: %s", slot, error.strerror)
                continue
            if read == PAGE and (key := self._seal.key_of(buffer[:HEADER_BYTES].tobytes())) is not None:
                yield slot, key

    def write(self, block: Block, key: bytes, buffer: Bytes) -> bool:
        self._seal.put(key, buffer)
        write_whole(lambda: os.pwrite(self._file, buffer.data, block.slot * self.slot_bytes), self.slot_bytes)
        return True

    def read(self, blocks: Sequence[Block], keys: Sequence[bytes], buffers: Sequence[Bytes]) -> list[bool]:
        """See Medium. One read for slots that follow each other."""
        slots = [block.slot for block in blocks]
        whole: list[bool] = []
        while len(whole) < len(slots):
            begin = len(whole)
            end = begin + 1
            while end < min(len(slots), begin + _RUN) and slots[end] == slots[end - 1] + 1:
                end += 1
            run = [buffer.data for buffer in buffers[begin:end]]
            try:
                there = os.preadv(self._file, run, slots[begin] * self.slot_bytes) // self.slot_bytes
            except OSError as error:
                log.warning("slot %d cannot be read: %s", slots[begin], error.strerror)
                there = 0
            for place in range(begin, begin + max(there, 1)):  # the next read begins behind the slot that stopped it
                whole.append(place - begin < there and self._seal.holds(keys[place], buffers[place]))
        return whole

    def remove(self, names: Sequence[bytes]) -> None:
        """See Medium. A slot is used again."""


def blocks_in_file(path: Path, block_bytes: int, options: BlockOptions) -> BlockStore:
    """The blocks of `block_bytes` bytes in the file `path`, whose index is beside it. Raises InputError."""
    file = SlotFile(path, block_bytes)
    store = BlockStore(file, path.with_name(path.name + ".index"), options)
    private.warn_of_others(path)
    return store
