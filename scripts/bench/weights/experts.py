"""Experts on flash: tokens per second, bytes per token, hits and recall, beside mmap of the same checkpoint.

A random mixture of experts with Mixtral's layers is made, converted, and computed token by token over the same random
tokens by each contender, in a process of its own. A limit of the process bounds its memory, and reads bypass the page
cache; the contender `mmap` lets pages leave the page cache as soon as those of its files exceed the same bound, and
`madvise` tells the kernel besides what it needs. Each row is refused if the kernel has read less than the contender
says, or if the page cache holds more than the bound. Training balances the loads of experts; routers of a random model
choose much the same experts for all tokens, and are balanced for most rows. Where libllama.so is on PATH, llama.cpp
decodes the same weights and tokens, all in memory and mapped within the same bound.
"""

from __future__ import annotations

import json
import os
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass, fields, replace
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import torch
from rich.console import Console
from transformers import AutoModelForCausalLM

from bench.setup import Setup
from bench.table import Block, Table
from bench.weights import llama_mixture
from bench.weights.mixture import QUICK, VOCABULARY, Shape, balance_routers, make_checkpoint, mapped_model
from bench.weights.processes import (
    PROMPT,
    alone,
    as_cells,
    bound_memory,
    kernel_reads,
    peak_memory,
    require_reads,
    time_in,
)
from kvdrive.choices import LookAhead
from kvdrive.generation.checkpoints import quiet, read_config
from kvdrive.weights.file import WeightsFile, aligned
from kvdrive.weights.loading import FlashWeights, WeightsOptions
from kvdrive.weights.making import make_file
from kvdrive.weights.memory import needs
from kvdrive.weights.modules import experts_of

RANDOM, BALANCED = "random", "balanced"  # routers


@dataclass(frozen=True)
class Work:
    """One contender: `way` flash, mmap, madvise, memory or llama; `share` of the memory of all weights.

    `kind`: the format of llama.cpp's matrices. With a share of 1 it has all of them in memory.
    """

    way: str
    folder: str
    share: float = 1.0
    cache: str = "lfu"
    look_ahead: LookAhead = "auto"
    routers: str = BALANCED
    tokens: int = 32
    threads: int = 2
    kind: str = "BF16"

    @property
    def name(self) -> str:
        """For the table."""
        if self.way == "llama":
            how = "all in memory" if self.share == 1 else f"mmap at {self.share:.0%}"
            return f"{self.routers}: llama.cpp, {self.kind}, {how}"
        if self.way == "memory":
            return f"{self.routers}: all in memory"
        how = f", {self.cache}, look-ahead {self.look_ahead}" if self.way == "flash" else ""
        name = "mmap with madvise" if self.way == "madvise" else self.way
        return f"{self.routers}: {name} at {self.share:.0%}{how}"


def measure(work: Work) -> dict[str, Any]:
    """Decode by one contender; rates, counters and a digest of the logits."""
    torch.set_num_threads(work.threads)
    quiet()
    folder = Path(work.folder)
    random = torch.Generator().manual_seed(2)
    ids = torch.randint(0, VOCABULARY, (1, PROMPT + work.tokens), generator=random)
    shape = Shape(**json.loads((folder / "shape.json").read_text()))
    forward, in_experts, counters, close = _forward(work, folder, shape)
    with torch.no_grad():
        forward(ids[0, :PROMPT])
        in_experts[0] = 0.0
        before, read, began = counters(), kernel_reads(), time.perf_counter()
        logits = [forward(token[None]) for token in ids[0, PROMPT:]]
        seconds, after = time.perf_counter() - began, counters()
        read = kernel_reads() - read
    close()
    found = {name: after[name] - before[name] for name in after if not name.startswith("=")}
    seconds -= found.get("checking_seconds", 0)
    np.save(_logits_of(folder, work), np.stack(logits))
    return {
        **asdict(work),
        "name": work.name,
        "tokens_per_second": work.tokens / seconds,
        "seconds": seconds,
        "experts_seconds": None if work.way == "llama" else in_experts[0] - found.get("checking_seconds", 0),
        "read_by_kernel_per_token": read / work.tokens,
        "peak_rss": peak_memory(),
        "logits": logits[-1][:8].tolist(),
        **found,
        **{name[1:]: after[name] for name in after if name.startswith("=")},
    }


