"""Neurons on flash: what each step of LLM in a flash gains, beside mmap of the same checkpoint with the same memory.

A random dense model with ReLU is made and converted. Thresholds make 95 % of its activations zero, as those of
ReLU-trained models are; a random model has 50 %. Predictors learn which neurons are beyond the thresholds. Each
contender computes the same random tokens one by one in a process of its own, whose memory a limit bounds, and reads
bypass the page cache; `mmap` drops the layers that were used longest ago from the page cache. A row is refused if the
kernel has read less than the contender says, or if the page cache holds more.
"""

from __future__ import annotations

import math
import os
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import torch
from rich.console import Console
from transformers import AutoModelForCausalLM

from bench.setup import Setup
from bench.table import Block, Table
from bench.weights.dense_model import QUICK, DenseShape, make_dense, mapped_layers
from bench.weights.mixture import VOCABULARY
from bench.weights.picture import draw
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
from kvdrive import abi
from kvdrive._native import PieceReader, crc32c
from kvdrive.generation.checkpoints import quiet, read_config
from kvdrive.weights.calibrate import calibrate
from kvdrive.weights.cuts import cuts_of, install_cuts, keep_cuts
from kvdrive.weights.file import WeightsFile, aligned
from kvdrive.weights.loading import WeightsOptions
from kvdrive.weights.making import make_file
from kvdrive.weights.options import PREDICTOR
from kvdrive.weights.predictor import keep_predictors, read_predictors
from kvdrive.weights.sparse import LEAST, SparseWeights
from kvdrive.weights.training import Text, Training, make_predictors

ZEROS = "95%"
WITH_GATES = "gates.kvw"


@dataclass(frozen=True)
class Step:
    """One contender: `way` memory, mmap or flash; `share` of up and down projections that memory holds."""

    name: str
    way: str
    share: float = 0.5
    ffn: str = "exact"
    window: int = 1


STEPS = (
    Step("all in memory", "memory"),
    Step("all in memory, threshold", "memory", ffn=f"fatrelu:{ZEROS}"),
    Step("mmap", "mmap"),
    Step("naive: every neuron is read", "flash", 1 / LEAST),
    Step("hybrid: half stays", "flash"),
    Step("+ threshold on the gate", "flash", ffn=f"fatrelu:{ZEROS}"),
    Step("+ window of 5 tokens", "flash", ffn=f"fatrelu:{ZEROS}", window=5),
    Step("predictor, gates on flash", "flash", ffn=PREDICTOR),
    Step("predictor + window of 5 tokens", "flash", ffn=PREDICTOR, window=5),
)


def measure(step: Step, folder: Path, tokens: int, threads: int) -> dict[str, Any]:
    """Decode by one contender; rates, counters and some logits."""
    torch.set_num_threads(threads)
    quiet()
    random = torch.Generator().manual_seed(2)
    ids = torch.randint(0, VOCABULARY, (1, PROMPT + tokens), generator=random)
    model, report, close = _model(step, folder)
    in_layers = time_in(layer.mlp for layer in model.model.layers)
    with torch.no_grad():
        past = model(ids[:, :PROMPT], use_cache=True).past_key_values
        in_layers[0] = 0.0
        before, read, began = report(), kernel_reads(), time.perf_counter()
        for token in range(PROMPT, PROMPT + tokens):
            logits = model(ids[:, token : token + 1], past_key_values=past).logits
        seconds, after = time.perf_counter() - began, report()
        read = kernel_reads() - read
    close()
    seconds -= after.get("checking_seconds", 0) - before.get("checking_seconds", 0)
    return {
        **asdict(step),
        "milliseconds": 1e3 * seconds / tokens,
        "layers_milliseconds": 1e3 * in_layers[0] / tokens,
        **{
            name: (after[f"{name}_ns"] - before[f"{name}_ns"]) / 1e6 / tokens if step.way == "flash" else None
            for name in ("waited", "managing")
        },
        "read_by_kernel_per_token": read / tokens,
        "reading": (after["flash_busy_ns"] - before["flash_busy_ns"]) / 1e6 / tokens if step.way == "flash" else None,
        "flash_bytes": after["flash_bytes"] - before["flash_bytes"] if step.way == "flash" else None,
        "hit_rate": after.get("hit_rate"),
        "neurons_in_memory": after.get("neurons_in_memory"),
        "peak_rss": peak_memory(),
        "logits": logits.float().flatten()[:8].tolist(),
    }


