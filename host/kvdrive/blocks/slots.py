"""Slots of one size in a file, read and written around the page cache.

A slot is a header of 64 bytes and a block, filled up to a multiple of 4096 bytes. The header names the block's key and
a CRC-32C of key, length and bytes. So a slot proves itself: one that was torn by a kill or a power cut, damaged later
or given to another block meanwhile is recognised when it is read.
"""

from __future__ import annotations

import errno
import logging
import os
import struct
from collections.abc import Sequence
from pathlib import Path

from kvdrive import private
from kvdrive._native import crc32c
from kvdrive.blocks.buffers import Bytes

log = logging.getLogger(__name__)
HEADER_BYTES = 64
_PAGE = 4096
_RUN = 256  # slots of one read; Linux takes at most 1024 buffers
_MAGIC = b"kvb1"
_HEADER = struct.Struct("<4sIQ32s16x")  # magic, checksum of what follows it, length of the block, key
_CHECKED = 8  # the checksum begins behind itself


class Seal:
    """Headers of blocks of `block_bytes` bytes in buffers of `slot_bytes` bytes; the block lies behind HEADER_BYTES."""

    def __init__(self, block_bytes: int) -> None:
        self.block_bytes = block_bytes
        self.slot_bytes = -(-(HEADER_BYTES + block_bytes) // _PAGE) * _PAGE

    def put(self, key: bytes, buffer: Bytes) -> None:
        """Make the header of the block in `buffer`."""
        _HEADER.pack_into(buffer.data, 0, _MAGIC, 0, self.block_bytes, key)
        _HEADER.pack_into(buffer.data, 0, _MAGIC, self._checksum(buffer), self.block_bytes, key)

    def holds(self, key: bytes, buffer: Bytes) -> bool:
        """True if `buffer` has the block `key`, whole."""
        magic, checksum, length, found = _HEADER.unpack_from(buffer.data)
        if (magic, length, found) != (_MAGIC, self.block_bytes, key):
            return False
        return bool(checksum == self._checksum(buffer))

    def _checksum(self, buffer: Bytes) -> int:
        return crc32c(buffer[_CHECKED : HEADER_BYTES + self.block_bytes])


class SlotFile:
    """The file `path`, made where there is none. `block_bytes`: length of a block. Raises OSError.

    Buffers have `slot_bytes` bytes: the block lies behind HEADER_BYTES. Calls from several threads at once are safe.
    """

    def __init__(self, path: Path, block_bytes: int) -> None:
        self._seal = Seal(block_bytes)
        self.slot_bytes = self._seal.slot_bytes
        try:
            self._file = private.open_descriptor(path, os.O_RDWR | os.O_DIRECT)
        except OSError as error:
            if error.errno != errno.EINVAL:  # a file system in memory has no page cache to go around
                raise
            self._file = private.open_descriptor(path, os.O_RDWR)

    def close(self) -> None:
        """Close the file."""
        os.close(self._file)

    def write(self, slot: int, key: bytes, buffer: Bytes) -> None:
        """Write the block in `buffer` to `slot`; the header is made in the buffer. Raises OSError."""
        self._seal.put(key, buffer)
        written = os.pwrite(self._file, buffer.data, slot * self.slot_bytes)
        if written != self.slot_bytes:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    def read(self, slots: Sequence[int], keys: Sequence[bytes], buffers: Sequence[Bytes]) -> list[bool]:
        """Read each slot into its buffer: one read for slots that follow each other.

        False for a slot that cannot be read, or does not hold its block of `keys`, whole.
        """
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
