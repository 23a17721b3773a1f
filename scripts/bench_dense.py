"""Neurons on flash: what each step of LLM in a flash gains, beside mmap of the same checkpoint with the same memory.

A random dense model with ReLU is made and converted. Thresholds make 95 % of its activations zero, as those of
ReLU-trained models are; a random model has 50 %. Each contender computes the same random tokens one by one in a process
of its own. Memory is bounded: windows of neurons are allocated once and reads bypass the page cache; `mmap` drops the
layers that were used longest ago from the page cache. What the process really read is in /proc. Writes a table of
docs/weights.md.
"""

from __future__ import annotations

import json
import math
import os
import resource
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from fractions import Fraction
from pathlib import Path
from typing import Any

import torch
from rich.console import Console
from transformers import AutoModelForCausalLM

from dense_contenders import QUICK, DenseShape, make_dense, mapped_layers
from kvdrive.generation.checkpoints import quiet, read_config
from kvdrive.perf.kept import processor
from kvdrive.weights.calibrate import calibrate
from kvdrive.weights.cuts import cuts_of, install_cuts, keep_cuts
from kvdrive.weights.file import WeightsFile
from kvdrive.weights.loading import WeightsOptions
from kvdrive.weights.opening import make_file
from kvdrive.weights.sparse import LEAST, SparseWeights
from weights_bench import PROMPT, alone, arguments, kernel_reads, publish
from weights_contenders import VOCABULARY

ZEROS = "95%"


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
)


def measure(step: Step, folder: Path, tokens: int, threads: int) -> dict[str, Any]:
    """Decode by one contender; rates, counters and some logits."""
    torch.set_num_threads(threads)
    quiet()
    random = torch.Generator().manual_seed(2)
    ids = torch.randint(0, VOCABULARY, (1, PROMPT + tokens), generator=random)
    model, report, close = _model(step, folder)
    with torch.no_grad():
        past = model(ids[:, :PROMPT], use_cache=True).past_key_values
        before, read, began = report(), kernel_reads(), time.perf_counter()
        for token in range(PROMPT, PROMPT + tokens):
            logits = model(ids[:, token : token + 1], past_key_values=past).logits
        seconds, after = time.perf_counter() - began, report()
        read = kernel_reads() - read
    close()
    return {
        **asdict(step),
        "milliseconds": 1e3 * seconds / tokens,
        "read_by_kernel_per_token": read / tokens,
        "reading": (after["flash_busy_ns"] - before["flash_busy_ns"]) / 1e6 / tokens if after else None,
        "flash_bytes": after["flash_bytes"] - before["flash_bytes"] if after else None,
        "hit_rate": after.get("hit_rate"),
        "neurons_in_memory": after.get("neurons_in_memory"),
        "peak_rss": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss << 10,
        "logits": logits.float().flatten()[:8].tolist(),
    }


def _model(step: Step, folder: Path) -> tuple[Any, Callable[[], dict[str, Any]], Callable[[], None]]:
    """The model of a contender, a function for its counters, one that closes."""
    file = WeightsFile(folder / "w.kvw")
    cuts = cuts_of(step.ffn, file.path, file.manifest)
    if step.way == "flash":
        resident = sum(array.bytes_in(torch.bfloat16) for array in file.manifest.resident)
        memory = resident + math.ceil(step.share * sum(array.bytes for array in file.manifest.neurons))
        sparse = SparseWeights(file, read_config(folder), torch.bfloat16, WeightsOptions(memory, window=step.window))
        model, report, close = sparse.model, sparse.report, sparse.close
    elif step.way == "mmap":
        model, report, close = mapped_layers(file, folder, step.share), dict, file.close
    else:
        model = AutoModelForCausalLM.from_pretrained(folder, dtype="auto").eval()
        report, close = dict, file.close
    if cuts is not None:
        install_cuts(model, cuts)
    return model, report, close


def prepare(shape: DenseShape, folder: Path, console: Console) -> int:
    """Make the checkpoint, its file of weights, and thresholds. Returns the bytes of the file."""
    make_dense(shape, folder)
    made = make_file(folder, folder / "w.kvw", "auto", console)
    file = WeightsFile(made.path)
    model = AutoModelForCausalLM.from_pretrained(folder, dtype="auto").eval()
    windows = torch.randint(0, VOCABULARY, (2, 128), generator=torch.Generator().manual_seed(3)).numpy()
    names = [array.name for array in file.manifest.neurons]
    shares = [Fraction(int(ZEROS.removesuffix("%")), 100)]
    cuts = calibrate(model, names, shares, windows[:1], windows[1:], lambda: None)
    keep_cuts(made.path, file.manifest, {ZEROS: cuts[0]})
    file.close()
    return made.file_bytes


def table(result: dict[str, Any]) -> str:
    """The result for docs/weights.md."""
    rows = result["rows"]
    naive = next(row["milliseconds"] for row in rows if row["way"] == "flash")
    lines = [
        "| step | ms per token | naive's | reads in flight, ms | MB read per token | in memory when used | memory |",
        "| --- | ---: | ---: | ---: | ---: | ---: | ---: |",
    ]
    for row in rows:
        cells = [
            row["name"],
            f"{row['milliseconds']:,.0f}",
            f"{naive / row['milliseconds']:.1f}x",
            "-" if row["reading"] is None else f"{row['reading']:,.0f}",
            f"{row['read_by_kernel_per_token'] / 1e6:,.1f}",
            "-" if row["hit_rate"] is None else f"{row['hit_rate']:.0%}",
            f"{row['peak_rss'] / 2**30:.1f} GiB",
        ]
        lines.append(f"| {' | '.join(cells)} |")
    shape = result["shape"]
    note = (
        f"{shape['layers']} layers, hidden {shape['hidden']}, {shape['inner']} neurons, bfloat16, "
        f"{result['bytes'] / 2**30:.1f} GiB, random weights and tokens, one sequence, {result['tokens']} tokens; mmap, "
        f"hybrid and later steps hold half of the up and down projections in memory; measured on {processor()}, "
        f"{result['threads']} threads."
    )
    return "\n".join([*lines, "", note])


def run(shape: DenseShape, folder: Path, tokens: int, threads: int) -> dict[str, Any]:
    """Make the checkpoint and measure all contenders."""
    say = Console(stderr=True)
    size = prepare(shape, folder, say)
    os.sync()
    rows = []
    for step in STEPS:
        one = {"step": asdict(step), "folder": str(folder), "tokens": tokens, "threads": threads}
        rows.append(alone(__file__, step.name, one))
        say.print(f"{step.name}: {rows[-1]['milliseconds']:,.0f} ms per token")
    return {"shape": asdict(shape), "bytes": size, "tokens": tokens, "threads": threads, "rows": rows}


def main() -> None:
    """Run all contenders, or one of them in this process."""
    given = arguments(__doc__.splitlines()[0])
    if given.one:
        one = given.one
        print(json.dumps(measure(Step(**one["step"]), Path(one["folder"]), one["tokens"], one["threads"])))
        return
    shape = QUICK if given.quick else DenseShape()
    needed = 3 * shape.bytes
    publish(given, "bench-dense", needed, lambda folder: run(shape, folder, given.tokens, given.threads), table)


if __name__ == "__main__":
    main()