def _model(step: Step, folder: Path) -> tuple[Any, Callable[[], dict[str, Any]], Callable[[], None]]:
    """The model of a contender, a function for its counters, one that closes."""
    file = WeightsFile(folder / (WITH_GATES if step.ffn == PREDICTOR else "w.kvw"))
    predictors = read_predictors(file.path, file.manifest) if step.ffn == PREDICTOR else None
    cuts = None if predictors else cuts_of(step.ffn, file.path, file.manifest)
    if step.way == "flash":
        options = WeightsOptions(memory_of(step, folder), window=step.window)
        sparse = SparseWeights(file, read_config(folder), torch.bfloat16, options, predictors)
        model, report, close = sparse.model, sparse.report, sparse.close
    elif step.way == "mmap":
        model, pages = mapped_layers(file, folder, step.share)
        report, close = pages.counters, file.close
    else:
        model = AutoModelForCausalLM.from_pretrained(folder, dtype="auto").eval()
        report, close = dict, file.close
    if cuts is not None:
        install_cuts(model, cuts)
    return model, report, close


def memory_of(step: Step, folder: Path) -> int:
    """Bytes for all weights: gates, what else is resident, and a share of the up and down projections.

    Also for gates on flash: then more of the neurons fit.
    """
    manifest = WeightsFile(folder / "w.kvw").manifest
    resident = sum(array.bytes_in(torch.bfloat16) for array in manifest.resident)
    return resident + math.ceil(step.share * sum(array.bytes for array in manifest.neurons))