def _forward(work: Work, folder: Path, shape: Shape) -> tuple[Any, list[float], Any, Any]:
    """A function that takes the next tokens [n] and gives the logits of the last one, float32 [vocabulary].

    And what `time_in` gives of a model's experts, and the functions of `_model`.
    """
    if work.way == "llama":
        bound = None
        if work.share < 1:
            need = needs(WeightsFile(folder / "w.kvw").manifest, torch.bfloat16, shape.used)
            bound = int(work.share * need.whole)
        context = PROMPT + work.tokens
        llama = llama_mixture.LlamaMixture(gguf_of(folder, work.kind), shape, work.threads, context, bound)
        return lambda ids: [llama.decode(token) for token in ids.tolist()][-1], [0.0], llama.counters, lambda: None
    model, counters, close = _model(work, folder, shape)
    past = None

    def forward(ids: torch.Tensor) -> np.ndarray[Any, Any]:
        nonlocal past
        out = model(ids[None], past_key_values=past, use_cache=True)
        past = out.past_key_values
        last: np.ndarray[Any, Any] = out.logits[0, -1].float().numpy()
        return last

    return forward, time_in(experts_of(model).values()), counters, close


def gguf_of(folder: Path, kind: str) -> Path:
    """llama.cpp's file of a checkpoint."""
    return folder / f"{kind}.gguf"


def _logits_of(folder: Path, work: Work) -> Path:
    return folder / f"logits-{work.routers}-{work.way}-{work.kind}-{work.share}.npy"


def agreement(folder: Path, one: Work, other: Work) -> tuple[float, float]:
    """Share of tokens for which both contenders find the same one likeliest, and the largest difference of logits.

    The difference is in units of the standard deviation of `other`'s logits.
    """
    first, second = (np.load(_logits_of(folder, work)) for work in (one, other))
    same = float((first.argmax(1) == second.argmax(1)).mean())
    return same, float(np.abs(first - second).max() / second.std())


def allowed(row: dict[str, Any], memory: dict[str, Any], disk_bytes_per_second: float) -> float:
    """Tokens per second if the disk read without a pause while experts are computed, and rested meanwhile else.

    `memory`: the row of the same model in memory. Attention and routers come before the reads that they ask for.
    """
    outside = (memory["seconds"] - memory["experts_seconds"]) / memory["tokens"]
    reading = row["flash_bytes"] / row["tokens"] / disk_bytes_per_second
    return float(1 / (outside + max(reading, memory["experts_seconds"] / memory["tokens"])))


def _model(work: Work, folder: Path, shape: Shape) -> tuple[Any, Any, Any]:
    """The model of a contender, a function for its counters ("=" in front: as they are at the end), one that closes."""
    if work.way == "memory":
        model = AutoModelForCausalLM.from_pretrained(folder, dtype="auto").eval()
        return model, dict, lambda: None
    if work.way == "flash":
        options = WeightsOptions(Fraction(work.share), work.cache, work.look_ahead)
        flash = FlashWeights(WeightsFile(folder / "w.kvw"), read_config(folder), torch.bfloat16, options)

        def counters() -> dict[str, Any]:
            report = flash.report()
            names = ("hits", "hits_ahead", "misses", "read_ahead", "waited_ns", "managing_ns")
            names += ("flash_reads", "flash_bytes", "flash_busy_ns")
            last = ("recall", "experts_in_memory", "experts", "around_page_cache", "flash_most_in_flight")
            return {name: report[name] for name in names} | {f"={name}": report[name] for name in last}

        return flash.model, counters, flash.close
    return mapped_model(folder, shape, work.share, advised=work.way == "madvise")


def disk_rate(path: Path, seconds: float = 3.0) -> float:
    """Bytes per second of the disk: reads of 512 KiB one behind the other, 64 in flight, around the page cache."""
    file = WeightsFile(path)
    array = file.manifest.experts[0]
    memories = [aligned(array.stride) for _ in range(8)]
    tickets: list[tuple[int, int]] = []
    done = number = 0
    began = time.perf_counter()
    while time.perf_counter() - began < seconds:
        if len(tickets) == len(memories):
            ticket, index = tickets.pop(0)
            file.wait(ticket, array, index)
            done += array.stride
        index = number % array.count
        tickets.append((file.start(array, index, memories[number % len(memories)]), index))
        number += 1
    rate = done / (time.perf_counter() - began)
    for ticket, index in tickets:
        file.wait(ticket, array, index)
    return rate


