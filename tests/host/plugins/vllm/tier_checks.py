"""Runs in vLLM's environment: DriveTier below vLLM's own tiering manager and memory tier, without a model.

python tier_checks.py FOLDER     prints what was found, as JSON; test_tier.py says what it should be
"""

from __future__ import annotations

import json
import os
import resource
import sys
import time
from pathlib import Path

import torch
from vllm.v1.kv_offload.base import (
    CanonicalKVCacheRef,
    CanonicalKVCaches,
    CanonicalKVCacheTensor,
    GPULoadStoreSpec,
    LookupResult,
    ReqContext,
    ScheduleEndContext,
    make_offload_key,
)
from vllm.v1.kv_offload.config import (
    OffloadingCacheConfig,
    OffloadingConfig,
    OffloadingGroupConfig,
    OffloadingModelConfig,
    OffloadingParallelConfig,
)
from vllm.v1.kv_offload.factory import OffloadingSpecFactory

from kvdrive.targets.cpu import CpuDrive

PAGE, LAYERS, FACTOR, BLOCKS = 1000, 3, 2, 128
ROW = 8192  # 6000 bytes of a chunk, padded
SLOT = 12_288
NOW = ScheduleEndContext((), ())


def config(name: str, memory: int, factor: int, workers: int, **tier) -> OffloadingConfig:
    """An engine `name` with `memory` chunks in the first tier; `tier`: options of the second one."""
    second = {"type": "DriveTier", "module_path": "kvdrive.plugins.vllm.tier", "model_fingerprint": "model"} | tier
    extra = {"spec_name": "ProcessorTieringSpec", "spec_module_path": "kvdrive.plugins.vllm.processor"}
    return OffloadingConfig(
        groups=(OffloadingGroupConfig(16, tuple(f"layer {layer}" for layer in range(LAYERS)), 0),),
        worker_kv_bytes_per_block=PAGE * LAYERS,
        enable_kv_cache_events=False,
        extra_config=extra | {"cpu_bytes_to_use": memory * ROW, "secondary_tiers": [second]},
        engine_id=f"kvdrive-test-{os.getpid()}-{name}",
        model=OffloadingModelConfig("model", "float16"),
        cache=OffloadingCacheConfig(16, factor),
        parallel=OffloadingParallelConfig(0, workers, workers, 1, 1, 1, 0, 1, None, True),
    )


def key_of(number: int) -> bytes:
    """vLLM's key of a chunk."""
    return make_offload_key(bytes([number] * 32), 0)


