"""The adapter that vLLM loads by name; everything it does is in the other modules of this package.

    {"kv_connector": "OffloadingConnector", "kv_role": "kv_both", "kv_connector_extra_config":
        {"spec_name": "DriveOffloadingSpec", "spec_module_path": "kvdrive.plugins.vllm.spec", "path": "blocks.kv"}}

Written for vllm.v1.kv_offload.base of the versions in options.TESTED. The manager is called by the scheduler, the
worker by the model runner; both must be in one process, which vLLM on the processor does for one worker if
VLLM_ENABLE_V1_MULTIPROCESSING is 0.
"""

# ruff: noqa: E402 (the version is checked before anything else of vLLM is imported)

from __future__ import annotations

import logging
from collections.abc import Collection
from typing import Any

from kvdrive.errors import InputError, UnsupportedError
from kvdrive.plugins.vllm.device_pages import pages_of
from kvdrive.plugins.vllm.engine import EngineBlocks
from kvdrive.plugins.vllm.options import MOST_BLOCKS, Options, require_vllm
from kvdrive.plugins.vllm.pages import Layer
from kvdrive.plugins.vllm.staging import Found, Staged

require_vllm()

from vllm.config import get_current_vllm_config
from vllm.v1.kv_offload.base import (
    CanonicalKVCaches,
    GPULoadStoreSpec,
    LoadStoreSpec,
    LookupResult,
    OffloadingManager,
    OffloadingSpec,
    OffloadingWorker,
    PrepareStoreOutput,
    ReqContext,
    RequestOffloadingContext,
    ScheduleEndContext,
    TransferResult,
)
from vllm.v1.kv_offload.config import OffloadingConfig

from kvdrive.plugins.vllm.identity import of_engine

log = logging.getLogger(__name__)
_RESULTS = {
    Found.MISS: LookupResult.MISS,
    Found.HIT: LookupResult.HIT,
    Found.PENDING: LookupResult.HIT_PENDING,
    Found.RETRY: LookupResult.RETRY,
}
_engines: dict[str, EngineBlocks] = {}  # by vLLM's engine_id; the worker is made first


class StoreTo(LoadStoreSpec):  # type: ignore[misc]
    """Where a store job writes: the blocks' keys in the file."""

    def __init__(self, keys: list[bytes]) -> None:
        self.keys = keys


class LoadFrom(LoadStoreSpec):  # type: ignore[misc]
    """Where a load job copies from: blocks in memory."""

    def __init__(self, staged: list[Staged]) -> None:
        self.staged = staged


class DriveManager(OffloadingManager):  # type: ignore[misc]
    """See OffloadingManager. Called by the scheduler only; no bytes of blocks are moved here."""

    def __init__(self, blocks: EngineBlocks) -> None:
        self._blocks = blocks

    def on_new_request(self, req_context: ReqContext) -> RequestOffloadingContext:
        return RequestOffloadingContext()

    def lookup(self, key: bytes, req_context: ReqContext) -> LookupResult:
        return _RESULTS[self._blocks.look(key, req_context.req_id)]

    def prepare_load(self, keys: Collection[bytes], req_context: ReqContext) -> LoadStoreSpec:
        return LoadFrom(self._blocks.use(list(keys), req_context.req_id))

    def prepare_store(self, keys: Collection[bytes], req_context: ReqContext) -> PrepareStoreOutput:
        """See OffloadingManager. Without room nothing is stored: None would make vLLM ask again at every step."""
        pairs = self._blocks.reserve(list(keys))
        return PrepareStoreOutput([key for key, _ in pairs], StoreTo([stored for _, stored in pairs]), [])

    def on_schedule_end(self, context: ScheduleEndContext) -> None:
        """See OffloadingManager. Every look-up of this step was made."""
        self._blocks.staging.submit()

    def on_request_finished(self, req_context: ReqContext) -> None:
        """See OffloadingManager. vLLM 0.32 says only here which blocks a request has used."""
        places = req_context._offload_key_positions
        self._blocks.finish(req_context.req_id, sorted(places, key=places.__getitem__))

    def reset_cache(self) -> None:
        self._blocks.reset()

    def shutdown(self) -> None:
        for name in [name for name, blocks in _engines.items() if blocks is self._blocks]:
            del _engines[name]
        self._blocks.close()
        log.info("kvdrive: %s", self._blocks.store.stats)


class DriveWorker(OffloadingWorker):  # type: ignore[misc]
    """See OffloadingWorker."""

    def __init__(self, blocks: EngineBlocks) -> None:
        self._transfers = blocks.transfers
        self._each = blocks.pages.blocks_per_chunk

    def submit_store(self, job_id: int, src_spec: GPULoadStoreSpec, dst_spec: StoreTo) -> bool:
        self._transfers.store(job_id, src_spec.block_ids.tolist(), dst_spec.keys)
        return True

    def submit_load(self, job_id: int, src_spec: LoadFrom, dst_spec: GPULoadStoreSpec) -> bool:
        skip = dst_spec.block_indices[0] % self._each
        self._transfers.load(job_id, src_spec.staged, skip, dst_spec.block_ids.tolist())
        return True

    def get_finished(self) -> list[TransferResult]:
        """See OffloadingWorker. A block that could not be written is missing from the store, and the job succeeded."""
        return [TransferResult(done.job, True, done.bytes, done.seconds) for done in self._transfers.finished()]

    def wait(self, job_ids: set[int]) -> None:
        self._transfers.wait(job_ids)


class DriveOffloadingSpec(OffloadingSpec):  # type: ignore[misc]
    """See OffloadingSpec. Raises KvdriveError for what this plugin does not do."""

    def __init__(self, config: OffloadingConfig) -> None:
        super().__init__(config)
        self.options = Options.of(config.extra_config)
        if config.parallel.world_size != 1:
            raise UnsupportedError("this plugin is for engines with one worker: tensor and pipeline parallel size 1")
        if len(config.groups) != 1:
            raise UnsupportedError(
                "this plugin is for models whose layers all attend to all tokens: one KV cache group"
            )
        if not 1 <= self.blocks_per_chunk <= MOST_BLOCKS:
            raise InputError(f"blocks_per_chunk is {self.blocks_per_chunk}: choose 1 to {MOST_BLOCKS}")

    def get_manager(self) -> OffloadingManager:
        blocks = _engines.get(self.config.engine_id)
        if blocks is None:
            raise UnsupportedError(
                "the worker is in another process than the scheduler: set VLLM_ENABLE_V1_MULTIPROCESSING=0"
            )
        return DriveManager(blocks)

    def get_worker(self, kv_caches: CanonicalKVCaches) -> OffloadingWorker:
        (refs,) = kv_caches.group_data_refs
        layers = [Layer(kv_caches.tensors[ref.tensor_idx].tensor, ref.page_size_bytes) for ref in refs]
        pages = pages_of(layers, self.blocks_per_chunk)
        blocks = EngineBlocks(self.options, pages, self._identity())
        _engines[self.config.engine_id] = blocks
        place = self.options.drive or self.options.path
        log.info("kvdrive: %d blocks of %d bytes in %s", blocks.store.count(), pages.bytes, place)
        return DriveWorker(blocks)

    def _identity(self) -> dict[str, Any]:
        """What K and V, and the cutting of tokens into blocks, depend on besides the tokens."""
        return {
            **of_engine(get_current_vllm_config(), self.options),
            "cache": [self.config.model.dtype, self.config.kv_cache_layout],
            "tokens": [self.tokens_per_block, self.tokens_per_hash],
        }
