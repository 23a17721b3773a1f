"""What scheduler and worker of one engine share: they run in one process."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import torch

from kvdrive.errors import UnsupportedError
from kvdrive.plugins.vllm.fingerprint import block_key, fingerprint, of_changed_weights
from kvdrive.plugins.vllm.options import Options
from kvdrive.plugins.vllm.pages import HostPages, Pages
from kvdrive.plugins.vllm.staging import Found, Staged, Staging
from kvdrive.plugins.vllm.transfers import Transfers
from kvdrive.prefix.blocks.buffers import Buffers
from kvdrive.prefix.blocks.file import blocks_in_file
from kvdrive.prefix.blocks.store import BlockOptions, BlockStore

log = logging.getLogger(__name__)


class EngineBlocks:
    """The stored blocks of an engine with `pages`. `identity`: everything else that K and V depend on.

    Keys are vLLM's; in the file they are hashed together with the fingerprint. Raises InputError.
    """

    def __init__(self, options: Options, pages: Pages, identity: dict[str, Any]) -> None:
        if options.direct and isinstance(pages, HostPages):
            raise UnsupportedError("'direct' is for engines on a GPU: leave it out")
        self.pages = pages
        self.fingerprint = fingerprint({**identity, "layout": pages.layout, "tenant": options.tenant})
        self.store = open_blocks(options, pages.bytes, self.fingerprint, pages.device)
        size = self.store.slot_bytes
        staged = _buffers(options, pages, max(options.buffer_bytes // size, 1), size)
        free = _buffers(options, pages, options.write_buffers, size)
        self.staging = Staging(self.store, staged, options.threads)
        self._notes = ThreadPoolExecutor(1, "kvdrive-note")
        self.transfers = Transfers(pages, self.store, self.staging, staged, free)

    def key(self, key: bytes) -> bytes:
        """The key in the file."""
        return block_key(self.fingerprint, key)

    def look(self, key: bytes, request: str) -> Found:
        return self.staging.look(self.key(key), request)

    def use(self, keys: Sequence[bytes], request: str) -> list[Staged]:
        """See Staging. The blocks count as used at once: the next request may need room before this one has ended."""
        own = [self.key(key) for key in keys]
        self._notes.submit(self.store.touch, own)
        return self.staging.use(own, request)

    def finish(self, request: str, keys: Sequence[bytes]) -> None:
        """A request has ended, which used the blocks `keys`, those of its beginning first."""
        self.staging.finish(request)
        used = [self.key(key) for key in keys]
        self._notes.submit(self.store.touch, used)

    def reserve(self, keys: Sequence[bytes]) -> list[tuple[bytes, bytes]]:
        """See BlockStore: pairs of vLLM's key and the key in the file."""
        own = {self.key(key): key for key in keys}
        return [(own[key], key) for key in self.store.reserve(list(own))]

    def reset(self) -> None:
        """Forget all blocks of this model, because its weights have changed. Other engines do not find later ones."""
        self.staging.reset()
        self.store.forget_model()
        self.fingerprint = of_changed_weights()

    def close(self) -> None:
        """End the threads and close the file."""
        self.staging.close()
        self._notes.shutdown()
        self.transfers.close()
        self.store.close()


def _buffers(options: Options, pages: Pages, count: int, size: int) -> Buffers:
    """Buffers where blocks are moved to: on the host, or on the engine's device."""
    if not options.direct:
        return Buffers(count, size)
    from kvdrive.prefix.blocks.direct import DeviceBuffers

    return DeviceBuffers(count, size, pages.device)


def open_blocks(options: Options, size: int, model: bytes, device: torch.device | None = None) -> BlockStore:
    """The blocks of `size` bytes that the engines with the fingerprint `model` have stored. `device`: of an engine
    whose blocks may go there directly. Raises KvdriveError.
    """
    stored = BlockOptions(
        options.bytes, model, options.eviction, options.tenant, options.tenant_bytes, options.daily_bytes
    )
    if options.drive:
        from kvdrive.prefix.blocks.drive import blocks_on_drive  # brings everything that opens drives

        return blocks_on_drive(options.drive, size, stored)
    if options.direct:
        if device is None:
            raise UnsupportedError(
                "'direct' is an option of DriveOffloadingSpec: a tier reaches the host's memory only"
            )
        from kvdrive.prefix.blocks.direct import blocks_direct

        return blocks_direct(options.path, size, device, stored)
    return blocks_in_file(options.path, size, stored)
