"""How long a decode step takes with the KV cache in a drive, beside transformers with the cache in memory.

The caches of all contenders are filled with the same random K and V, so that contexts are long without a prefill of
hours; models share one set of weights. All contenders of a round decode one token each, one after the other; ratios are
taken inside a round and their median is reported. llama.cpp, where `llama-bench` is on PATH, follows behind the rounds.
A second table compares prefills with and without K and V on their way to the drive. The floor is a plain read of
weights, K and V at the memory bandwidth measured here.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import statistics
import tempfile
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass, field
from pathlib import Path

import numpy as np
import torch
from rich.console import Console
from rich.progress import Progress
from rich.table import Table
from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedModel
from transformers.cache_utils import Cache, DynamicCache

import llama_cpp
from bench_attention import machine
from decode_contenders import SEED, contenders, sibling
from kvdrive.generation import checkpoints
from kvdrive.generation.checkpoints import Checkpoint, Shape
from kvdrive.plugins.attach import AttentionOptions, attach_to
from kvdrive.targets.group import DriveGroup
from kvdrive.targets.opening import DriveOptions, drive_folder, open_drives

PREFILL_SECONDS = 4.0  # the least time of a round: short prefills are repeated
LLAMA_426M = {
    "vocab_size": 32000,
    "hidden_size": 2048,
    "intermediate_size": 5632,
    "num_hidden_layers": 8,
    "num_attention_heads": 16,
    "num_key_value_heads": 4,
    "max_position_embeddings": 1 << 17,
    "tie_word_embeddings": True,
}


@dataclass
class Row:
    """A contender at one context. `ratio`: its time over that of stock transformers, median over the rounds."""

    model: str
    context: int
    contender: str
    seconds: list[float] = field(default_factory=list)
    ratio: float = math.nan
    of_floor: float = math.nan
    logits_difference: float = math.nan  # the largest from stock transformers, in standard deviations of its logits
    modelled_device_ms: float | None = None
    read_inside_bytes: int | None = None

    @property
    def median(self) -> float:
        return statistics.median(self.seconds)


def measure(
    name: str,
    model: PreTrainedModel,
    shape: Shape,
    context: int,
    rounds: int,
    threads: int,
    folder: Path,
    tick: Callable[[], None],
) -> list[Row]:
    """Decode steps of all contenders, interleaved, `rounds` times after one warm-up that compares their logits."""
    token = torch.tensor([[1]])
    with contenders(model, shape, context, rounds, threads, folder) as running:
        rows = [Row(name, context, contender.name) for contender in running]
        for turn in range(rounds + 1):
            logits = []
            for row, contender in zip(rows, running, strict=True):
                before = contender.drives and (contender.drives.device_ns(), contender.drives.stats())
                start = time.perf_counter()
                logits.append(contender.step(token))
                if turn:
                    row.seconds.append(time.perf_counter() - start)
                if turn and contender.drives and before:
                    _count(row, contender.drives, before)
                tick()
            if turn == 0:
                for row, found in zip(rows, logits, strict=True):
                    row.logits_difference = float((found - logits[0]).abs().max() / logits[0].std())
    for row in rows:
        row.ratio = statistics.median(t / s for t, s in zip(row.seconds, rows[0].seconds, strict=True))
    return rows


def llama_row(rows: list[Row], model: PreTrainedModel, folder: Path, threads: int) -> list[Row]:
    """llama.cpp on the same weights. It runs after the rounds of the others, because it fills its own cache."""
    stock = rows[0]
    seconds = llama_cpp.measure(model, stock.context, len(stock.seconds), threads, folder)
    if not seconds:
        return []
    row = Row(stock.model, stock.context, llama_cpp.NAME, seconds)
    row.ratio = row.median / stock.median
    return [row]


def _count(row: Row, drives: DriveGroup, before: tuple) -> None:
    """Note the last step's modelled device time and the bytes read inside the drive."""
    nanoseconds, stats = before
    now = drives.stats()
    if nanoseconds is not None:
        row.modelled_device_ms = (drives.device_ns() - nanoseconds) / 1e6
    row.read_inside_bytes = now.kv_bytes_read - stats.kv_bytes_read


@dataclass
class Prefill:
    """Time to the first token of a prompt with K and V into the drive (`drive`) and into memory (`stock`), seconds."""

    model: str
    tokens: int
    stock: list[float] = field(default_factory=list)
    drive: list[float] = field(default_factory=list)

    @property
    def overhead(self) -> float:
        """Median over the rounds of drive / stock - 1."""
        return statistics.median(d / s for d, s in zip(self.drive, self.stock, strict=True)) - 1


def measure_prefill(
    name: str,
    model: PreTrainedModel,
    tokens: int,
    rounds: int,
    threads: int,
    folder: Path,
    tick: Callable[[], None],
    target: str = "emulator",
) -> Prefill:
    """Prefills with and without the drive, alternating, after one warm-up. Short prefills run several times a round."""
    generator = torch.Generator().manual_seed(SEED)
    ids = torch.randint(1, model.config.vocab_size, (1, tokens), generator=generator)
    result, own = Prefill(name, tokens), sibling(model)
    options = DriveOptions("fast", "", threads, 8 << 30, folder / "prefill", target=target)
    with open_drives(options) as drives, attach_to(own, drives, AttentionOptions()) as attachment, torch.no_grad():

        def stock() -> float:
            return _prefill(model, ids, DynamicCache())

        def drive() -> float:
            return _prefill(own, ids, attachment.cache())

        pairs = math.ceil(PREFILL_SECONDS / (stock() + drive()))
        for _ in range(rounds):
            for _ in range(pairs):
                result.stock.append(stock())
                result.drive.append(drive())
            tick()
    return result


