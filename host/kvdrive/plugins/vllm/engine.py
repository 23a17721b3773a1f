"""What scheduler and worker of one engine share: they run in one process."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from kvdrive.blocks import BlockStore, Buffers
from kvdrive.plugins.vllm.fingerprint import block_key, fingerprint
from kvdrive.plugins.vllm.options import Options
from kvdrive.plugins.vllm.pages import Pages
from kvdrive.plugins.vllm.staging import Found, Staged, Staging
from kvdrive.plugins.vllm.transfers import Transfers

log = logging.getLogger(__name__)


class EngineBlocks:
    """The stored blocks of an engine with `pages`. `identity`: everything else that K and V depend on.

    Keys are vLLM's; in the file they are hashed together with the fingerprint. Raises InputError.
    """

    def __init__(self, options: Options, pages: Pages, identity: dict[str, Any]) -> None:
        self.pages = pages
        self.fingerprint = fingerprint({**identity, "layout": pages.layout, "tenant": options.tenant})
        self.store = BlockStore(options.path, pages.bytes, options.bytes, self.fingerprint, options.eviction)
        size = self.store.slot_bytes
        staged = Buffers(max(options.buffer_bytes // size, 1), size)
        free = Buffers(options.write_buffers, size)
        self._readers = ThreadPoolExecutor(options.threads, "kvdrive-read")
        self._movers = ThreadPoolExecutor(options.write_buffers, "kvdrive-move")
        self.staging = Staging(self.store, staged, self._readers)
        self.transfers = Transfers(pages, self.store, self.staging, staged, free, self._movers)

    def key(self, key: bytes) -> bytes:
        """The key in the file."""
        return block_key(self.fingerprint, key)

    def look(self, key: bytes, request: str) -> Found:
        """See Staging."""
        return self.staging.look(self.key(key), request)

    def use(self, keys: Sequence[bytes], request: str) -> list[Staged]:
        """See Staging."""
        return self.staging.use([self.key(key) for key in keys], request)

    def touch(self, keys: Sequence[bytes]) -> None:
        """See BlockStore."""
        self.store.touch([self.key(key) for key in keys])

    def reserve(self, keys: Sequence[bytes]) -> list[tuple[bytes, bytes]]:
        """See BlockStore: pairs of vLLM's key and the key in the file."""
        own = {self.key(key): key for key in keys}
        return [(own[key], key) for key in self.store.reserve(list(own))]

    def reset(self) -> None:
        """Forget all blocks of this model, because its weights have changed."""
        self.staging.reset()
        self.store.forget_model()

    def close(self) -> None:
        """End the threads and close the file."""
        self._readers.shutdown(cancel_futures=True)
        self._movers.shutdown()
        self.store.close()
