"""Decode steps of a batch in one piece and in mini-batches, with a drive that does not compute on the host's cores.

The drive is the emulator; each call takes as long as its modelled device time, times a factor, and nearly all of that
is sleep, as a host waits for a drive with an engine of its own. Caches are filled with random numbers. The ways take
turns; medians of rounds.
"""

from __future__ import annotations

import argparse
import os
import statistics
import time
from collections.abc import Sequence
from pathlib import Path

import torch
from rich.console import Console
from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedModel

from bench_decode import LLAMA_426M
from kvdrive.nvme.commands import Command
from kvdrive.nvme.completions import Completion
from kvdrive.perf.kept import processor
from kvdrive.plugins.support import decoder_config, heads_of
from kvdrive.plugins.transformers import attach
from kvdrive.targets.emulator import Emulator
from kvdrive.targets.opening import drive_folder
from kvdrive.targets.wrapped import WrappedTarget
from page_blocks import write_blocks

PAGE = Path(__file__).parents[1] / "docs/xcache.md"
BATCH, TOKENS = 4, 1024
ROUNDS, STEPS = 5, 5
COUNTS, FACTORS = (1, 2), (1, 4, 8, 16)


class PacedTarget(WrappedTarget):
    """`drive`, whose calls take `factor` times their modelled device time, if they have not taken longer."""

    def __init__(self, drive: Emulator, factor: float) -> None:
        super().__init__(drive)
        self._factor = factor

    def submit_many(self, commands: Sequence[Command]) -> list[Completion]:
        """See Target."""
        began, device = time.perf_counter(), self.drive.device_ns() or 0
        done = self.drive.submit_many(commands)
        ends = began + self._factor * ((self.drive.device_ns() or 0) - device) / 1e9
        time.sleep(max(ends - time.perf_counter(), 0))
        return done


def seconds(model: PreTrainedModel, drive: Emulator, factor: float, count: int) -> float:
    """The median of some decode steps behind TOKENS tokens, in `count` mini-batches."""
    config = decoder_config(model)
    _, kv_heads, head_dim = heads_of(config)
    generator = torch.Generator().manual_seed(1)
    ids, found = torch.ones(BATCH, 1, dtype=torch.int64), []
    with attach(model, PacedTarget(drive, factor), mini_batches=count) as attached, torch.no_grad():
        cache = attached.cache(rows=BATCH)
        for layer in range(config.num_hidden_layers):
            size = (BATCH, kv_heads, TOKENS, head_dim)
            cache.update(*(torch.randn(size, generator=generator).to(model.dtype) for _ in range(2)), layer)
        cache.synchronize()
        for number in range(STEPS + 1):
            began = time.perf_counter()
            at = torch.full((BATCH, 1), TOKENS + number)  # a filled cache has no token ids
            model(ids, position_ids=at, past_key_values=cache, use_cache=True, logits_to_keep=1)
            found.append(time.perf_counter() - began)
    return statistics.median(found[1:])


def table(rows: dict[float, list[tuple[float, ...]]], threads: int) -> str:
    """The page's table. `rows`: seconds in each round, by the drive's factor; a column for each of COUNTS."""
    lines = ["| device time times | one batch, ms | two mini-batches, ms | times as fast |", "| ---: " * 4 + "|"]
    for factor, rounds in rows.items():
        one, two = (1e3 * statistics.median(column) for column in zip(*rounds, strict=True))
        faster = statistics.median(before / after for before, after in rounds)
        lines.append(f"| {factor:g} | {one:,.0f} | {two:,.0f} | {faster:.2f} |")
    return "\n".join(lines) + (
        f"\n\n426m, {BATCH} sequences of {TOKENS:,} tokens; an emulator whose calls take their modelled device "
        f"time. Measured on {processor()}, {threads} threads; medians of {len(next(iter(rows.values())))} rounds."
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=ROUNDS, help="fewer: the page stays as it is")
    parser.add_argument("--threads", type=int, default=os.cpu_count())
    given = parser.parse_args()
    torch.set_num_threads(given.threads)
    torch.manual_seed(1)
    model = LlamaForCausalLM._from_config(LlamaConfig(**LLAMA_426M), dtype=torch.bfloat16).eval()
    rows: dict[float, list[tuple[float, ...]]] = {factor: [] for factor in FACTORS}
    with drive_folder(None) as folder:
        for _ in range(given.rounds):
            for factor, rounds in rows.items():
                with Emulator(folder / "drive.kv", "fast", given.threads, 1 << 30, format=True) as drive:
                    rounds.append(tuple(seconds(model, drive, factor, count) for count in COUNTS))
                Console(stderr=True).print(factor, rounds[-1])
    text = table(rows, given.threads)
    print(text)
    if given.rounds >= ROUNDS:
        write_blocks(PAGE, {"bench-mini-batches": text})


if __name__ == "__main__":
    main()
