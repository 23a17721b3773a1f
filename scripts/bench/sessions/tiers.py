"""A turn behind an idle session: time to its first token where memory has a copy, from the drive, and computed again.

Running sequences are in memory, and layers are loaded while others compute. The drive is of the cpu target, and its
file is not in the page cache. Histories are random tokens.
"""

from __future__ import annotations

import time
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch
from transformers import PreTrainedModel

from bench.decode.random_models import load
from bench.machine import forget
from bench.rounds import Contender, Counts, Rounds, take_turns
from bench.setup import Setup
from bench.table import Block, Table
from kvdrive.perf.stored_rates import StoredRates
from kvdrive.plugins.transformers import Attachment, attach
from kvdrive.targets.cpu import CpuDrive

NEW, STEPS = 16, 64
COMPUTED, DRIVE, MEMORY = "computed again", "from the drive", "from memory"


@dataclass
class Turns:
    """A model with a stored history of `tokens` tokens in the drive's file `path`."""

    model: PreTrainedModel
    path: Path
    tokens: int
    threads: int

    def __post_init__(self) -> None:
        self._random = torch.Generator().manual_seed(1)
        self._history = self._some(self.tokens)
        with self._drive() as drive, attach(self.model, drive, sessions=True) as attached:
            cache = attached.sessions.cache(self._history)
            self._compute(self._history, cache)
            attached.sessions.release(cache)

    def computed(self) -> Counts:
        """Nothing is stored."""
        ids = self._question()
        began = time.perf_counter()
        self._compute(ids, None)
        return {"seconds": time.perf_counter() - began, "bytes": 0.0}

    def stored(self, memory: int) -> Counts:
        """The history is on the drive, or in `memory` bytes, into which an earlier turn has brought it."""
        with (
            self._drive() as drive,
            attach(self.model, drive, sessions=True, active="memory", session_memory=memory) as attached,
        ):
            costs = attached.sessions.costs
            costs._file, costs._rates = StoredRates(None), replace(costs.rates, load_byte=0.0, attend_pair=1.0)
            if memory:
                self._turn(attached)
            found, stats = self._turn(attached), attached.sessions.stats
            assert stats.memory_hits == (memory > 0)
        return found

    def _turn(self, attached: Attachment) -> Counts:
        ids, store = self._question(), attached.sessions
        forget(self.path)
        read, began = store.stats.loaded_bytes, time.perf_counter()
        cache = store.cache(ids, new_tokens=STEPS)
        assert cache.get_seq_length() == self.tokens
        self._compute(ids[:, self.tokens :], cache)
        took = time.perf_counter() - began
        store.release(cache)
        return {"seconds": took, "bytes": float(store.stats.loaded_bytes - read)}

    def _compute(self, ids: torch.Tensor, cache: Any) -> None:
        with torch.no_grad():
            self.model(ids, past_key_values=cache, logits_to_keep=1)

    def _question(self) -> torch.Tensor:
        """The history, and new tokens that nobody has asked before."""
        return torch.cat([self._history, self._some(NEW)], dim=1)

    def _some(self, count: int) -> torch.Tensor:
        return torch.randint(2, self.model.config.vocab_size, (1, count), generator=self._random)

    def _drive(self) -> CpuDrive:
        return CpuDrive(self.path, self.threads, 1 << 33)


def measure(turns: Turns, rounds: int) -> Rounds:
    """All ways in each round."""
    ways = {
        COMPUTED: turns.computed,
        DRIVE: lambda: turns.stored(0),
        MEMORY: lambda: turns.stored(1 << 34),
    }
    return take_turns([Contender(name, way) for name, way in ways.items()], rounds)


def run(setup: Setup) -> list[Block]:
    """A row for each model and history."""
    torch.set_num_threads(setup.threads)
    models, sizes, rounds = setup.size((("mini", "426m"), (4096, 16_384), 3), (("mini",), (256,), 1))
    found: dict[str, Rounds] = {}
    for name in models:
        model = load(name)[0]
        for tokens in sizes:
            with setup.folder() as folder:
                found[f"{name}, {tokens:,}"] = measure(Turns(model, folder / "drive.kv", tokens, setup.threads), rounds)
            setup.say(f"{name}, {tokens} tokens")
    return [Block("tiers", [table(found)], {name: one.rounds for name, one in found.items()})]


def table(found: dict[str, Rounds]) -> Table:
    """A column for each way."""
    rows = []
    for name, rounds in found.items():
        cells = [name, f"{rounds.median(COMPUTED):.3g} s"]
        for way in (DRIVE, MEMORY):
            cells.append(f"{rounds.median(way):.3g} s ({rounds.faster(way, COMPUTED):.3g}x)")
        rows.append([*cells, f"{rounds.faster(MEMORY, DRIVE):.2f}x", f"{rounds.median(MEMORY, 'bytes') / 2**20:.0f}"])
    note = (
        f"Seconds to the first token of a turn with {NEW} new tokens behind an idle session; in brackets: how many "
        "times as fast as computed again. cpu target, its file not in the page cache, K and V in binary16."
    )
    head = ["model, history", COMPUTED, DRIVE, MEMORY, "memory beside the drive", "MiB loaded"]
    return Table(head, rows, note)
