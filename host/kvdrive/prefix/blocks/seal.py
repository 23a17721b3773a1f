"""The header of a stored block, by which it proves itself.

It names the block's key and a CRC-32C of key, length and bytes. So a block that was torn by a kill or a power cut,
damaged later or replaced by another one is recognised when it is read.
"""

from __future__ import annotations

import struct

from kvdrive._native import crc32c
from kvdrive.prefix.blocks.buffers import Bytes

HEADER_BYTES = 64
PAGE = 4096
_MAGIC = b"kvb1"
_HEADER = struct.Struct("<4sIQ32s16x")  # magic, checksum of what follows it, length of the block, key
_CHECKED = 8  # the checksum begins behind itself


class Seal:
    """Headers of blocks of `block_bytes` bytes in buffers of `slot_bytes` bytes; the block lies behind HEADER_BYTES."""

    def __init__(self, block_bytes: int) -> None:
        self.block_bytes = block_bytes
        self.slot_bytes = -(-(HEADER_BYTES + block_bytes) // PAGE) * PAGE

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

    def key_of(self, header: bytes) -> bytes | None:
        """The key that a header names; None if it is none of a block of this size."""
        magic, _, length, key = _HEADER.unpack_from(header)
        return key if (magic, length) == (_MAGIC, self.block_bytes) else None

    def _checksum(self, buffer: Bytes) -> int:
        return crc32c(buffer[_CHECKED : HEADER_BYTES + self.block_bytes])
