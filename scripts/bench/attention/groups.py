"""Policy groups beside exact attention: the attention of decode steps, K and V on the disk of the cpu target.

Measured is the attention of all layers, nothing else of the model, in several steps in a row; the first ones fill the
memory for the index and for hot groups and do not count. Every contender reads around the page cache. device.py has the
times of the emulated drive.

Two kinds of K and V: made-up ones of a 426M-parameter Llama's shape, whose rows are similar in runs, with queries that
change little from step to step; and those of a model that read source code, piece after piece until there are enough
tokens, with the queries of the last tokens.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from fractions import Fraction
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray
from transformers import AttentionInterface, AttentionMaskInterface
from transformers.cache_utils import DynamicCache
from transformers.integrations.sdpa_attention import sdpa_attention_forward
from transformers.masking_utils import sdpa_mask

from bench.attention.states import IN_RUNS, Shape, made_up
from bench.machine import forget
from bench.rounds import Contender, Counts, Rounds, take_turns
from bench.setup import Setup
from bench.table import Block, Table
from kvdrive import abi
from kvdrive.eval import library
from kvdrive.generation import checkpoints
from kvdrive.kernels.native import scale_bits
from kvdrive.kvcache.session import Session
from kvdrive.policies import make_policy
from kvdrive.policies.parameters import EVERYTHING, Parameters
from kvdrive.targets.cpu import CpuDrive
from kvdrive.targets.emulator import Emulator

OPTIONS = int(abi.AppendOption.APPEND_GROUPS)
NEW = 0.15  # made-up queries: share of a step's query that the step before did not have
HOT = Fraction(1, 5)  # share of K and V that stays in memory, of the contenders with hot groups
RATIOS = (Fraction(1, 8), Fraction(1, 16))
UNITS = (32, 64, 128)  # tokens that are chosen together
EXACT = "exact"
_LAST_QUERIES = "last_queries"


@dataclass(frozen=True)
class Data:
    """binary16: K and V of each layer [kv_heads, tokens, d], queries [steps, layers, kv_heads, group, d]."""

    name: str
    shape: Shape
    k: Sequence[NDArray[np.float16]]
    v: Sequence[NDArray[np.float16]]
    q: NDArray[np.float16]


def made_up_data(shape: Shape, steps: int) -> Data:
    """Rows that are similar in runs, and a random walk of queries."""
    states, rng = made_up(shape, IN_RUNS), np.random.default_rng(5)
    q = [states.q.astype(np.float32)]
    while len(q) < steps:
        new = rng.standard_normal(states.q.shape, np.float32)
        q.append(np.sqrt(1 - NEW**2) * q[-1] + NEW * new)
    return Data("made up, in runs", shape, states.k, states.v, np.stack(q).astype(np.float16))


def data_of_a_model(name: str, tokens: int, steps: int) -> Data:
    """K and V of consecutive pieces of source code, each as long as the model's context, until there are `tokens`."""
    checkpoint = checkpoints.load(name)
    ids = checkpoint.encode("\n".join(module.text for module in library.held_out_modules()))
    of, queries = checkpoint.shape, {}

    def attend(module: torch.nn.Module, query: torch.Tensor, *rest: torch.Tensor, **options: object) -> object:
        queries[module.layer_idx] = query[0, :, -steps:]
        return sdpa_attention_forward(module, query, *rest, **options)

    AttentionInterface.register(_LAST_QUERIES, attend)
    AttentionMaskInterface.register(_LAST_QUERIES, sdpa_mask)
    checkpoint.model.set_attn_implementation(_LAST_QUERIES)
    k: list[list[NDArray[np.float16]]] = [[] for _ in range(of.layers)]
    v: list[list[NDArray[np.float16]]] = [[] for _ in range(of.layers)]
    for first in range(0, tokens, checkpoint.context):
        piece = torch.tensor([ids[first % len(ids) :][: min(checkpoint.context, tokens - first)]])
        cache = DynamicCache()
        with torch.no_grad():
            checkpoint.model(piece, past_key_values=cache, use_cache=True, logits_to_keep=1)
        for layer, states in enumerate(cache.layers):
            k[layer].append(states.keys[0].to(torch.float16).numpy())
            v[layer].append(states.values[0].to(torch.float16).numpy())
    shape = Shape(of.layers, of.kv_heads, of.query_heads // of.kv_heads, of.head_dim, sum(x.shape[1] for x in k[0]))
    q = torch.stack([queries[layer] for layer in range(of.layers)]).to(torch.float16).numpy()
    steps_first = q.reshape(shape.layers, shape.kv_heads, shape.group, -1, shape.head_dim).transpose(3, 0, 1, 2, 4)
    joined = [[np.concatenate(parts, axis=1) for parts in layers] for layers in (k, v)]
    return Data(f"{name} reads source code", shape, *joined, np.ascontiguousarray(steps_first))


def store(drive: CpuDrive | Emulator, data: Data) -> int:
    """A session with the data. Returns its number."""
    session = Session(drive, OPTIONS)
    for layer in range(data.shape.layers):
        session.append(layer, abi.KvKind.KEYS, 0, data.k[layer])
        session.append(layer, abi.KvKind.VALUES, 0, data.v[layer])
    return session.number


def step(drive: CpuDrive | Emulator, number: int, data: Data, at: int, how: Parameters) -> None:
    """The attention of one decode step."""
    session = Session.existing(drive, number, OPTIONS)
    for layer in range(data.shape.layers):
        session.attend(layer, data.q[at, layer], data.shape.tokens, scale_bits(None, data.shape.head_dim), how)


def choices(shape: Shape) -> Iterator[tuple[str, Parameters]]:
    """Exact attention and groups, by ratio and unit."""
    yield EXACT, EVERYTHING
    for ratio in RATIOS:
        for unit in UNITS:
            how = make_policy("groups", ratio, unit=unit).parameters(shape.tokens, shape.head_dim)
            yield f"groups {ratio}, unit {unit}", how


@dataclass(frozen=True)
class Steps:
    """`count` steps of a file with one session count, after `warm` others."""

    path: Path
    number: int
    data: Data
    warm: int
    count: int
    threads: int

    def run(self, how: Parameters, hot_bytes: int) -> Counts:
        """Means over the steps of a drive that was just opened."""
        forget(self.path)
        with CpuDrive(self.path, self.threads, hot_bytes=hot_bytes) as drive:
            for at in range(self.warm):
                step(drive, self.number, self.data, at, how)
            before, reads, began = drive._drive.flash_stats(), drive.stats(), time.perf_counter()
            for at in range(self.warm, self.warm + self.count):
                step(drive, self.number, self.data, at, how)
            took = time.perf_counter() - began
            read, after = drive.stats(), drive._drive.flash_stats()
        hits, misses = (after[kind] - before[kind] for kind in ("hot_hits", "hot_misses"))
        return {
            "seconds": took / self.count,
            "bytes": (read.file_bytes_read - reads.file_bytes_read) // self.count,
            "reads": (read.file_reads - reads.file_reads) // self.count,
            "hits": hits / max(hits + misses, 1),
        }


def measure(folder: Path, data: Data, warm: int, count: int, rounds: int, threads: int) -> Rounds:
    """Every contender on one kind of data."""
    path, shape = folder / "cpu.kv", data.shape
    with CpuDrive(path, threads, 2 * shape.kv_bytes + (1 << 28), format=True) as drive:
        steps = Steps(path, store(drive, data), data, warm, count, threads)
    found = []
    for name, how in choices(shape):
        found.append(Contender(name, lambda how=how: steps.run(how, 0)))
        if name != EXACT:
            hot = int(shape.kv_bytes * HOT)
            found.append(Contender(f"{name}, {float(HOT):.0%} hot", lambda how=how, hot=hot: steps.run(how, hot)))
    return take_turns(found, rounds)


def run(setup: Setup) -> list[Block]:
    """A row for each kind of data and contender, and what README.md says of a model's K and V."""
    torch.set_num_threads(setup.threads)
    tokens, layers, model = setup.size((65536, 8, "smollm2"), (512, 1, "mini"))
    rounds, warm, count = setup.size((3, 3, 5), (1, 1, 1))
    kinds: tuple[Callable[[], Data], ...] = (
        lambda: made_up_data(Shape(layers=layers, tokens=tokens), warm + count),
        lambda: data_of_a_model(model, tokens, warm + count),
    )
    rows, kept = [], {}
    for make in kinds:
        data = make()
        with setup.folder() as folder:
            found = measure(folder, data, warm, count, rounds, setup.threads)
        rows += lines(data, found)
        kept[data.name] = found.rounds
        setup.say(data.name)
    head = [
        "K and V",
        "tokens",
        "contender",
        "ms a step",
        "times as fast as exact",
        "bytes, of exact",
        "KiB a read",
        "hits",
    ]
    note = f"{rounds} rounds of {count} steps; memory for the index in each."
    table = Table(head, rows, note, align="lrlrrrrr")
    return [Block("groups", [table], kept), Block("groups-gain", [Table(note=gain(model, tokens, found))])]


def lines(data: Data, found: Rounds) -> Iterator[list[str]]:
    """Rows of the table."""
    for name in found.names:
        a_read = found.median(name, "bytes") / max(found.median(name, "reads"), 1) / 1024
        share = found.median(name, "bytes") / found.median(EXACT, "bytes")
        numbers = (
            f"{found.median(name) * 1e3:.4g}",
            f"{found.faster(name, EXACT):.2f}",
            f"{share:.3f}",
            f"{a_read:.3g}",
        )
        hits = f"{found.median(name, 'hits'):.0%}" if "hot" in name else ""
        yield [data.name, f"{data.shape.tokens:,}", name, *numbers, hits]


def gain(model: str, tokens: int, found: Rounds) -> str:
    """How fast steps of policy groups at 1/8 on a model's K and V are beside exact ones, in one sentence."""
    eighth = {name: f"{found.faster(name, EXACT):.1f}" for name in found.names if name.startswith("groups 1/8")}
    cold = {name.split("unit ")[1]: ratio for name, ratio in eighth.items() if "hot" not in name}
    hot = [ratio for name, ratio in eighth.items() if "hot" in name]
    (unit, ratio), *larger = cold.items()
    others = ", ".join(f"{unit}: {ratio}" for unit, ratio in larger)
    return (
        f"From a disk (`make bench SUITE=attention`, {tokens:,} tokens of K and V of {model}), an attention step of "
        f"`groups` at 1/8 is {ratio} times as fast as an exact one with units of {unit} tokens ({others}); with a "
        f"fifth of K and V in memory (`--hot`) {hot[0]} times ({', '.join(hot[1:])})."
    )