def contenders(folder: Path, tokens: int, threads: int, shares: Sequence[float] = (0.25, 0.5)) -> list[Work]:
    """What is compared, the checkpoint as it is made first; balanced with each of `shares`."""
    common = {"folder": str(folder), "tokens": tokens, "threads": threads}
    found = [
        Work("memory", routers=RANDOM, **common),  # type: ignore[arg-type]
        Work("mmap", share=0.25, routers=RANDOM, **common),  # type: ignore[arg-type]
        Work("flash", share=0.25, routers=RANDOM, **common),  # type: ignore[arg-type]
        Work("memory", **common),  # type: ignore[arg-type]
    ]
    for share in shares:
        found += [
            Work("mmap", share=share, **common),  # type: ignore[arg-type]
            Work("madvise", share=share, **common),  # type: ignore[arg-type]
            Work("flash", share=share, look_ahead="off", **common),  # type: ignore[arg-type]
            Work("flash", share=share, look_ahead="on", **common),  # type: ignore[arg-type]
            Work("flash", share=share, **common),  # type: ignore[arg-type]
        ]
    return found


SPLIT = ("I/O wait, ms", "memory management, ms", "experts, ms", "rest, ms")  # of a token; they add up to it


def split(row: dict[str, Any]) -> list[float | None]:
    """The parts of a token's time, in ms. Those of mapped files cannot be told apart; llama.cpp's are not counted."""
    if row["way"] == "llama":
        return [None] * len(SPLIT)
    token, experts = (1e3 * row[name] / row["tokens"] for name in ("seconds", "experts_seconds"))
    if row["way"] != "flash":
        return [None, None, experts, token - experts]
    waited, managing = (row[name] / 1e6 / row["tokens"] for name in ("waited_ns", "managing_ns"))
    return [waited, managing, experts - waited - managing, token - experts]


def llama_note(rows: list[dict[str, Any]]) -> str:
    """How well llama.cpp's logits agree with transformers'; empty where it took no part."""
    found = [row for row in rows if "same_token" in row]
    if not found:
        return ""
    each = (
        f"{row['routers']}, {row['kind']}: {row['same_token']:.0%}, {row['largest_difference']:.2f}" for row in found
    )
    return (
        " llama.cpp beside transformers in bfloat16, the share of tokens with the same likeliest next one and the "
        f"largest difference of logits in their standard deviations: {'; '.join(each)}."
    )


def expert_bytes(row: dict[str, Any]) -> int:
    """What a contender has read by its own count."""
    return int(row.get("flash_bytes", row.get("missing_bytes", 0)))


def compare(shape: Shape, folder: Path, tokens: int, threads: int, shares: Sequence[float]) -> dict[str, Any]:
    """Make the checkpoint, convert it, and measure all contenders."""
    say = Console(stderr=True)
    lacks = llama_mixture.missing()
    if lacks:
        say.print(f"llama.cpp takes no part. It lacks {lacks}")
    make_checkpoint(shape, folder)
    (folder / "shape.json").write_text(json.dumps(asdict(shape)))
    rows: list[dict[str, Any]] = []

    def measured(work: Work) -> dict[str, Any]:
        row = alone(__name__, "in_bounds", asdict(work))
        require_reads(work.name, folder, expert_bytes(row), row["read_by_kernel_per_token"] * tokens)
        rows.append(row)
        say.print(f"{work.name}: {row['tokens_per_second']:.2f} tokens/s")
        return row

    kinds = () if lacks else llama_mixture.KINDS  # then the faster one only
    for routers in (RANDOM, BALANCED):
        if routers == BALANCED:
            alone(__name__, "balance", str(folder))
            (folder / "w.kvw").unlink()
        began = time.perf_counter()
        made = make_file(folder, folder / "w.kvw", "auto", say)
        seconds = time.perf_counter() - began
        os.sync()
        rate = disk_rate(folder / "w.kvw", 3.0 if shape != QUICK else 0.2)
        own = [measured(work) for work in contenders(folder, tokens, threads, shares) if work.routers == routers]
        exact = [row["logits"] for row in own if row["way"] in ("memory", "flash")]
        assert all(logits == exact[0] for logits in exact), "the logits differ"
        if kinds:
            kinds = (measure_llama(kinds, own[0], measured),)
    return {
        "shape": asdict(shape),
        "bytes": made.file_bytes,
        "convert_seconds": seconds,
        "disk_bytes_per_second": rate,
        "rows": rows,
    }