def _prefill(model: PreTrainedModel, ids: torch.Tensor, cache: Cache) -> float:
    start = time.perf_counter()
    model(ids, past_key_values=cache, use_cache=True, logits_to_keep=1)
    return time.perf_counter() - start


def memory_bandwidth(threads: int) -> float:
    """Bytes per second of a plain read; the best of a few."""
    from concurrent.futures import ThreadPoolExecutor

    data = np.ones(1 << 27, np.uint64)
    parts = np.array_split(data, threads)
    best = math.inf
    with ThreadPoolExecutor(threads) as pool:
        for _ in range(5):
            start = time.perf_counter()
            list(pool.map(np.sum, parts))
            best = min(best, time.perf_counter() - start)
    return data.nbytes / best


def load(name: str) -> tuple[PreTrainedModel, Shape]:
    """The shipped model in float32, or the random one in bfloat16. Times do not depend on what a model was trained for,
    so both have positions for every context.
    """
    if name != "426m":
        checkpoint = checkpoints.load(name)
        checkpoint.model.config.max_position_embeddings = LLAMA_426M["max_position_embeddings"]
        return checkpoint.model, checkpoint.shape
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(SEED)
        torch.set_default_dtype(torch.bfloat16)
        model = LlamaForCausalLM(LlamaConfig(**LLAMA_426M)).eval()
        torch.set_default_dtype(torch.float32)
    return model, Checkpoint(name, Path(), model, None).shape


def show(rows: list[Row], prefills: list[Prefill]) -> list[Table]:
    """Both tables."""
    decode = Table(title="decode step, wall time; device time is modelled")
    for column in (
        "model",
        "context",
        "contender",
        "ms",
        "/ stock",
        "/ floor",
        "device ms",
        "MB read inside",
        "logits",
    ):
        decode.add_column(column, justify="left" if column in ("model", "contender") else "right")
    for row in rows:
        device = "" if row.modelled_device_ms is None else f"{row.modelled_device_ms:.3g}"
        inside = "" if row.read_inside_bytes is None else f"{row.read_inside_bytes / 1e6:.4g}"
        numbers = (f"{row.median * 1e3:.4g}", f"{row.ratio:.3g}", f"{row.of_floor:.3g}", device, inside)
        decode.add_row(row.model, str(row.context), row.contender, *numbers, f"{row.logits_difference:.2g}")
    first = Table(title="time to the first token, wall time")
    for column in ("model", "prompt tokens", "stock s", "kvdrive s", "overhead"):
        first.add_column(column, justify="left" if column == "model" else "right")
    for found in prefills:
        times = (f"{statistics.median(seconds):.3g}" for seconds in (found.stock, found.drive))
        first.add_row(found.model, str(found.tokens), *times, f"{found.overhead:+.1%}")
    return [decode, first]


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--models", nargs="+", default=["426m", "mini"], help="426m: random weights, made here")
    parser.add_argument("--contexts", type=int, nargs="+", default=[4096, 16384, 65536])
    parser.add_argument("--prefill-tokens", type=int, default=2048)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--threads", type=int, default=os.cpu_count())
    parser.add_argument("--json", type=Path, help="write the measurements to this file")
    return parser.parse_args()


def main() -> None:
    """Measure, print the tables and write the file."""
    args, console = arguments(), Console()
    torch.set_num_threads(args.threads)
    bandwidth = memory_bandwidth(args.threads)
    rows: list[Row] = []
    prefills: list[Prefill] = []
    steps = len(args.models) * (5 * len(args.contexts) * (args.rounds + 1) + args.rounds)
    with Progress(console=console, transient=True) as progress, drive_folder(None) as folder:
        task = progress.add_task("decode", total=steps)
        for name in args.models:
            model, shape = load(name)
            weights = sum(tensor.nbytes for tensor in model.parameters())
            for context in args.contexts:
                with tempfile.TemporaryDirectory(dir=folder) as place:
                    tick = lambda: progress.advance(task)  # noqa: E731
                    found = measure(name, model, shape, context, args.rounds, args.threads, Path(place), tick)
                    found += llama_row(found, model, Path(place), args.threads)
                floor = (weights + context * shape.bytes_per_token) / bandwidth
                for row in found:
                    row.of_floor = row.median / floor
                rows += found
            with tempfile.TemporaryDirectory(dir=folder) as place:
                tick = lambda: progress.advance(task)  # noqa: E731
                prefills.append(
                    measure_prefill(name, model, args.prefill_tokens, args.rounds, args.threads, Path(place), tick)
                )
    for table in show(rows, prefills):
        console.print(table)
    if args.json:
        report = {
            "machine": machine(args.threads, bandwidth),
            "decode": [asdict(row) | {"median_seconds": row.median} for row in rows],
            "prefill": [asdict(found) | {"overhead": found.overhead} for found in prefills],
        }
        args.json.parent.mkdir(parents=True, exist_ok=True)
        args.json.write_text(json.dumps(report, indent=2) + "\n")


if __name__ == "__main__":
    main()