def prepare(shape: DenseShape, folder: Path, console: Console) -> int:
    """Make the checkpoint, its files of weights, thresholds and predictors. Returns the bytes of the first file."""
    make_dense(shape, folder)
    made = make_file(folder, folder / "w.kvw", "auto", console)
    file = WeightsFile(made.path)
    model = AutoModelForCausalLM.from_pretrained(folder, dtype="auto").eval()
    windows = torch.randint(0, VOCABULARY, (2, 128), generator=torch.Generator().manual_seed(3)).numpy()
    names = [array.name for array in file.manifest.neurons]
    shares = [Fraction(int(ZEROS.removesuffix("%")), 100)]
    cuts = calibrate(model, names, shares, windows[:1], windows[1:], lambda: None)
    keep_cuts(made.path, file.manifest, {ZEROS: cuts[0]})
    random = torch.Generator().manual_seed(5)
    text = Text.of([torch.randint(0, VOCABULARY, (256,), generator=random).numpy() for _ in range(8)])
    predictors = make_predictors(
        model, names, text, cuts[0], Training(rank=max(8, shape.hidden // 16), epochs=8), lambda: None
    )
    file.close()
    file = WeightsFile(make_file(folder, folder / WITH_GATES, "auto", console, gates=True).path)
    keep_predictors(file.path, file.manifest, predictors)
    file.close()
    return made.file_bytes


def bundling(path: Path, count: int = 2048) -> float | None:
    """How many times as long as in bundles random rows of up and down projections take one by one.

    Half a million bytes and more are read both ways, in turn. None where half a bundle is no whole page.
    """
    file = WeightsFile(path)
    array = file.manifest.neurons[0]
    count, half = min(count, array.count), array.stride // 2
    if half % abi.PAGE_BYTES:
        return None
    random = np.random.default_rng(6)
    chosen, memory = random.permutation(array.count)[:count], aligned(count * array.stride).reshape(count, -1)
    file.read_rows(array, chosen, memory, np.arange(count))
    offsets = array.offset + chosen * array.stride
    times: dict[int, list[float]] = {array.stride: [], half: []}
    for size in [array.stride, half] * 3:
        rows = memory.reshape(-1, size)
        order = random.permutation(len(rows))
        sums = np.array([[crc32c(rows[row])] for row in order], np.uint32)
        places = (offsets[:, None] + np.arange(0, array.stride, size)).reshape(-1)[order]
        reader = PieceReader(path, size)
        began = time.perf_counter()
        assert reader.wait_all(reader.start_rows(places, rows, order, sums)) == (-1, 0, -1)
        times[size].append(time.perf_counter() - began)
    file.close()
    return min(times[half]) / min(times[array.stride])


SPLIT = ("I/O wait, ms", "memory management, ms", "feed-forward, ms", "rest, ms")  # they add up to the token


def split(row: dict[str, Any]) -> list[float | None]:
    """The parts of a token's time, in ms; what mmap reads is in its feed-forward."""
    layers = row["layers_milliseconds"]
    rest = row["milliseconds"] - layers
    if row["way"] != "flash":
        return [None, None, layers, rest]
    waited, managing = row["waited"], row["managing"]
    return [waited, managing, layers - waited - managing, rest]


def compare(
    shape: DenseShape, folder: Path, tokens: int, threads: int, steps: Sequence[Step] = STEPS
) -> dict[str, Any]:
    """Make the checkpoint and measure all contenders."""
    say = Console(stderr=True)
    size = prepare(shape, folder, say)
    os.sync()
    rows = []
    for step in steps:
        rows.append(alone(__name__, "in_bounds", asdict(step), str(folder), tokens, threads))
        say.print(f"{step.name}: {rows[-1]['milliseconds']:,.0f} ms per token")
        if step.way == "flash":
            require_reads(step.name, folder, rows[-1]["flash_bytes"], rows[-1]["read_by_kernel_per_token"] * tokens)
    return {"shape": asdict(shape), "bytes": size, "tokens": tokens, "threads": threads, "rows": rows} | extras(folder)


def extras(folder: Path) -> dict[str, Any]:
    """How good the predictors are, and what bundles gain."""
    file = WeightsFile(folder / WITH_GATES)
    errors = read_predictors(file.path, file.manifest).errors.values()
    file.close()
    found = {name: sum(getattr(one, name) for one in errors) / len(errors) for name in ("missed", "needless")}
    return found | {"apart": bundling(folder / "w.kvw")}


def in_bounds(one: dict[str, Any], place: str, tokens: int, threads: int) -> dict[str, Any]:
    """`measure` within the step's memory, for a process of its own."""
    step, folder = Step(**one), Path(place)
    if step.way != "memory":
        bound_memory(memory_of(step, folder), folder if step.way == "mmap" else None)
    return measure(step, folder, tokens, threads)


def run(setup: Setup) -> list[Block]:
    """A row for each step; with the experts' last results, the picture of docs/results/storage.md."""
    shape, tokens, steps = setup.size((DenseShape(), 32, STEPS), (QUICK, 2, STEPS[3:5]))
    with setup.folder(4 * shape.bytes) as folder:
        result = compare(shape, folder, tokens, setup.threads, steps)
    if not setup.quick:
        draw([(row["name"], split(row)) for row in result["rows"]], SPLIT)
    return [Block("dense", [table(result)], result)]


def table(result: dict[str, Any]) -> Table:
    """A row for each step."""
    rows, shape = result["rows"], result["shape"]
    naive = next(row["milliseconds"] for row in rows if row["way"] == "flash")
    cells = [
        [
            row["name"],
            f"{row['milliseconds']:,.0f}",
            f"{naive / row['milliseconds']:.1f}x",
            *as_cells(split(row)),
            "-" if row["reading"] is None else f"{row['reading']:,.0f}",
            f"{row['read_by_kernel_per_token'] / 1e6:,.1f}",
            "-" if row["hit_rate"] is None else f"{row['hit_rate']:.0%}",
            f"{row['peak_rss'] / 2**30:.1f} GiB",
        ]
        for row in rows
    ]
    head = ["step", "ms per token", "naive's", *SPLIT, "reads in flight, ms", "MB read per token"]
    note = (
        f"{shape['layers']} layers, hidden {shape['hidden']}, {shape['inner']} neurons, bfloat16, "
        f"{result['bytes'] / 2**30:.1f} GiB, random weights and tokens, one sequence, {result['tokens']} tokens; mmap, "
        "hybrid and later steps hold half of the up and down projections in memory. Predictors miss "
        f"{result['missed']:.0%} of the neurons beyond the thresholds and foresee {result['needless']:.0%} of the "
        "others needlessly: in a random model, little can be foreseen."
    )
    if result["apart"] is not None:
        note += f" Rows of both projections read apart take {result['apart']:.1f} times as long as in bundles."
    return Table([*head, "in memory when used", "memory"], cells, note)
