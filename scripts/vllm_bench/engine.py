"""One engine with one configuration and one workload, in the environment of vLLM; figures as JSON on a file.

python scripts/vllm_bench/engine.py JOB.json     (see bench/sessions/vllm.py)
"""

from __future__ import annotations

import json
import os
import random
import sys
import time
from pathlib import Path

os.environ.update(
    HF_HUB_OFFLINE="1",
    OMP_NUM_THREADS=os.environ.get("OMP_NUM_THREADS", "2"),
    VLLM_CPU_KVCACHE_SPACE="1",
    VLLM_CPU_OMP_THREADS_BIND="nobind",
    VLLM_ENABLE_V1_MULTIPROCESSING="0",
    VLLM_LOGGING_LEVEL=os.environ.get("VLLM_LOGGING_LEVEL", "ERROR"),
    VLLM_NO_USAGE_STATS="1",
)
sys.path.insert(0, str(Path(__file__).parent))

from vllm import LLM, SamplingParams, TokensPrompt
from vllm.platforms import current_platform

BLOCK = 32


def tiering() -> dict:
    """vLLM's own tiers on a GPU, whose worker copies with its streams; ours on the processor."""
    if current_platform.is_cuda():
        return {"spec_name": "TieringOffloadingSpec", "spec_module_path": "vllm.v1.kv_offload.tiering.spec"}
    return {"spec_name": "ProcessorTieringSpec", "spec_module_path": "kvdrive.plugins.vllm.processor"}


def connector(job: dict) -> dict | None:
    """vLLM's kv_transfer_config of a configuration."""
    config, folder = job["config"], job["folder"]
    ours = {"spec_name": "DriveOffloadingSpec", "spec_module_path": "kvdrive.plugins.vllm.spec"}
    ours |= {"bytes": job["bytes"], "blocks_per_chunk": job["factor"]}
    tiers = tiering()
    tiers |= {"cpu_bytes_to_use": job["memory"], "blocks_per_chunk": job["factor"]}
    second = {"type": "DriveTier", "module_path": "kvdrive.plugins.vllm.tier", "bytes": job["bytes"]}
    if config == "lmcache":
        server = {"lmcache.mp.host": "tcp://127.0.0.1", "lmcache.mp.port": job["port"]}
        return {"kv_connector": "LMCacheMPConnector", "kv_role": "kv_both", "kv_connector_extra_config": server}
    extra = {
        "none": None,
        "naive": {"spec_name": "NaiveSpec", "spec_module_path": "naive_spec", "path": folder},
        "direct": ours | {"path": f"{folder}/direct.kv", "direct": True, "buffer_bytes": 1 << 28},
        "ssd": ours | {"path": f"{folder}/blocks.kv"},
        "memory": ours | {"path": f"{folder}/blocks.kv"},
        "drive": ours | {"drive": f"{folder}/drive.kv"},
        "cpu": tiers | {"cpu_bytes_to_use": 8 * job["memory"]},  # room for all that the workloads store
        "tier": tiers | {"secondary_tiers": [second | {"path": f"{folder}/blocks.kv"}]},
    }[config]
    if extra is None:
        return None
    extra |= {"offload_prompt_only": False}
    return {"kv_connector": "OffloadingConnector", "kv_role": "kv_both", "kv_connector_extra_config": extra}


def forget_pages(folder: str) -> None:
    """Drop the files of `folder` from the page cache."""
    os.sync()
    for path in Path(folder).rglob("*"):
        if path.is_file():
            with path.open("rb") as file:
                os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)


def disk_bytes(job: dict) -> tuple[int, int]:
    """Bytes that the engine, and the cache server if there is one, have read from and written to disks."""
    read = written = 0
    for process in ("self", *([job["server"]] if "server" in job else [])):
        fields = dict(line.split(": ") for line in Path(f"/proc/{process}/io").read_text().splitlines())
        read, written = read + int(fields["read_bytes"]), written + int(fields["write_bytes"])
    return read, written


def leave_out_llvmlite() -> None:
    """vLLM asks every attribute of every module for its `__dict__`; one of llvmlite's answers with a C function."""
    from vllm.triton_utils import dispatcher

    rebind = dispatcher._rebind_kernels

    def rebind_others(overrides: list) -> None:
        hidden = {name: sys.modules.pop(name) for name in list(sys.modules) if name.startswith("llvmlite")}
        try:
            rebind(overrides)
        finally:
            sys.modules.update(hidden)

    dispatcher._rebind_kernels = rebind_others


