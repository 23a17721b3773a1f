"""Decode steps of a batch in one piece and in mini-batches, with a drive that does not compute on the host's cores.

The drive is the emulator; each call takes as long as its modelled device time, times a factor, and nearly all of that
is sleep, as a host waits for a drive with an engine of its own. Caches are filled with random numbers.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Sequence
from pathlib import Path

import torch
from transformers import PreTrainedModel

from bench.decode.random_models import load
from bench.rounds import Contender, Rounds, take_turns
from bench.setup import Setup
from bench.table import Block, Table
from kvdrive.nvme.commands import Command
from kvdrive.plugins.support import decoder_config, heads_of
from kvdrive.plugins.transformers import attach
from kvdrive.targets.emulator import Emulator
from kvdrive.targets.wrapped import Result, WrappedTarget

BATCH, STEPS = 4, 5
WAYS = {"one batch": 1, "two mini-batches": 2}


class PacedTarget(WrappedTarget):
    """`drive`, whose calls take `factor` times their modelled device time, if they have not taken longer."""

    def __init__(self, drive: Emulator, factor: float) -> None:
        super().__init__(drive)
        self._factor = factor

    def around(self, commands: Sequence[Command], call: Callable[[], Result]) -> Result:
        """See WrappedTarget."""
        began, device = time.perf_counter(), self.drive.device_ns() or 0
        done = call()
        ends = began + self._factor * ((self.drive.device_ns() or 0) - device) / 1e9
        time.sleep(max(ends - time.perf_counter(), 0))
        return done


def seconds(model: PreTrainedModel, drive: Emulator, factor: float, count: int, tokens: int) -> float:
    """The median of some decode steps behind `tokens` tokens, in `count` mini-batches."""
    config = decoder_config(model)
    _, kv_heads, head_dim = heads_of(config)
    generator = torch.Generator().manual_seed(1)
    ids, found = torch.ones(BATCH, 1, dtype=torch.int64), []
    with attach(model, PacedTarget(drive, factor), mini_batches=count) as attached, torch.no_grad():
        cache = attached.cache(rows=BATCH)
        for layer in range(config.num_hidden_layers):
            size = (BATCH, kv_heads, tokens, head_dim)
            cache.update(*(torch.randn(size, generator=generator).to(model.dtype) for _ in range(2)), layer)
        cache.synchronize()
        for number in range(STEPS + 1):
            began = time.perf_counter()
            at = torch.full((BATCH, 1), tokens + number)  # a filled cache has no token ids
            model(ids, position_ids=at, past_key_values=cache, use_cache=True, logits_to_keep=1)
            found.append(time.perf_counter() - began)
    return statistics.median(found[1:])


def measure(model: PreTrainedModel, factor: float, tokens: int, rounds: int, path: Path, threads: int) -> Rounds:
    """Both ways on a new drive in each round."""

    def way(count: int) -> dict[str, float]:
        with Emulator(path, "fast", threads, 1 << 30, format=True) as drive:
            return {"seconds": seconds(model, drive, factor, count, tokens)}

    return take_turns([Contender(name, lambda count=count: way(count)) for name, count in WAYS.items()], rounds)


def run(setup: Setup) -> list[Block]:
    """A row for each factor of the drive's time."""
    torch.set_num_threads(setup.threads)
    name, tokens, factors, rounds = setup.size(("426m", 1024, (1, 4, 8, 16), 5), ("mini", 64, (1,), 1))
    model, rows, kept = load(name)[0], [], {}
    with setup.folder() as folder:
        for factor in factors:
            found = measure(model, factor, tokens, rounds, folder / "drive.kv", setup.threads)
            times = (f"{1e3 * found.median(way):,.0f}" for way in WAYS)
            rows.append([f"{factor:g}", *times, f"{found.faster('two mini-batches', 'one batch'):.2f}"])
            kept[str(factor)] = found.rounds
            setup.say(rows[-1])
    head = ["device time times", *(f"{way}, ms" for way in WAYS), "times as fast"]
    note = (
        f"{name}, {BATCH} sequences of {tokens:,} tokens; an emulator whose calls take their modelled device time; "
        f"medians of {rounds} rounds."
    )
    return [Block("mini-batches", [Table(head, rows, note, align="rrrr")], kept)]
