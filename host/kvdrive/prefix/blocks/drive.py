"""Blocks on a drive, as values of its Key Value command set: in this process, behind a socket or over NVMe/TCP.

A key on the drive is 4 bytes of the model's fingerprint and 12 of the block's key; the value begins with a header that
names the whole key. The drive checks its bytes, which survive kills and power cuts. Which blocks there are is listed
when the drive is opened, so this process learns of another engine's later blocks when it would store the same.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator, Sequence
from contextlib import ExitStack

from kvdrive import abi
from kvdrive.errors import TargetError
from kvdrive.nvme.errors import CommandError, KeyExistsError
from kvdrive.prefix.blocks.buffers import Bytes
from kvdrive.prefix.blocks.index import Block
from kvdrive.prefix.blocks.medium import NoRoomError
from kvdrive.prefix.blocks.seal import HEADER_BYTES, Seal
from kvdrive.prefix.blocks.store import BlockOptions, BlockStore
from kvdrive.targets.key_value import KeyValueNamespace
from kvdrive.targets.opening import open_named
from kvdrive.targets.options import DriveOptions

log = logging.getLogger(__name__)
_MODEL_BYTES, _KEY_BYTES = 4, 16


class DriveValues:
    """The blocks of a `model` (32 bytes) on a drive: its file, PATH.sock, tcp://HOST:PORT or nvme:/dev/ngXnY. See
    Medium. Raises InputError, TargetError.
    """

    def __init__(self, drive: str, block_bytes: int, model: bytes) -> None:
        self._seal = Seal(block_bytes)
        self.place = drive
        self.block_bytes = block_bytes
        self.slot_bytes = self._seal.slot_bytes
        self._model = model[:_MODEL_BYTES]
        self._size = HEADER_BYTES + block_bytes
        with ExitStack() as opened:
            group = opened.enter_context(open_named(drive, DriveOptions()))
            self.values = KeyValueNamespace(group.drives[0])
            self._opened = opened.pop_all()

    def close(self) -> None:
        self._opened.close()

    def name_of(self, key: bytes) -> bytes:
        return self._model + key[: _KEY_BYTES - _MODEL_BYTES]

    def found(self) -> Iterator[tuple[int, bytes]]:
        """See Medium. Slots are numbers without a meaning here."""
        slot = 0
        for name in self.values.keys(self._model):
            if not name.startswith(self._model):
                break
            if len(name) == _KEY_BYTES:
                yield slot, name
                slot += 1

    def read(self, blocks: Sequence[Block], keys: Sequence[bytes], buffers: Sequence[Bytes]) -> list[bool]:
        return [self._read(block.name, key, buffer) for block, key, buffer in zip(blocks, keys, buffers, strict=True)]

    def write(self, block: Block, key: bytes, buffer: Bytes) -> bool:
        """See Medium. False: another engine was faster."""
        self._seal.put(key, buffer)
        try:
            self.values.store(block.name, buffer[: self._size], "not-exist")
        except KeyExistsError:
            return False
        except CommandError as error:
            if error.status == abi.NvmeStatus.CAPACITY_EXCEEDED:
                raise NoRoomError(str(error)) from error
            raise
        return True

    def remove(self, names: Sequence[bytes]) -> None:
        for name in names:
            try:
                self.values.delete(name)
            except (CommandError, TargetError) as error:
                log.warning("a block cannot be removed from the drive: %s", error)

    def _read(self, name: bytes, key: bytes, buffer: Bytes) -> bool:
        try:
            found = self.values.retrieve(name, 0, buffer[: self._size])
            return found == self._size and self._seal.holds(key, buffer)
        except (CommandError, TargetError) as error:
            log.warning("a block cannot be read from the drive: %s", error)
            return False


def blocks_on_drive(drive: str, block_bytes: int, options: BlockOptions) -> BlockStore:
    """The blocks of a model on a drive (see DriveValues); their index is in memory. Raises InputError, TargetError."""
    return BlockStore(DriveValues(drive, block_bytes, options.model), ":memory:", options)
