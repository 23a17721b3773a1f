"""A turn behind a long stored history: time to its first token by each way, beside computing everything again.

Ways: the drive attends where K and V are (attend), layers are loaded into memory while others compute (load), and what
the calibrated cost model chooses, on the drive as it is and on one that is 50 times slower.

Histories are random tokens, on a drive of the cpu target whose file is not in the page cache. 426m is a Llama with
random weights.
"""

from __future__ import annotations

import statistics
import time
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import torch
from transformers import PreTrainedModel

from bench.decode.random_models import load
from bench.machine import forget
from bench.rounds import seconds
from bench.setup import Setup
from bench.table import Block, Table
from kvdrive.perf.stored_rates import StoredRates
from kvdrive.plugins.transformers import Attachment, attach
from kvdrive.prefix.resume import Strategy
from kvdrive.targets.base import Target
from kvdrive.targets.cpu import CpuDrive
from kvdrive.targets.slowed import SlowedTarget

NEW, STEPS, SLOWER = 16, 64, 50


class Bench:
    """One model with a stored history of `tokens` tokens in the file `path`."""

    def __init__(self, model: PreTrainedModel, path: Path, tokens: int, threads: int) -> None:
        self.model = model
        self._path = path
        self._threads = threads
        self._random = torch.Generator().manual_seed(1)
        self._history = self._tokens(tokens)

    def _tokens(self, count: int) -> torch.Tensor:
        return torch.randint(2, self.model.config.vocab_size, (1, count), generator=self._random)

    def _question(self) -> torch.Tensor:
        """The history, and new tokens that nobody has asked before."""
        return torch.cat([self._history, self._tokens(NEW)], dim=1)

    def drive(self) -> CpuDrive:
        """The drive, opened."""
        return CpuDrive(self._path, self._threads, 1 << 33)

    def store(self) -> float:
        """Compute the history and keep it. Returns the seconds of the computation."""
        with self.drive() as drive, attach(self.model, drive, sessions=True) as attached:
            cache = attached.sessions.cache(self._history)
            took = seconds(lambda: self._forward(self._history, cache))
            attached.sessions.release(cache)
        return took

    def recompute(self) -> float:
        """Seconds to the first token without anything stored."""
        ids = self._question()
        return seconds(lambda: self.model(ids, logits_to_keep=1))

    def turn(self, target: Target, strategy: Strategy | None) -> dict[str, Any]:
        """Seconds to the first token by `strategy`; None: as the cost model chooses."""
        options: dict[str, Any] = {"active": "drive"} if strategy == "attend" else {"active": "memory"}
        with attach(self.model, target, sessions=True, **options) as attached:
            if strategy == "load":
                costs = attached.sessions.costs
                costs._file, costs._rates = StoredRates(None), replace(costs.rates, load_byte=0.0, attend_pair=1.0)
            elif strategy is None:
                _ = attached.sessions.costs.rates  # measured once for each drive, before the first turn
            return self._turn(attached)

    def _turn(self, attached: Attachment) -> dict[str, Any]:
        ids = self._question()
        forget(self._path)
        before = attached.sessions.stats.loaded_bytes
        began = time.perf_counter()
        cache = attached.sessions.cache(ids, new_tokens=STEPS)
        self._forward(ids[:, cache.get_seq_length() :], cache)
        took = time.perf_counter() - began
        chosen = cache.batch.listener.strategy
        assert chosen is not None
        found = {"seconds": took, "way": chosen, "loaded_bytes": attached.sessions.stats.loaded_bytes - before}
        attached.sessions.release(cache)
        return found

    def _forward(self, ids: torch.Tensor, cache: Any) -> None:
        self.model(ids, past_key_values=cache, logits_to_keep=1)


def measure(name: str, tokens: int, rounds: int, path: Path, threads: int) -> dict[str, Any]:
    """All strategies of one model."""
    model = load(name)[0]
    bench = Bench(model, path, tokens, threads)
    bench.store()
    recompute = bench.recompute()
    found: dict[str, Any] = {"model": name, "tokens": tokens, "recompute_seconds": recompute}
    for strategy in ("attend", "load", None):
        turns = []
        for _ in range(rounds):
            with bench.drive() as drive:
                turns.append(bench.turn(drive, strategy))
        turn = turns[0] | {"seconds": statistics.median(one["seconds"] for one in turns)}
        found[strategy or "chosen"] = turn | {"ratio": recompute / turn["seconds"]}
    with bench.drive() as drive, attach(model, drive, sessions=True, active="memory") as attached:
        found["rates"] = asdict(attached.sessions.costs.rates)
    path.with_name(path.name + ".costs").unlink()
    with SlowedTarget(bench.drive(), SLOWER) as slow:
        turn = bench.turn(slow, None)
    found["slowed"] = turn | {"factor": SLOWER, "ratio": recompute / turn["seconds"]}
    return found


def run(setup: Setup) -> list[Block]:
    """A row for each model."""
    torch.set_num_threads(setup.threads)
    models, tokens, rounds = setup.size((("mini", "426m"), 16_000, 3), (("mini",), 512, 1))
    found = []
    for name in models:
        with setup.folder() as folder, torch.no_grad():
            found.append(measure(name, tokens, rounds, folder / "drive.kv", setup.threads))
        setup.say(name)
    return [Block("resume", [table(found)], found)]


def table(found: list[dict[str, Any]]) -> Table:
    """A column for each way."""
    rows = []
    for one in found:
        cells = [f"{one['model']}, {one['tokens']:,}", f"{one['recompute_seconds']:.3g} s"]
        for name in ("attend", "load", "chosen", "slowed"):
            turn = one[name]
            chosen = f"{turn['way']}: " if name in ("chosen", "slowed") else ""
            cells.append(f"{chosen}{turn['seconds']:.3g} s ({turn['ratio']:.3g}x)")
        rows.append(cells)
    head = ["model, history", "computed again", "drive attends", "loaded by layer", "the model's choice"]
    head.append(f"on a drive {SLOWER} times slower")
    note = (
        f"Seconds to the first token of a turn with {NEW} new tokens; in brackets: how many times as fast as computed "
        "again. cpu target, its file not in the page cache."
    )
    return Table(head, rows, note)
