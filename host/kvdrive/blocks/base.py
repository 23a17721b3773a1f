"""Blocks by key, wherever they lie: what an engine's plugin asks of them."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from kvdrive.blocks.buffers import Buffers, Bytes
from kvdrive.blocks.slots import HEADER_BYTES

READ_BYTES = 2 << 20  # of one read: long enough for an SSD, short enough that a request does not wait for others


@dataclass
class BlockStats:
    """Counts of this process, in blocks and bytes. `damaged`: read, and not what was promised."""

    written: int = 0
    bytes_written: int = 0
    failed_writes: int = 0
    read: int = 0
    bytes_read: int = 0
    damaged: int = 0
    evictions: int = 0


class Blocks(ABC):
    """Blocks of one size under keys of 32 bytes, within a bound. Calls from several threads are safe.

    Buffers have `slot_bytes` bytes; the block lies behind slots.HEADER_BYTES.
    """

    slot_bytes: int
    stats: BlockStats

    @abstractmethod
    def holds(self, key: bytes) -> bool:
        """True if the block is written completely, as far as this process knows. Does not wait."""

    @abstractmethod
    def uses(self, key: bytes) -> int:
        """-1 if this process writes the block, the number of its readers if it reads it, 0 otherwise."""

    @abstractmethod
    def count(self) -> int:
        """Number of blocks, those that are being written included."""

    @abstractmethod
    def read(self, keys: Sequence[bytes], buffers: Sequence[Bytes]) -> list[bool]:
        """Read each of the blocks `keys` into its buffer. False for one that is not there or damaged: it is forgotten.

        Neighbours in the order of their keys' storing are read together, so a prefix is best read by one call.
        """

    @abstractmethod
    def touch(self, keys: Sequence[bytes]) -> None:
        """Note that blocks were used; the first of `keys` is evicted last."""

    @abstractmethod
    def reserve(self, keys: Sequence[bytes]) -> list[bytes]:
        """Make room for blocks, the first ones first. Returns those that have to be written: `finish` follows.

        Blocks that are there or being written are not among them, and none for which no other block can be evicted.
        """

    @abstractmethod
    def write(self, key: bytes, buffer: Bytes) -> bool:
        """Write a reserved block from `buffer`. False if that failed: call `finish` then."""

    @abstractmethod
    def finish(self, written: Sequence[bytes], failed: Sequence[bytes]) -> None:
        """Reserved blocks are written, or will not be."""

    def write_all(self, keys: Sequence[bytes], buffers: Buffers, fill: Callable[[int, Bytes], None]) -> set[bytes]:
        """Write reserved blocks through one of `buffers`, and `finish` them whatever happens. Returns those written.

        `fill(place, block)` copies the block `keys[place]` to the beginning of `block`.
        """
        written: list[bytes] = []
        buffer = buffers.wait()
        try:
            for place, key in enumerate(keys):
                fill(place, buffers[buffer][HEADER_BYTES:])
                if self.write(key, buffers[buffer]):
                    written.append(key)
        finally:
            buffers.give(buffer)
            there = set(written)
            self.finish(written, [key for key in keys if key not in there])
        return there

    @abstractmethod
    def forget_model(self) -> None:
        """Remove all written blocks of this model."""

    @abstractmethod
    def close(self) -> None:
        """Close the file or the connection."""
