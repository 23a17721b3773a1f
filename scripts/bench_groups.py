"""Policy groups beside exact attention: the attention of decode steps, K and V on the disk of the cpu target.

Measured is the attention of all layers, nothing else of the model, in several steps in a row; the first ones fill the
memory for the index and for hot groups and do not count. Every contender reads around the page cache. All contenders
take turns in a round, ratios are taken inside a round, and their median is reported. groups_device_time.py has the
times of the emulated drive.

Two kinds of K and V: made-up ones of a 426M-parameter Llama's shape, whose rows are similar in runs, with queries that
change little from step to step; and those of a model that read source code, piece after piece until there are enough
tokens, with the queries of the last tokens.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, field
from fractions import Fraction
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray
from transformers import AttentionInterface, AttentionMaskInterface
from transformers.cache_utils import DynamicCache
from transformers.integrations.sdpa_attention import sdpa_attention_forward
from transformers.masking_utils import sdpa_mask

from attention_states import IN_RUNS, Shape, made_up
from bench_cpu_target import forget
from kvdrive import abi
from kvdrive.eval import library
from kvdrive.generation import checkpoints
from kvdrive.kernels.native import scale_bits
from kvdrive.kvcache.session import Session
from kvdrive.policies import make_policy
from kvdrive.policies.parameters import EVERYTHING, Parameters
from kvdrive.targets.cpu import CpuDrive
from kvdrive.targets.emulator import Emulator
from kvdrive.targets.opening import drive_folder
from page_blocks import write_blocks

PAGE = Path(__file__).resolve().parent.parent / "docs/groups.md"
OPTIONS = int(abi.AppendOption.APPEND_GROUPS)
NEW = 0.15  # made-up queries: share of a step's query that the step before did not have
HOT = Fraction(1, 5)  # share of K and V that stays in memory, of the contenders with hot groups
_LAST_QUERIES = "last_queries"


@dataclass(frozen=True)
class Data:
    """binary16: K and V of each layer [kv_heads, tokens, d], queries [steps, layers, kv_heads, group, d]."""

    name: str
    shape: Shape
    k: Sequence[NDArray[np.float16]]
    v: Sequence[NDArray[np.float16]]
    q: NDArray[np.float16]


@dataclass
class Row:
    """A contender: a number per round, of all measured steps together."""

    data: str
    tokens: int
    contender: str
    seconds: list[float] = field(default_factory=list)
    file_bytes: list[int] = field(default_factory=list)
    file_reads: list[int] = field(default_factory=list)
    hits: list[float] = field(default_factory=list)
    over_exact: float = 1.0
    bytes_of_exact: float = 1.0


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


def contenders(shape: Shape, ratios: Sequence[Fraction], units: Sequence[int]) -> dict[str, tuple[Parameters, int]]:
    """Parameters and bytes of hot groups by name."""
    found = {"exact": (EVERYTHING, 0)}
    for ratio in ratios:
        for unit in units:
            how = make_policy("groups", ratio, unit=unit).parameters(shape.tokens, shape.head_dim)
            found[f"groups {ratio}, unit {unit}"] = (how, 0)
            found[f"groups {ratio}, unit {unit}, {float(HOT):.0%} hot"] = (how, int(shape.kv_bytes * HOT))
    return found


def measure(folder: Path, data: Data, args: argparse.Namespace, tick: Callable[[], None]) -> list[Row]:
    """Every contender on one kind of data."""
    path, shape = folder / "cpu.kv", data.shape
    with CpuDrive(path, args.threads, 2 * shape.kv_bytes + (1 << 28), format=True) as drive:
        number = store(drive, data)
    wanted = contenders(shape, args.ratios, args.units)
    rows = {name: Row(data.name, shape.tokens, name) for name in wanted}
    for _ in range(args.rounds):
        for name, (how, hot) in wanted.items():
            forget(path)
            with CpuDrive(path, args.threads, hot_bytes=hot) as drive:
                for at in range(args.warm):
                    step(drive, number, data, at, how)
                before, reads, start = drive._drive.flash_stats(), drive.stats(), time.perf_counter()
                for at in range(args.warm, args.warm + args.steps):
                    step(drive, number, data, at, how)
                rows[name].seconds.append((time.perf_counter() - start) / args.steps)
                read = drive.stats()
                rows[name].file_bytes.append((read.file_bytes_read - reads.file_bytes_read) // args.steps)
                rows[name].file_reads.append((read.file_reads - reads.file_reads) // args.steps)
                after = drive._drive.flash_stats()
            hits, misses = (after[kind] - before[kind] for kind in ("hot_hits", "hot_misses"))
            rows[name].hits.append(hits / max(hits + misses, 1))
            tick()
    exact = rows["exact"]
    for row in rows.values():
        row.over_exact = statistics.median(e / s for e, s in zip(exact.seconds, row.seconds, strict=True))
        row.bytes_of_exact = statistics.median(row.file_bytes) / statistics.median(exact.file_bytes)
    return list(rows.values())


def table(rows: Sequence[Row]) -> str:
    """The rows as Markdown."""
    columns = ("K and V", "tokens", "contender", "ms a step", "x exact", "bytes, of exact", "KiB a read", "hits")
    lines = ["| " + " | ".join(columns) + " |", "|---|---:|---|---:|---:|---:|---:|---:|"]
    for row in rows:
        hits = f"{statistics.median(row.hits):.0%}" if "hot" in row.contender else ""
        a_read = statistics.median(row.file_bytes) / max(statistics.median(row.file_reads), 1) / 1024
        lines.append(
            f"| {row.data} | {row.tokens:,} | {row.contender} | {statistics.median(row.seconds) * 1e3:.4g} "
            f"| {row.over_exact:.2f} | {row.bytes_of_exact:.3f} | {a_read:.3g} | {hits} |"
        )
    return "\n".join(lines)


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--tokens", type=int, default=65536)
    parser.add_argument("--layers", type=int, default=8)
    parser.add_argument("--ratios", type=Fraction, nargs="+", default=[Fraction(1, 8), Fraction(1, 16)])
    parser.add_argument("--units", type=int, nargs="+", default=[32, 64, 128], help="tokens that are chosen together")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--warm", type=int, default=3, help="steps before those that count")
    parser.add_argument("--steps", type=int, default=5)
    parser.add_argument("--threads", type=int, default=os.cpu_count())
    parser.add_argument("--model", default="smollm2", help="whose K and V are measured as well; none: no model's")
    parser.add_argument("--quick", action="store_true", help="one round of a short context: does it run?")
    parser.add_argument("--write", action="store_true", help="write the table to docs/groups.md")
    parser.add_argument("--json", type=Path, help="write the measurements to this file")
    args = parser.parse_args()
    if args.quick:
        args.tokens, args.layers, args.rounds, args.warm, args.steps, args.model = 2048, 2, 1, 2, 2, "mini"
    return args


def main() -> None:
    """Measure, print the table and write it."""
    args = arguments()
    torch.set_num_threads(args.threads)
    steps = args.warm + args.steps
    kinds = [lambda: made_up_data(Shape(layers=args.layers, tokens=args.tokens), steps)]
    if args.model != "none":
        kinds.append(lambda: data_of_a_model(args.model, args.tokens, steps))
    rows: list[Row] = []
    with drive_folder(None) as folder:
        for make in kinds:
            with tempfile.TemporaryDirectory(dir=folder) as place:
                rows += measure(Path(place), make(), args, lambda: print(".", end="", flush=True))
    print("\n" + table(rows))
    if args.json:
        args.json.parent.mkdir(parents=True, exist_ok=True)
        args.json.write_text(json.dumps([asdict(row) for row in rows], indent=2) + "\n")
    if args.write:
        note = f"{args.threads} threads, {args.rounds} rounds of {args.steps} steps; memory for the index in each."
        write_blocks(PAGE, {"bench": f"{table(rows)}\n\n{note}"})


if __name__ == "__main__":
    main()
