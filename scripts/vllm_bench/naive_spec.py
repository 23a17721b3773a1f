"""The smallest offloading spec that works: what an SSD tier costs without further thought. A baseline, nothing else.

A file without a name, a thread, a read or write through the page cache for each page of each layer; no checksums, no
bound, nothing left after the process.
"""

import os
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor, wait

import numpy as np
from vllm.v1.kv_offload.base import (
    BlockIDsLoadStoreSpec,
    LookupResult,
    OffloadingManager,
    OffloadingSpec,
    OffloadingWorker,
    PrepareStoreOutput,
    RequestOffloadingContext,
    TransferResult,
)


class Places(BlockIDsLoadStoreSpec):
    """Numbers of blocks in the file."""


class NaiveManager(OffloadingManager):
    def __init__(self):
        self.places, self.whole = {}, set()

    def on_new_request(self, req_context):
        return RequestOffloadingContext()

    def lookup(self, key, req_context):
        return LookupResult.HIT if key in self.whole else LookupResult.MISS

    def prepare_load(self, keys, req_context):
        return Places([self.places[key] for key in keys])

    def prepare_store(self, keys, req_context):
        fresh = [key for key in keys if key not in self.places]
        for key in fresh:
            self.places[key] = len(self.places)
        return PrepareStoreOutput(fresh, Places([self.places[key] for key in fresh]), [])

    def complete_store(self, keys, req_context, success=True):
        self.whole.update(keys)


class NaiveWorker(OffloadingWorker):
    def __init__(self, kv_caches, path):
        self.pages = [(one.tensor.numpy().view(np.uint8), one.page_size_bytes) for one in kv_caches.tensors]
        self.size = sum(size for _, size in self.pages)
        with tempfile.NamedTemporaryFile(dir=path, delete=False) as file:
            self.file = os.dup(file.fileno())
        self.pool, self.jobs, self.done = ThreadPoolExecutor(1), {}, []

    def _move(self, job, transfer, blocks, places):
        began = time.perf_counter()
        for block, place in zip(blocks, places, strict=True):
            offset = int(place) * self.size
            for pages, size in self.pages:
                transfer(self.file, pages[int(block)][:size], offset)
                offset += size
        self.done.append(TransferResult(job, True, len(blocks) * self.size, time.perf_counter() - began))

    def submit_store(self, job_id, src_spec, dst_spec):
        blocks, places = src_spec.block_ids, dst_spec.block_ids
        self.jobs[job_id] = self.pool.submit(self._move, job_id, os.pwrite, blocks, places)
        return True

    def submit_load(self, job_id, src_spec, dst_spec):
        blocks, places = dst_spec.block_ids, src_spec.block_ids
        read = lambda file, page, offset: os.preadv(file, [page], offset)  # noqa: E731
        self.jobs[job_id] = self.pool.submit(self._move, job_id, read, blocks, places)
        return True

    def get_finished(self):
        done, self.done = self.done, []
        return done

    def wait(self, job_ids):
        wait([self.jobs[job] for job in job_ids if job in self.jobs])


class NaiveSpec(OffloadingSpec):
    def get_manager(self):
        return NaiveManager()

    def get_worker(self, kv_caches):
        return NaiveWorker(kv_caches, self.extra_config["path"])