class Engine:
    """What an engine does with its tiers. Chunk `number` has these pages: number, + 50 for the second block."""

    def __init__(self, name: str, memory: int = 16, factor: int = FACTOR, workers: int = 1, **tier) -> None:
        self.tensors = [torch.zeros(BLOCKS, PAGE, dtype=torch.int8) for _ in range(LAYERS)]
        caches = [CanonicalKVCacheTensor(tensor, PAGE) for tensor in self.tensors]
        self.spec = OffloadingSpecFactory.create_spec(config(name, memory, factor, workers, **tier))
        refs = [[CanonicalKVCacheRef(layer, PAGE) for layer in range(LAYERS)]]
        self.manager = self.spec.get_manager()
        self.worker = self.spec.get_worker(CanonicalKVCaches(caches, refs))
        (self.tier,) = self.manager.secondary_tiers
        self.requests = 0

    def request(self) -> ReqContext:
        self.requests += 1
        context = ReqContext(str(self.requests))
        self.manager.on_new_request(context)
        return context

    def settle(self) -> None:
        """Steps of the scheduler until nothing moves."""
        deadline = time.monotonic() + 60
        self.manager.on_schedule_end(NOW)
        while self.manager.has_pending_work():
            assert time.monotonic() < deadline, "a job does not end"
            time.sleep(0.001)
            self.manager.on_schedule_end(NOW)

    def store(self, *numbers: int) -> None:
        """A request computes these chunks, one behind the other: to blocks 2 and 3, 4 and 5 ..."""
        context, keys, blocks = self.request(), [], []
        for place, number in enumerate(numbers):
            keys.append(key_of(number))
            context.set_offload_key_position(keys[-1], place)
            for layer, tensor in enumerate(self.tensors):
                tensor[2 * place + 2], tensor[2 * place + 3] = number + layer, number + layer + 50
        given = self.manager.prepare_store(keys, context)
        for place, key in enumerate(keys):
            if key in given.keys_to_store:
                blocks += [2 * place + 2, 2 * place + 3]
        if blocks:
            self.worker.submit_store(self.requests, GPULoadStoreSpec(blocks, [len(blocks)], [0]), given.store_spec)
            assert [done.success for done in self.worker.get_finished()] == [True]
            self.manager.complete_store(given.keys_to_store, context)
        self.manager.on_request_finished(context)
        self.settle()

    def find(self, *numbers: int) -> list[str]:
        """What the look-ups of a prompt say in the end, up to the first miss. Compares the bytes that are loaded."""
        context, keys = self.request(), [key_of(number) for number in numbers]
        said = self.look(keys, context)
        names = [result.name for result in said]
        for place, result in enumerate(said):
            if result is LookupResult.HIT:
                names[place] += " " + self.manager.get_load_source(keys[place], context).name
                self.load(numbers[place], keys[place], context)
        self.manager.on_request_finished(context)
        self.settle()
        return names

    def look(self, keys: list[bytes], context: ReqContext) -> list[LookupResult]:
        """What the look-ups of a request say in the end, up to the first miss."""
        deadline = time.monotonic() + 20
        while True:
            said = []
            for key in keys:
                said.append(self.manager.lookup(key, context))
                if said[-1] is LookupResult.MISS:
                    break
            if not set(said) & {LookupResult.RETRY, LookupResult.HIT_PENDING}:
                return said
            assert time.monotonic() < deadline, "a look-up does not end"
            self.manager.on_schedule_end(NOW)
            time.sleep(0.001)

    def load(self, number: int, key: bytes, context: ReqContext) -> None:
        """Load the second block of a chunk, as for a request that has the first one: to block 9."""
        for tensor in self.tensors:
            tensor[:] = -1
        source = self.manager.prepare_load([key], context)
        self.worker.submit_load(7, source, GPULoadStoreSpec([9], [1], [1]))
        (done,) = self.worker.get_finished()
        assert (done.job_id, done.success, done.transfer_size) == (7, True, PAGE * LAYERS)
        self.manager.complete_load([key], context)
        for layer, tensor in enumerate(self.tensors):
            assert (tensor[9] == number + layer + 50).all()
            assert (tensor[:9] == -1).all()
            assert (tensor[10:] == -1).all()

    def forget_memory(self) -> None:
        """The first tier is empty, as after a restart."""
        self.manager.primary_tier.reset_cache()

    def pinned(self) -> int:
        """Chunks of the first tier that may not leave."""
        first = self.manager.primary_tier
        return first._num_allocated_chunks - len(first._free_list) - first._num_evictable_cache_chunks

    def close(self) -> None:
        self.manager.shutdown()
        self.worker.shutdown()


def comes_back(path: Path) -> dict:
    engine = Engine("one", path=str(path))
    engine.store(1, 2, 3)
    found = {"memory": engine.find(1, 2, 3, 4)}
    engine.forget_memory()
    found["file"] = engine.find(1, 2, 3, 4)
    other = Engine("two", path=str(path))
    found["other engine"] = other.find(1, 2, 3)
    other.close()
    engine.close()
    later = Engine("three", path=str(path))
    found["restart"] = later.find(3, 2, 1)
    found["written"], found["pinned"] = later.tier.store.stats.written, later.pinned()
    later.close()
    others = [Engine("four", path=str(path), **one) for one in ({"model_fingerprint": "other"}, {"tenant": "other"})]
    found["other weights, other tenant"] = [other.find(1, 2, 3) for other in others]
    for other in others:
        other.close()
    found["left in memory"] = [str(one) for one in Path("/dev/shm").glob(f"vllm_offload_kvdrive-test-{os.getpid()}-*")]
    return found