class Bench:
    """An engine, and what its requests took."""

    def __init__(self, job: dict) -> None:
        self.job = job
        if job["config"] == "lmcache":
            leave_out_llvmlite()
        self.llm = LLM(
            job["model"], dtype=job["dtype"], max_model_len=job["length"], enforce_eager=True, max_num_seqs=4,
            block_size=BLOCK, num_gpu_blocks_override=job["blocks"], kv_transfer_config=connector(job),
            skip_tokenizer_init=True, seed=1, hf_overrides=job.get("overrides", {}),
        )  # fmt: skip
        self.engine = self.llm.llm_engine
        self.requests = 0
        self.samples: list[dict] = []
        self.began = 0.0

    def play(self, prompts: list[list[int]], tokens: int) -> list[dict]:
        """Submit prompts at once; the answers, with the seconds until the first token and the last one."""
        params = SamplingParams(temperature=0, max_tokens=tokens, ignore_eos=True, detokenize=False)
        began = time.perf_counter()
        names = []
        for prompt in prompts:
            names.append(str(self.requests))
            self.requests += 1
            self.engine.add_request(names[-1], TokensPrompt(prompt_token_ids=prompt), params)
        answers: dict[str, dict] = {}
        remaining, generated = len(prompts), 0
        read, written = disk_bytes(self.job)
        while self.engine.has_unfinished_requests():
            outputs = self.engine.step()
            if not outputs:
                time.sleep(0.001)  # as vLLM's own engine process does while it only waits for transfers
            now = time.perf_counter() - began
            for output in outputs:
                answer = answers.setdefault(output.request_id, {"first": now, "tokens": []})
                answer["tokens"] = list(output.outputs[0].token_ids)
                if output.finished:
                    answer |= {"last": now, "cached": output.num_cached_tokens, "prompt": len(output.prompt_token_ids)}
                    remaining -= 1
            if outputs:
                generated = sum(len(one["tokens"]) for one in answers.values())
                now_read, now_written = disk_bytes(self.job)
                self.samples.append(
                    {"seconds": now, "remaining": remaining, "generated": generated, "read": now_read - read,
                     "written": now_written - written}
                )  # fmt: skip
        return [answers[name] for name in names]

    def settle(self) -> None:
        """Let stores end, then drop their files from the page cache."""
        for _ in range(200):
            self.engine.step()
            time.sleep(0.005)
        forget_pages(self.job["folder"])


def prompt(seed: int, tokens: int) -> list[int]:
    numbers = random.Random(seed)
    return [numbers.randrange(3, 1000) for _ in range(tokens)]


def rounds(bench: Bench) -> dict:
    """The same prompts, one after the other, in one or two rounds. The job's `order`: their numbers."""
    job = bench.job
    order = job.get("order", range(job["prompts"]))
    prompts, found = [prompt(number, job["tokens"]) for number in order], []
    for _ in range(job["rounds"]):
        bench.settle()
        began, (read, _) = time.perf_counter(), disk_bytes(job)
        answers = [bench.play([one], job["answer"])[0] for one in prompts]
        found.append(
            {
                "seconds": time.perf_counter() - began,
                "read": disk_bytes(job)[0] - read,
                "first": [one["first"] for one in answers],
                "cached": [one["cached"] for one in answers],
                "tokens": [one["tokens"] for one in answers],
            }
        )
    return {"rounds": found}


def turns(bench: Bench) -> dict:
    """Conversations that take turns: each turn adds a question and an answer to the history."""
    job = bench.job
    histories = [prompt(100 + number, job["question"]) for number in range(job["prompts"])]
    bench.settle()
    began = time.perf_counter()
    first, last, cached, given, tokens = [], [], [], [], []
    for turn in range(job["turns"]):
        for number, history in enumerate(histories):
            if turn:
                history += prompt(1000 * turn + number, job["question"])
            (answer,) = bench.play([history], job["answer"])
            first.append(answer["first"])
            last.append(answer["last"])
            cached.append(answer["cached"])
            given.append(len(history))
            tokens.append(answer["tokens"])
            history += answer["tokens"]
    return {
        "seconds": time.perf_counter() - began,
        "first": first,
        "last": last,
        "cached": cached,
        "prompt": given,
        "tokens": tokens,
    }


def burst(bench: Bench) -> dict:
    """Questions about a few documents, all at once, after each document was read once."""
    job = bench.job
    documents = [prompt(number, job["tokens"]) for number in range(job["prompts"])]
    for document in documents:
        bench.play([document], 1)
    bench.settle()
    bench.samples.clear()
    asked = [documents[number % len(documents)] + prompt(5000 + number, 24) for number in range(job["questions"])]
    began = time.perf_counter()
    answers = bench.play(asked, job["answer"])
    return {
        "seconds": time.perf_counter() - began,
        "samples": bench.samples,
        "cached": [one["cached"] for one in answers],
        "prompt": [one["prompt"] for one in answers],
        "first": [one["first"] for one in answers],
        "tokens": [one["tokens"] for one in answers],
    }


def main() -> None:
    job = json.loads(Path(sys.argv[1]).read_text())
    bench = Bench(job)
    found = {"rounds": rounds, "turns": turns, "burst": burst}[job["workload"]](bench)
    if job["config"] in ("ssd", "direct", "memory", "drive"):
        from kvdrive.plugins.vllm import spec

        found["store"] = vars(next(iter(spec._engines.values())).store.stats)
    if job["config"] == "tier":
        manager = bench.engine.engine_core.engine_core.scheduler.connector.connector_scheduler.manager
        found["store"] = vars(manager.secondary_tiers[0].store.stats)
    Path(job["out"]).write_text(json.dumps(found))
    bench.engine.engine_core.shutdown()


if __name__ == "__main__":
    main()
