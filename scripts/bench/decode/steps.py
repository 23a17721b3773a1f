"""How long a decode step takes with the KV cache in a drive, beside transformers with the cache in memory.

The caches of all contenders are filled with the same random K and V, so that contexts are long without a prefill of
hours; models share one set of weights. llama.cpp, where `llama-bench` is on PATH, follows behind the rounds. Prefills
with and without K and V on their way to the drive are compared as well.
"""

from __future__ import annotations

import statistics
import time
from dataclasses import dataclass
from pathlib import Path

import torch
from transformers import PreTrainedModel

from bench import rounds
from bench.decode import llama_cpp
from bench.decode.contenders import Contender, contenders
from bench.decode.prefill import Prefill, measure_prefill
from bench.decode.random_models import load
from bench.machine import memory_bandwidth
from bench.rounds import Counts, Rounds, take_turns
from bench.setup import Setup
from bench.table import Block, Table, milliseconds
from kvdrive.generation.checkpoints import Shape

TOKEN = torch.tensor([[1]])


@dataclass(frozen=True)
class Steps:
    """A model at one context. `apart`: the largest difference of each contender's logits from stock transformers', in
    standard deviations of its logits. `llama`: seconds of llama.cpp's steps, if there are any.
    """

    model: str
    context: int
    rounds: Rounds
    apart: dict[str, float]
    llama: list[float]


def measure(
    model: PreTrainedModel, shape: Shape, context: int, count: int, threads: int, folder: Path
) -> tuple[Rounds, dict[str, float]]:
    """Decode steps of all contenders after one that compares their logits; how far these are apart."""
    with contenders(model, shape, context, count, threads, folder) as running:
        logits = {one.name: one.step(TOKEN) for one in running}
        stock = logits[running[0].name]
        apart = {name: float((found - stock).abs().max() / stock.std()) for name, found in logits.items()}
        found = take_turns([rounds.Contender(one.name, lambda one=one: _step(one)) for one in running], count)
    return found, apart


def _step(contender: Contender) -> Counts:
    """A step, the bytes read inside the drive, and its modelled device time."""
    drives = contender.drives
    before = drives and (drives.device_ns(), drives.stats())
    began = time.perf_counter()
    contender.step(TOKEN)
    counts: Counts = {"seconds": time.perf_counter() - began}
    if drives and before:
        device_ns, stats = before
        counts["read_inside"] = drives.stats().kv_bytes_read - stats.kv_bytes_read
        if device_ns is not None:
            counts["device_ms"] = (drives.device_ns() - device_ns) / 1e6
    return counts


def run(setup: Setup) -> list[Block]:
    """A row for each model and context, a column for each contender."""
    torch.set_num_threads(setup.threads)
    models, contexts = setup.size((("426m", "mini"), (4096, 16384, 65536)), (("mini",), (64,)))
    count = setup.size(5, 1)
    found, prefills = [], []
    for name in models:
        model, shape = load(name)
        for context in contexts:
            with setup.folder() as folder:
                steps, apart = measure(model, shape, context, count, setup.threads, folder)
                llama = [] if setup.quick else llama_cpp.measure(model, context, count, setup.threads, folder)
            found.append(Steps(name, context, steps, apart, llama))
            setup.say(f"{name}, {context:,} tokens")
        with setup.folder() as folder:
            prefills.append(measure_prefill(setup, name, model, folder))
    kept = [vars(one) | {"rounds": one.rounds.rounds} for one in found]
    bandwidth = setup.size(memory_bandwidth, lambda _: 0.0)(setup.threads)
    return [
        Block("steps", [table(found, prefills, bandwidth)], {"steps": kept, "prefill": [vars(one) for one in prefills]})
    ]


def table(found: list[Steps], prefills: list[Prefill], bandwidth: float) -> Table:
    """ms per step, and how many times as fast as stock transformers."""
    names = found[0].rounds.names
    stock = names[0]
    rows = []
    for one in found:
        cells = [milliseconds(one.rounds.median(stock))]
        cells += [
            f"{milliseconds(one.rounds.median(name))} ({one.rounds.faster(name, stock):.2g}x)" for name in names[1:]
        ]
        if any(each.llama for each in found):
            cells.append(llama_cell(one) if one.llama else "-")
        rows.append([f"{one.model}, {one.context:,}", *cells])
    note = (
        f"{bandwidth / 1e9:.3g} GB/s of memory; caches filled with random K and V. Time to the first token with K and "
        f"V on their way to the drive: {', '.join(map(str, prefills))}."
    )
    head = ["model, context", *names]
    if len(rows[0]) > len(head):
        head.append(llama_cpp.NAME)
        note += (
            f" {llama_cpp.NAME}: its own `llama-bench`, where that and the package `gguf` are installed; flash "
            f"attention, matrices in bfloat16 (mini's too), up to {llama_cpp.LONGEST:,} tokens."
        )
    legend = (
        "ms per decode step of one sequence; in brackets: how many times as fast as stock transformers, median of the "
        "rounds' ratios. Below 1x the step takes longer."
    )
    return Table(head, rows, note, legend)


def llama_cell(one: Steps) -> str:
    """llama.cpp's step. It ran after the rounds of the others, because it fills its own cache."""
    median = statistics.median(one.llama)
    return f"{milliseconds(median)} ({one.rounds.median(one.rounds.names[0]) / median:.2g}x)"
