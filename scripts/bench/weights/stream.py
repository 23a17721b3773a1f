"""All weights on flash: what a step takes of the disk's rate, beside the same model in memory and accelerate's offload.

A random model of Llama's family in float32 is saved as transformers does. Every contender computes the same tokens in
a process of its own: a prompt, then steps of one token for each row. kvdrive's reads bypass the page cache. In each of
its rounds the disk is measured first, by the same reader of the same file while nothing computes, then come the steps;
a round's share is the rate of its steps beside that of its disk. accelerate reads through the page cache, which drops
the checkpoint before each of its steps.
"""

from __future__ import annotations

import os
import statistics
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import torch
from transformers import AutoModelForCausalLM, LlamaConfig, LlamaForCausalLM

from bench.setup import Setup
from bench.table import Block, Table, milliseconds
from bench.weights.mixture import config_fields
from bench.weights.processes import PROMPT, Result, alone, kernel_reads, peak_memory, require_reads
from kvdrive._native import PieceReader
from kvdrive.generation.checkpoints import quiet, read_config
from kvdrive.weights.bundles import PAGE, PIECE_BYTES
from kvdrive.weights.file import DEPTH, aligned
from kvdrive.weights.stream.model import StreamedWeights


@dataclass(frozen=True)
class Shape:
    """A model of Llama's family in float32, and what is computed with it."""

    layers: int = 8
    hidden: int = 1024
    inner: int = 4096
    rounds: int = 4
    steps: int = 2  # in a round

    def config(self) -> LlamaConfig:
        """As transformers has it."""
        return LlamaConfig(**config_fields(self.layers, self.hidden, self.inner) | {"dtype": "float32"})


QUICK = Shape(layers=3, hidden=128, inner=256, rounds=1, steps=2)
MEMORY, LEAST, HALF, ACCELERATE = "all in memory", "least memory", "half in memory", "accelerate, from disk"


def make(shape: Shape, folder: Path) -> int:
    """Save a random model; returns the bytes of its files."""
    torch.manual_seed(1)
    LlamaForCausalLM(shape.config()).save_pretrained(folder)
    return sum(path.stat().st_size for path in folder.glob("*.safetensors"))


def measure(way: str, fields: dict[str, int], folder: str, rows: int, threads: int) -> Result:
    """Steps of one contender: seconds of each by round, the disk's rate in each round, and some logits."""
    torch.set_num_threads(threads)
    quiet()
    shape, here = Shape(**fields), Path(folder)
    model, weights, before = _model(way, here)
    ids = torch.randint(0, model.config.vocab_size, (rows, PROMPT), generator=torch.Generator().manual_seed(2))
    rounds = []
    with torch.no_grad():
        output = model(ids, use_cache=True)
        read = kernel_reads()
        for _ in range(shape.rounds):
            found: dict[str, Any] = {"disk": disk_rate(here) if weights else None, "seconds": []}
            counted = weights.file.bytes if weights else 0
            if weights:
                read = kernel_reads()
            for _ in range(shape.steps):
                before()
                began = time.perf_counter()
                output = model(output.logits[:, -1:].argmax(-1), past_key_values=output.past_key_values)
                found["seconds"].append(time.perf_counter() - began)
            if weights:
                found["bytes"] = weights.file.bytes - counted
                require_reads(way, here, found["bytes"], kernel_reads() - read)
            rounds.append(found)
    report = weights.report() if weights else {}
    if weights:
        weights.close()
    return {
        "way": way,
        "rows": rows,
        "rounds": rounds,
        "report": report,
        "peak_rss": peak_memory(),
        "logits": output.logits[:, -1].flatten()[:8].tolist(),
    }


def _model(way: str, folder: Path) -> tuple[Any, StreamedWeights | None, Callable[[], None]]:
    """The model of a contender, kvdrive's weights, and what comes before each step."""
    if way == ACCELERATE:
        return _offloaded(folder), None, lambda: _drop(folder)
    if way == MEMORY:
        return AutoModelForCausalLM.from_pretrained(folder, dtype="auto").eval(), None, lambda: None
    weights = StreamedWeights(folder, read_config(folder), None, Fraction(1, 2) if way == HALF else _least(folder))
    return weights.model, weights, lambda: None


