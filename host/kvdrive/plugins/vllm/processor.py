"""vLLM's tiers on the processor: its TieringOffloadingSpec with a worker that copies memory to memory.

    {"spec_name": "ProcessorTieringSpec", "spec_module_path": "kvdrive.plugins.vllm.processor",
        "cpu_bytes_to_use": 2147483648, "secondary_tiers": [...]}

vLLM's own worker needs the streams of a GPU. The first tier is memory that scheduler and worker share, so they may be
in different processes.
"""

# ruff: noqa: E402 (the version is checked before anything else of vLLM is imported)

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import numpy as np

from kvdrive.errors import UnsupportedError
from kvdrive.plugins.vllm.options import require_vllm
from kvdrive.plugins.vllm.pages import HostPages, Layer, Pages
from kvdrive.prefix.blocks.buffers import Bytes

require_vllm()

from vllm.v1.kv_offload.base import CanonicalKVCaches, GPULoadStoreSpec, OffloadingWorker, TransferResult
from vllm.v1.kv_offload.config import OffloadingConfig
from vllm.v1.kv_offload.cpu.common import CPULoadStoreSpec
from vllm.v1.kv_offload.cpu.shared_offload_region import SharedOffloadRegion
from vllm.v1.kv_offload.tiering.spec import TieringOffloadingSpec


class MemoryWorker(OffloadingWorker):  # type: ignore[misc]
    """See OffloadingWorker. Jobs are done when they are submitted: a thread would only compete with the model."""

    def __init__(self, pages: Pages, region: SharedOffloadRegion) -> None:
        self._pages = pages
        self._region = region
        self._rows: Bytes = region.create_next_worker_view(pages.bytes).numpy().view(np.uint8)
        self._done: list[TransferResult] = []

    def submit_store(self, job_id: int, src_spec: GPULoadStoreSpec, dst_spec: CPULoadStoreSpec) -> bool:
        return self._copy(
            job_id, src_spec, dst_spec, lambda row, _, blocks, after: self._pages.gather(blocks, row, after)
        )

    def submit_load(self, job_id: int, src_spec: CPULoadStoreSpec, dst_spec: GPULoadStoreSpec) -> bool:
        return self._copy(job_id, dst_spec, src_spec, self._pages.scatter)

    def get_finished(self) -> list[TransferResult]:
        done, self._done = self._done, []
        return done

    def wait(self, job_ids: set[int]) -> None:
        """See OffloadingWorker."""

    def shutdown(self) -> None:
        self._rows = self._rows[:0].copy()
        self._region.cleanup()

    def _copy(self, job: int, engine: GPULoadStoreSpec, memory: CPULoadStoreSpec, move: Callable[..., None]) -> bool:
        began, after = time.perf_counter(), self._pages.given()
        each = self._pages.blocks_per_chunk
        blocks = engine.block_ids.tolist()
        parts = self._pages.split(engine.block_indices[0] % each, blocks)
        for row, (skip, part) in zip(memory.chunk_ids.tolist(), parts, strict=True):
            move(self._rows[row], skip, part, after)
        size = len(blocks) * self._pages.bytes // each
        self._done.append(TransferResult(job, True, size, time.perf_counter() - began))
        return True


class ProcessorTieringSpec(TieringOffloadingSpec):  # type: ignore[misc]
    """See TieringOffloadingSpec. Raises UnsupportedError."""

    def __init__(self, config: OffloadingConfig) -> None:
        super().__init__(config)
        if config.parallel.world_size != 1 or len(config.groups) != 1 or config.canonical_layout:
            raise UnsupportedError(
                "these tiers are for engines with one worker and one KV cache group, without 'canonical_layout'"
            )
        self._memory_worker: MemoryWorker | None = None

    def get_worker(self, kv_caches: CanonicalKVCaches) -> OffloadingWorker:
        if self._memory_worker is None:
            (refs,) = kv_caches.group_data_refs
            layers = [Layer(kv_caches.tensors[ref.tensor_idx].tensor, ref.page_size_bytes) for ref in refs]
            region: Any = SharedOffloadRegion(
                engine_id=self.config.engine_id,
                num_chunks=self.num_chunks,
                rank=self.config.parallel.rank,
                kv_bytes_per_chunk=self.kv_bytes_per_chunk,
                cpu_page_size=self.cpu_page_size_per_worker,
            )
            self._memory_worker = MemoryWorker(HostPages(layers, self.blocks_per_chunk), region)
        return self._memory_worker