def measure_llama(kinds: Sequence[str], memory: dict[str, Any], measured: Callable[[Work], dict[str, Any]]) -> str:
    """llama.cpp with all of the checkpoint in memory, in each of these formats, and the fastest one mapped.

    `memory`: the row of the same model in transformers. Returns the fastest format. Its file is removed, too.
    """
    of_row = {field.name: memory[field.name] for field in fields(Work)}
    works = [replace(Work(**of_row), way="llama", kind=kind) for kind in kinds]
    found = {}
    for work in works:
        alone(__name__, "write_gguf", asdict(work))
        row = found[work.kind] = measured(work)
        row["same_token"], row["largest_difference"] = agreement(Path(work.folder), work, Work(**of_row))
    fastest = max(works, key=lambda work: found[work.kind]["tokens_per_second"])
    for share in (0.25,) if fastest.routers == RANDOM else (0.25, 0.5):
        measured(replace(fastest, share=share))
    for work in works:
        gguf_of(Path(work.folder), work.kind).unlink()
    return fastest.kind


def in_bounds(one: dict[str, Any]) -> dict[str, Any]:
    """`measure` within the contender's memory, for a process of its own."""
    work = Work(**one)
    if work.way != "memory" and work.share < 1:
        need = needs(WeightsFile(Path(work.folder) / "w.kvw").manifest, torch.bfloat16, 1)
        bound_memory(int(work.share * need.whole), Path(work.folder) if work.way in ("mmap", "madvise") else None)
    return measure(work)


def balance(folder: str) -> dict[str, Any]:
    """The same for `balance_routers`."""
    balance_routers(Path(folder))
    return {}


def write_gguf(one: dict[str, Any]) -> dict[str, Any]:
    """The same for llama.cpp's file."""
    work = Work(**one)
    folder = Path(work.folder)
    shape = Shape(**json.loads((folder / "shape.json").read_text()))
    llama_mixture.write_gguf(shape, folder, gguf_of(folder, work.kind), work.kind)
    return {}


def run(setup: Setup) -> list[Block]:
    """A row for each contender."""
    shape, tokens, shares = setup.size((Shape(), 32, (0.25, 0.5)), (QUICK, 2, ()))
    needed = (3 if llama_mixture.missing() else 5) * 2 * shape.layers * shape.experts * 3 * shape.hidden * shape.inner
    with setup.folder(needed) as folder:
        result = compare(shape, folder, tokens, setup.threads, shares)
    return [Block("experts", [table(result)], result)]


def table(result: dict[str, Any]) -> Table:
    """A row for each contender, and what the disk allows."""
    rows, shape = result["rows"], result["shape"]
    head = ["experts", "tokens/s", "mmap's", "the disk allows", "MB read a token", *SPLIT]
    head += ["in memory when used", "foreseen", "of the disk", "memory"]
    note = (
        f"{shape['layers']} layers, hidden {shape['hidden']}, {shape['used']} of {shape['experts']} experts of "
        f"{shape['inner']}, bfloat16, {result['bytes'] / 2**30:.1f} GiB, random weights and tokens, one sequence, "
        f"{rows[0]['tokens']} tokens. The disk reads {result['disk_bytes_per_second'] / 1e9:.2f} GB/s with 64 reads of "
        "512 KiB in flight; the share of it is that while reads are in flight. The disk allows: reads at that rate "
        "without a pause while experts are computed, and none during the rest of a token. The conversion took "
        f"{result['convert_seconds']:.0f} s." + llama_note(rows)
    )
    return Table(head, list(lines(rows, result["disk_bytes_per_second"])), note)


def lines(rows: list[dict[str, Any]], disk: float) -> Iterator[list[str]]:
    """Rows of the table; `disk`: bytes per second."""
    mapped = {(row["routers"], row["share"]): row["tokens_per_second"] for row in rows if row["way"] == "mmap"}
    whole = {row["routers"]: row for row in rows if row["way"] == "memory"}
    for row in rows:
        uses = row.get("hits", 0) + row.get("misses", 0) + row.get("hits_ahead", 0)
        busy = row.get("flash_busy_ns")
        rate = row["flash_bytes"] / busy * 1e9 / disk if busy else None
        other = mapped.get((row["routers"], row["share"]))
        ratio = row["tokens_per_second"] / other if other and row["way"] != "memory" else None
        yield [
            row["name"],
            f"{row['tokens_per_second']:.2f}",
            "-" if ratio is None else f"{ratio:.1f}x",
            "-" if busy is None else f"{allowed(row, whole[row['routers']], disk):.1f}",
            f"{row['read_by_kernel_per_token'] / 1e6:,.0f}",
            *as_cells(split(row)),
            f"{row['hits'] / uses:.0%}" if uses else "-",
            f"{row['recall']:.0%}" if row.get("recall") is not None else "-",
            f"{rate:.0%}" if rate is not None else "-",
            f"{row['peak_rss'] / 2**30:.1f} GiB",
        ]