def _least(folder: Path) -> int:
    """The least memory."""
    weights = StreamedWeights(folder, read_config(folder), None, Fraction(1, 2))
    weights.close()
    return weights.division.least


def _offloaded(folder: Path) -> Any:
    """The model with all of its parameters where accelerate's disk offload has them."""
    from accelerate import disk_offload

    model = AutoModelForCausalLM.from_pretrained(folder, dtype="auto").eval()
    disk_offload(model, str(folder / "offloaded"), execution_device=torch.device("cpu"))
    return model


def _drop(folder: Path) -> None:
    """Let the page cache forget the files of a folder."""
    for path in folder.rglob("*"):
        if path.is_file():
            descriptor = os.open(path, os.O_RDONLY)
            os.fsync(descriptor)
            os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_DONTNEED)
            os.close(descriptor)


def disk_rate(folder: Path) -> float:
    """Bytes per second of the disk with DEPTH reads of PIECE_BYTES in flight, while nothing computes."""
    (path,) = folder.glob("*.safetensors")
    size = min(path.stat().st_size // PAGE * PAGE, 512 << 20)
    memory, reader = aligned(size), PieceReader(path, PIECE_BYTES, DEPTH)
    memory.fill(1)  # no page is touched for the first time while the time counts
    began = time.perf_counter()
    error, _ = reader.wait(reader.start(0, memory, np.zeros(-(-size // PIECE_BYTES), np.uint32)))
    seconds = time.perf_counter() - began
    assert not error
    return size / seconds


def compare(shape: Shape, folder: Path, threads: int, batches: tuple[int, ...]) -> dict[str, Any]:
    """Make the model and measure all contenders."""
    size = make(shape, folder)
    os.sync()
    found = []
    for rows in batches:
        for way in (MEMORY, LEAST, HALF, ACCELERATE):
            found.append(alone(__name__, "measure", way, asdict(shape), str(folder), rows, threads))
        logits = {tuple(one["logits"]) for one in found if one["rows"] == rows}
        if len(logits) > 1:
            raise RuntimeError(f"contenders have other logits: {logits}")
    return {"shape": asdict(shape), "bytes": size, "threads": threads, "measured": found}


def share_of_disk(result: Result) -> float | None:
    """The rate of a contender's steps beside the disk's: the median of its rounds."""
    rounds = [one for one in result["rounds"] if one["disk"]]
    shares = [one["bytes"] / sum(one["seconds"]) / one["disk"] for one in rounds]
    return statistics.median(shares) if shares else None


def table(found: dict[str, Any]) -> Table:
    """A row for each contender and batch."""
    rows = []
    for one in found["measured"]:
        seconds = statistics.median(step for part in one["rounds"] for step in part["seconds"])
        share, report = share_of_disk(one), one["report"]
        kept = f"{report['memory_bytes'] / 2**20:,.0f}" if report else "-"
        read = f"{report['bytes_per_call'] / 1e6:,.0f}" if report else "-"
        cells = (milliseconds(seconds), kept, read, "-" if share is None else f"{share:.0%}")
        rows.append([one["way"], str(one["rows"]), *cells])
    disk = statistics.median(part["disk"] for one in found["measured"] for part in one["rounds"] if part["disk"])
    shape = found["shape"]
    note = (
        f"{shape['layers']} layers, hidden {shape['hidden']:,}, float32: {found['bytes'] / 1e6:,.0f} MB of weights. "
        f"The disk reads {disk / 1e9:.2f} GB/s with {DEPTH} reads of 512 KiB in flight. Of the disk: the bytes that a "
        "step reads, by its time, beside that rate in the same round. All logits have the same bits."
    )
    head = ["weights", "rows", "step, ms", "memory for weights, MiB", "read in a step, MB", "of the disk"]
    return Table(head, rows, note)


def run(setup: Setup) -> list[Block]:
    """A table."""
    shape, batches = setup.size((Shape(), (1, 8)), (QUICK, (2,)))
    with setup.folder(6 << 30) as folder:
        found = compare(shape, folder, setup.threads, batches)
    return [Block("stream", [table(found)], found)]
