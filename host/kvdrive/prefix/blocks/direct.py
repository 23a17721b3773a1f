"""Blocks in slots of a file that go to and from the memory of the engine's device, without a copy on the host.

A slot is a header of 64 bytes and a block, filled up to a multiple of 4096 bytes, as in `file.py`. The device checks
what it reads: the header has a sum of the block's words, each multiplied by an odd number of its place, modulo 2^64. So
every change of one word is found, and others but for one in about 2^64.
"""

from __future__ import annotations

import logging
import os
import struct
import threading
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import cast

import torch

from kvdrive import private
from kvdrive.errors import InputError
from kvdrive.kvcache.copies import CopyStream, copies_of, current_mark
from kvdrive.prefix.blocks.buffers import Buffers, Bytes
from kvdrive.prefix.blocks.device_file import open_device_file
from kvdrive.prefix.blocks.index import Block
from kvdrive.prefix.blocks.medium import write_whole
from kvdrive.prefix.blocks.seal import HEADER_BYTES, PAGE
from kvdrive.prefix.blocks.store import BlockOptions, BlockStore

log = logging.getLogger(__name__)
_MAGIC = b"kvd1"
_HEADER = struct.Struct("<4s4xqQ32s8x")  # magic, sum of the words, length of the block, key
_SEED = 1  # of the numbers of the places, which are part of the format


class DeviceBuffers(Buffers):
    """See Buffers. `count` buffers of `size` bytes in the memory of `device`."""

    def __init__(self, count: int, size: int, device: torch.device) -> None:
        self.count = count
        self._tensors = torch.zeros(count, size, dtype=torch.uint8, device=device)
        current_mark(device).synchronize()  # before other streams use them
        self._free = list(range(count))
        self._changed = threading.Condition()

    def __getitem__(self, number: int) -> Bytes:
        """The bytes of buffer `number`, a tensor."""
        return cast(Bytes, self._tensors[number])


class WordSum:
    """The sum of what lies behind the header of slots of `slot_bytes` bytes on a device. See above."""

    def __init__(self, slot_bytes: int, copies: CopyStream) -> None:
        words = (slot_bytes - HEADER_BYTES) // 8
        generator = torch.Generator().manual_seed(_SEED)
        numbers = torch.randint(0, 1 << 62, (words,), generator=generator) * 2 + 1
        self._numbers = numbers.to(copies.device)
        current_mark(copies.device).synchronize()
        self._copies = copies

    def of(self, buffer: torch.Tensor) -> int:
        """The sum of a slot [bytes], int64. Waits for the device."""
        with self._copies.running():
            return int((buffer[HEADER_BYTES:].view(torch.int64) * self._numbers).sum())


class DirectSlots:
    """The file `path`, made where there is none, for buffers of DeviceBuffers. See Medium. Raises InputError."""

    def __init__(self, path: Path, block_bytes: int, device: torch.device) -> None:
        self.place = str(path)
        self.block_bytes = block_bytes
        self.slot_bytes = -(-(HEADER_BYTES + block_bytes) // PAGE) * PAGE
        self._copies = copies_of(device)
        self._sum = WordSum(self.slot_bytes, self._copies)
        try:
            private.make_folder(path.parent)
            os.close(private.open_descriptor(path, os.O_RDWR))
            self._file = open_device_file(path, device)
        except OSError as error:
            raise InputError(f"{path} cannot be opened ({error.strerror or error}): choose another path") from error
        self._path = path

    @property
    def how(self) -> str:
        """See DeviceFile."""
        return self._file.how

    def close(self) -> None:
        self._file.close()

    def name_of(self, key: bytes) -> bytes:
        return key

    def found(self) -> Iterator[tuple[int, bytes]]:
        """See Medium. The headers are read by the host; a block that is not whole is recognised when it is read."""
        with self._path.open("rb") as file:
            for slot in range(self._path.stat().st_size // self.slot_bytes):
                file.seek(slot * self.slot_bytes)
                magic, _, length, key = _HEADER.unpack(file.read(HEADER_BYTES))
                if (magic, length) == (_MAGIC, self.block_bytes):
                    yield slot, key

    def write(self, block: Block, key: bytes, buffer: Bytes) -> bool:
        """See Medium."""
        slot = cast(torch.Tensor, buffer)
        header = _HEADER.pack(_MAGIC, self._sum.of(slot), self.block_bytes, key)
        with self._copies.running():
            slot[:HEADER_BYTES].copy_(torch.frombuffer(bytearray(header), dtype=torch.uint8))
            mark = self._copies.mark()
        mark.synchronize()
        write_whole(lambda: self._file.write(slot, block.slot * self.slot_bytes), self.slot_bytes)
        return True

    def read(self, blocks: Sequence[Block], keys: Sequence[bytes], buffers: Sequence[Bytes]) -> list[bool]:
        """See Medium."""
        return [self._read(*each) for each in zip(blocks, keys, buffers, strict=True)]

    def remove(self, names: Sequence[bytes]) -> None:
        """See Medium. A slot is used again."""

    def _read(self, block: Block, key: bytes, buffer: Bytes) -> bool:
        slot = cast(torch.Tensor, buffer)
        try:
            if self._file.read(slot, block.slot * self.slot_bytes) != self.slot_bytes:
                return False
        except OSError as error:
            log.warning("slot %d cannot be read: %s", block.slot, error)
            return False
        with self._copies.running():
            header = slot[:HEADER_BYTES].cpu().numpy().tobytes()
        magic, found, length, whose = _HEADER.unpack(header)
        return (magic, length, whose) == (_MAGIC, self.block_bytes, key) and bool(found == self._sum.of(slot))


def blocks_direct(path: Path, block_bytes: int, device: torch.device, options: BlockOptions) -> BlockStore:
    """The blocks of `block_bytes` bytes in the file `path`, whose index is beside it. Raises InputError."""
    slots = DirectSlots(path, block_bytes, device)
    log.info("kvdrive: blocks of %s are moved by %s", path, slots.how)
    store = BlockStore(slots, path.with_name(path.name + ".index"), options)
    private.warn_of_others(path)
    return store
