"""A secondary tier for vLLM's TieringOffloadingSpec, loaded by name: it stores blocks in a file or on a drive.

    "secondary_tiers": [{"type": "DriveTier", "module_path": "kvdrive.plugins.vllm.tier", "path": "blocks.kv"}]

Written for vllm.v1.kv_offload.tiering.base of the versions in options.TESTED. A tier lives in the scheduler's process
and touches the first tier's memory only, so it does not matter where the model runs.
"""

# ruff: noqa: E402 (the version is checked before anything else of vLLM is imported)

from __future__ import annotations

import logging
from collections.abc import Collection, Iterable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass
from typing import Any, ClassVar

import numpy as np

from kvdrive.errors import InputError
from kvdrive.plugins.vllm.engine import open_blocks
from kvdrive.plugins.vllm.fingerprint import block_key, fingerprint, of_changed_weights
from kvdrive.plugins.vllm.options import MOST_BLOCKS, Options, require_vllm
from kvdrive.plugins.vllm.tier_jobs import TierJobs

require_vllm()

from vllm.v1.kv_offload.base import (
    Locality,
    LookupResult,
    Medium,
    OffloadingSpec,
    ReqContext,
    RequestOffloadingContext,
)
from vllm.v1.kv_offload.config import OffloadingConfig
from vllm.v1.kv_offload.tiering.backpressure import BackpressureDetector
from vllm.v1.kv_offload.tiering.base import JobResult, SecondaryTierManager, TransferJob

from kvdrive.plugins.vllm.identity import engine_being_made, of_engine

log = logging.getLogger(__name__)


@dataclass
class _Loaded:
    """Blocks that were loaded for a request, those that have left the first tier again included."""

    blocks: int = 0


class DriveTier(SecondaryTierManager):  # type: ignore[misc]
    """See SecondaryTierManager. `given`: the options of this tier (Options). Raises KvdriveError."""

    medium: ClassVar[Medium] = Medium.STORAGE

    def __init__(
        self,
        offloading_spec: OffloadingSpec,
        primary_kv_view: memoryview,
        tier_type: str,
        backpressure_detector: BackpressureDetector | None = None,
        locality: str | None = None,
        **given: Any,
    ) -> None:
        super().__init__(offloading_spec, primary_kv_view, tier_type, backpressure_detector)
        self.locality = Locality(locality) if locality else None
        config = offloading_spec.config
        if not 1 <= config.cache.blocks_per_chunk <= MOST_BLOCKS:
            raise InputError(f"blocks_per_chunk is {config.cache.blocks_per_chunk}: choose 1 to {MOST_BLOCKS}")
        options = Options.of(given)
        self._fingerprint = fingerprint(_identity(config, options) | {"tenant": options.tenant})
        self.store = open_blocks(options, self.block_size_bytes, self._fingerprint)
        self._jobs = TierJobs(self.store, np.asarray(primary_kv_view).view(np.uint8), options)
        self._keys: dict[int, list[bytes]] = {}  # vLLM's keys of each job
        self._notes = ThreadPoolExecutor(1, "kvdrive-note")
        place = options.drive or options.path
        log.info("kvdrive: %d blocks of %d bytes in %s", self.store.count(), self.block_size_bytes, place)

    def on_new_request(self, req_context: ReqContext) -> RequestOffloadingContext:
        return RequestOffloadingContext()

    def lookup(self, key: bytes, req_context: ReqContext) -> LookupResult:
        """See SecondaryTierManager. A hit may still turn out to be damaged: then its load fails, and it is a miss.

        The blocks of a prompt that is longer than the first tier evict each other, and the scheduler asks for them
        again. So a request gets as many blocks as the first tier holds, and the rest of its prompt is computed.
        """
        loaded = req_context.get_state(_Loaded)
        if loaded and loaded.blocks >= len(self._primary_kv_view):
            return LookupResult.MISS
        own = self._key(key)
        if self.store.holds(own):
            return LookupResult.HIT
        return LookupResult.RETRY if self.store.uses(own) < 0 else LookupResult.MISS

    def submit_store(self, job_metadata: TransferJob) -> None:
        self._jobs.store(job_metadata.job_id, *self._of(job_metadata))

    def submit_load(self, job_metadata: TransferJob) -> None:
        """See SecondaryTierManager. The blocks count as used at once: others may need room before the request ends."""
        loaded = job_metadata.req_context.get_state(_Loaded) or _Loaded()
        loaded.blocks += len(job_metadata.keys)
        job_metadata.req_context.set_state(loaded)
        keys, rows = self._of(job_metadata)
        self._notes.submit(self.store.touch, keys)
        self._jobs.load(job_metadata.job_id, keys, rows)

    def get_finished_jobs(self) -> Iterable[JobResult]:
        results = []
        for job in self._jobs.finished():
            keys = self._keys.pop(job.number)
            whole = [key for key, good in zip(keys, job.whole, strict=True) if good]
            size = len(whole) * self.block_size_bytes
            results.append(JobResult(job.number, all(job.whole), whole, job.seconds, size))
        return results

    def on_request_finished(self, req_context: ReqContext) -> None:
        """See SecondaryTierManager. The request has used these blocks, wherever they were found."""
        places = req_context._offload_key_positions
        self._notes.submit(self.store.touch, [self._key(key) for key in sorted(places, key=places.__getitem__)])

    def drain_jobs(self) -> None:
        """See SecondaryTierManager. vLLM drains to reset its caches, because the weights may have changed.

        Then what is stored is another model's, and it is forgotten. Other engines, which have the weights of the files,
        find nothing of what is stored from now on.
        """
        self._jobs.drain()
        self.store.forget_model()
        self._fingerprint = of_changed_weights()

    def shutdown(self) -> None:
        self._notes.shutdown()
        self._jobs.close()
        self.store.close()
        log.info("kvdrive: %s", self.store.stats)

    def _key(self, key: bytes) -> bytes:
        return block_key(self._fingerprint, key)

    def _of(self, job: TransferJob) -> tuple[list[bytes], list[int]]:
        keys: Collection[bytes] = job.keys
        self._keys[job.job_id] = list(keys)
        return [self._key(key) for key in keys], job.chunk_ids.tolist()


def _identity(config: OffloadingConfig, options: Options) -> dict[str, Any]:
    """What K and V, and the bytes of a block, depend on besides the tokens. Raises InputError, UnsupportedError."""
    engine, parallel = engine_being_made(), config.parallel
    if engine is None and not options.model_fingerprint:
        raise InputError(
            "this tier is made outside of an engine of vLLM, so nothing tells what the model is: give "
            "'model_fingerprint', a text that you change whenever the model does"
        )
    return {
        "engine": options.model_fingerprint if engine is None else of_engine(engine, options),
        "dtype": config.model.dtype,
        "layers": [[group.tokens_per_block, group.layer_names] for group in config.groups],
        "cache": asdict(config.cache),
        "bytes": config.worker_kv_bytes_per_block,
        "layout": [config.kv_cache_layout, config.canonical_layout, config.replicated_layout],
        "workers": [parallel.world_size, parallel.tp_size, parallel.pp_size, parallel.pcp_size, parallel.dcp_size],
    }