def damaged(path: Path) -> dict:
    engine = Engine("damaged", path=str(path))
    engine.store(1, 2, 3)
    with path.open("r+b") as file:
        file.seek(SLOT + 3000)
        file.write(b"damage")
    engine.forget_memory()
    found = {"first": engine.find(1, 2, 3), "damaged": engine.tier.store.stats.damaged, "pinned": engine.pinned()}
    engine.store(2)
    engine.forget_memory()
    found["stored again"] = engine.find(1, 2, 3)
    engine.close()
    return found


def full_disk(path: Path) -> dict:
    engine = Engine("full", memory=80, path=str(path))
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (40 * SLOT, limits[1]))
    engine.store(*range(50))
    resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    engine.forget_memory()
    said = engine.find(*range(50))
    found = {"hits": said.count("HIT DISK"), "misses": said.count("MISS"), "pinned": engine.pinned()}
    found["bytes"], found["failed"] = path.stat().st_size, engine.tier.store.stats.failed_writes
    engine.close()
    return found


def small_memory(path: Path) -> dict:
    """Two chunks in memory, four in the file: what the file has is found in turns, and as much of a prompt as fits."""
    engine = Engine("small", memory=2, path=str(path), bytes=4 * SLOT)
    for number in range(6):
        engine.store(number)
    found = {"found": [engine.find(number)[0] for number in (2, 3, 4, 5, 0)], "pinned": engine.pinned()}
    found["evictions"], found["bytes"] = engine.tier.store.stats.evictions, path.stat().st_size
    found["together"] = engine.find(2, 3, 4)
    engine.close()
    return found


def used_when_loaded(path: Path) -> dict:
    """The end of a prompt leaves first, unless a request that continues has loaded it."""
    engine = Engine("used", path=str(path), bytes=4 * SLOT)
    engine.store(0, 1, 2, 3)
    engine.forget_memory()
    context = engine.request()
    found = {"said": [one.name for one in engine.look([key_of(3)], context)]}
    engine.tier._notes.submit(int).result()  # what was noted before is in the index
    engine.store(4)
    found["there"] = [number for number in range(5) if engine.tier.store.holds(engine.tier._key(key_of(number)))]
    engine.manager.on_request_finished(context)
    engine.close()
    return found


def reset(path: Path) -> dict:
    engine = Engine("reset", path=str(path))
    engine.store(1, 2)
    engine.manager.reset_cache()
    found = {"found": engine.find(1, 2), "blocks": engine.tier.store.count()}
    engine.store(1, 2)
    engine.forget_memory()
    found["stored again"] = engine.find(1, 2)
    other = Engine("beside the reset one", path=str(path))
    found["other engine"] = other.find(1, 2)
    other.close()
    engine.close()
    return found


def on_a_drive(path: Path) -> dict:
    with CpuDrive(path, 1, 1 << 26):
        pass
    engine = Engine("drive", drive=str(path))
    engine.store(1, 2, 3)
    engine.close()
    later = Engine("drive again", drive=str(path))
    found = {"restart": later.find(1, 2, 3, 4), "written": later.tier.store.stats.written}
    later.close()
    return found


def refused(path: Path) -> dict:
    found = {}
    for name, tier in {
        "no place": {},
        "unknown option": {"path": str(path), "byte": 1},
        "no weights": {"path": str(path), "model_fingerprint": ""},
        "nine blocks": {"path": str(path), "factor": 9},
        "two workers": {"path": str(path), "workers": 2},
    }.items():
        try:
            Engine("refused", **tier)
        except Exception as error:
            found[name] = str(error)
    return found


def main() -> None:
    folder = Path(sys.argv[1])
    checks = (comes_back, damaged, full_disk, small_memory, used_when_loaded, reset, on_a_drive, refused)
    found = {check.__name__: check(folder / f"{check.__name__}.kv") for check in checks}
    print("found " + json.dumps(found))


if __name__ == "__main__":
    main()
