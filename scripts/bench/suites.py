"""The suites and their benchmarks: `bench.SUITE.NAME` is a module with a function `run(setup) -> list[Block]`."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from importlib import import_module

from bench.setup import Setup
from bench.table import Block

SUITES: dict[str, dict[str, str]] = {
    "attention": {
        "engines": "GB/s of K and V consumed by the engines, beside memory bandwidth and torch",
        "formats": "attention over K and V in binary16, 8 and 4 bits, from memory and disk",
        "disk": "attention over K and V on this machine's disk, beside the disk alone",
        "groups": "steps of policy groups beside exact ones, from the disk (ten minutes; needs smollm2)",
        "device": "modelled device time of policy groups for four presets (needs smollm2)",
        "rows": "host time of a layer's queries of a batch: a command for each row beside one for all",
        "predicted": "steps of the cpu target and the emulator, predicted by the performance model and measured",
    },
    "decode": {
        "steps": "decode step with the cache in the drive beside transformers, packed SDPA, llama.cpp (half an hour)",
        "matrices": "matrices in 8 bits (--dtype int8) beside bfloat16 and torch.compile (needs smollm2)",
        "mini_batches": "steps of a batch as one and in two mini-batches, with drives that leave the cores alone",
        "plan": "steps of whole models beside the plans of `kvdrive plan --hardware here`",
    },
    "storage": {
        "drive": "times, append beside fio, commands/s, attention, memory, mount, simulation speed",
        "values": "values per second over NVMe/TCP, beside fio and a folder of files",
        "remote": "decode steps with the drive behind a socket, NVMe/TCP over loopback and shaped network cards",
    },
    "sessions": {
        "turns": "first token of a turn found on the drive beside computing it again, writes, look-ups",
        "resume": "first token behind a stored history: attended to in the drive, loaded by layer, computed again",
        "tiers": "first token of a turn whose session is in memory, on the drive, or computed again",
        "serve": "conversations with and without a store, and alone or in shared steps",
        "drafts": "answers of a server that drafts tokens beside one that does not, with K and V on the disk",
        "overflow": "perplexity after half of a context has left, in several ways (needs smollm2)",
        "identity": "what the check of an attached model costs a call",
        "vllm": "vLLM alone, with the smallest SSD tier, LMCache and kvdrive (needs both environments)",
    },
    "server": {
        "peers": "first token and tokens a second for 1, 4 and 8 users beside llama-server and `transformers serve`",
        "layers": "what HTTP and grammars of JSON schemas take of a decode step",
        "agent": "tokens that are computed in an agent's loop, beside llama-server and `transformers serve`",
    },
    "weights": {
        "experts": "experts on flash beside mmap, memory and llama.cpp, on a random model of 4.5 GiB",
        "dense": "neurons on flash beside mmap and memory, on a random model of 1.8 GiB",
        "stream": "all weights on flash beside memory and accelerate's offload, on a random model of 250 MB",
        "shared": "K and V at 32K and experts on one disk, alone and together",
        "window": "what managing the window of neurons takes, without reads",
        "coactivation": "bytes of neurons that are stored beside those used with them, counted on mini_relu",
    },
    "quality": {
        "evaluated/sweep": "every policy on mini: perplexity, KL and answers against bytes read (kvdrive eval)",
        "evaluated/smollm2": "the same on SmolLM2 at 4,096 and 8,064 tokens: exact, SparF, local",
        "evaluated/smollm2-4096": "every policy on SmolLM2 (an hour)",
        "evaluated/formats": "K and V in fewer bits on mini",
        "evaluated/groups": "policy groups on SmolLM2 at 4,096 tokens (an hour or two)",
        "evaluated/groups-8064": "the same at 8,064 tokens",
        "evaluated/groups-mini": "the same on mini",
        "evaluated/auto": "a ratio for each head of SmolLM2 (kvdrive calibrate, an hour or more), beside fixed ratios",
        "evaluated/auto-mini": "the same on mini",
        "evaluated/limits": "limits of the unread mass beside fixed shares (half an hour)",
        "evaluated/units": "policy groups with units of 32, 64 and 128 tokens over 16, 8 and 4 bits (half an hour)",
        "unread": "what policy groups leaves unread on SmolLM2: estimate and proven bounds beside the true mass",
        "accuracy": "error of the arithmetic against float64, beside torch and a binary32 engine",
    },
    "hardware": {
        "cycles": "cycles of the kernels' RTL on representative jobs, into the manifests (cycles/KERNEL: of one)",
    },
    "llama": {
        "plugin": "llama.cpp with K and V in a drive beside stock (needs smollm2 and the plugin)",
    },
    "gpu": {
        "check": "a GPU as the host: tokens, times and copies beside transformers (six minutes)",
    },
}


def runner(suite: str, name: str) -> Callable[[Setup], list[Block]]:
    """The function of a benchmark; of `MODULE/PART` that of the module with the part."""
    module, _, part = name.partition("/")
    run = import_module(f"bench.{suite}.{module}").run
    return partial(run, part=part) if part else run  # type: ignore[no-any-return]
