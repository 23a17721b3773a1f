"""Where the bytes of blocks are: a file or a drive."""

from __future__ import annotations

import errno
import os
from collections.abc import Callable, Iterable, Sequence
from typing import Protocol

from kvdrive.prefix.blocks.buffers import Bytes
from kvdrive.prefix.blocks.index import Block


class NoRoomError(Exception):
    """The medium is full. Its text says what has happened."""


_FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)


def write_whole(write: Callable[[], int], size: int) -> None:
    """Write `size` bytes of a file by `write`, which returns how many it wrote. Raises NoRoomError, OSError."""
    try:
        written = write()
    except OSError as error:
        if error.errno in _FULL:
            raise NoRoomError(error.strerror) from error
        raise
    if written != size:
        raise NoRoomError(os.strerror(errno.ENOSPC))


class Medium(Protocol):
    """Holds blocks of `block_bytes` bytes. `slot_bytes`: of a buffer, in which the block lies behind HEADER_BYTES.

    Calls from several threads are safe. `place`: what a message calls it.
    """

    place: str
    block_bytes: int
    slot_bytes: int

    def name_of(self, key: bytes) -> bytes:
        """What the medium calls the block with this key of 32 bytes."""

    def found(self) -> Iterable[tuple[int, bytes]]:
        """Slot and name of each block that it seems to hold, those that are to be evicted first at the beginning."""

    def read(self, blocks: Sequence[Block], keys: Sequence[bytes], buffers: Sequence[Bytes]) -> list[bool]:
        """Read each block into its buffer. False for one that is not there or not whole."""

    def write(self, block: Block, key: bytes, buffer: Bytes) -> bool:
        """Write a block from `buffer`, where its header is made. False if it was there. Raises NoRoomError, OSError,
        KvdriveError.
        """

    def remove(self, names: Sequence[bytes]) -> None:
        """Give back the room of blocks that the index does not name any more."""

    def close(self) -> None:
        """Close the file or the connection."""
