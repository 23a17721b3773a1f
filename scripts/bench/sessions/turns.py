"""Time to the first token of a turn that finds its history on the drive, beside computing it again; bytes written for a
turn; look-ups a second in an index of a million blocks.

The history is random tokens of the shipped model, on a drive of the cpu target whose file is not in the page cache.
"""

from __future__ import annotations

import random
import time
from pathlib import Path

import torch

from bench.machine import forget
from bench.rounds import Contender, Counts, Rounds, seconds, take_turns
from bench.setup import Setup
from bench.table import Block, Table
from kvdrive.generation import checkpoints
from kvdrive.plugins.transformers import attach
from kvdrive.prefix.entry import NewEntry
from kvdrive.prefix.index import Index
from kvdrive.targets.cpu import CpuDrive

NEW, BLOCKS_OF_A_SESSION, PROBES = 16, 100, 300
FOUND, AGAIN = "found on the drive", "computed again"


def flash_bytes(drive: CpuDrive) -> int:
    """Bytes that the drive has written: pages of data, and its journal."""
    found = drive._drive.flash_stats()
    return int(found["groups_written"] * 4096 + found["journal_bytes"])


class Turns:
    """A model and a history of `tokens` tokens, which the first turn stores; every question is a new one."""

    def __init__(self, path: Path, tokens: int, threads: int) -> None:
        self._path, self._threads = path, threads
        self.model = checkpoints.load("mini", "float32", "cpu").model
        self._random = torch.Generator().manual_seed(1)
        self._history = self._tokens(tokens)
        self._question = self._history
        self.found()  # stores it

    def _tokens(self, count: int) -> torch.Tensor:
        return torch.randint(2, self.model.config.vocab_size, (1, count), generator=self._random)

    def found(self) -> Counts:
        """A turn of a drive that was just opened: seconds to its first token, and bytes written."""
        with (
            CpuDrive(self._path, self._threads, 1 << 32) as drive,
            attach(self.model, drive, sessions=True) as attached,
        ):
            forget(self._path)
            before, began = flash_bytes(drive), time.perf_counter()
            self._question = torch.cat([self._history, self._tokens(NEW)], dim=1)
            cache = attached.sessions.cache(self._question)
            self.model(self._question[:, cache.get_seq_length() :], past_key_values=cache, logits_to_keep=1)
            took = time.perf_counter() - began
            attached.sessions.release(cache)
            return {"seconds": took, "written": flash_bytes(drive) - before}

    def again(self) -> Counts:
        """The same question without the drive."""
        return {"seconds": seconds(lambda: self.model(self._question, logits_to_keep=1))}


def bytes_per_token(model: torch.nn.Module) -> int:
    """K and V of one token in binary16."""
    config = model.config
    head_dim = getattr(config, "head_dim", None) or config.hidden_size // config.num_attention_heads
    return 4 * config.num_hidden_layers * config.num_key_value_heads * head_dim


def lookups(path: Path, blocks: int) -> float:
    """Blocks looked up in a second in an index of `blocks` blocks."""
    rng = random.Random(1)
    index, chains = Index(path), []
    with index.transaction():
        for number in range(blocks // BLOCKS_OF_A_SESSION):
            keys = [rng.getrandbits(62) for _ in range(BLOCKS_OF_A_SESSION)]
            entry = NewEntry(7, "", "", [[0, number, 0, 1]], "", 10, 64, tokens=6400, last=keys[-1])
            index.add(entry, keys)
            chains.append(keys)
    probes = rng.sample(chains, min(PROBES, len(chains)))
    began = time.perf_counter()
    for keys in probes:
        assert index.find(7, keys)[0] == len(keys)
    seconds = time.perf_counter() - began
    index.close()
    return len(probes) * BLOCKS_OF_A_SESSION / seconds


def run(setup: Setup) -> list[Block]:
    """A row for each figure."""
    torch.set_num_threads(setup.threads)
    tokens, rounds, blocks = setup.size((16_000, 3, 1_000_000), (200, 1, 1000))
    with setup.folder() as folder, torch.no_grad():
        turns = Turns(folder / "drive.kv", tokens, setup.threads)
        found = take_turns([Contender(FOUND, turns.found), Contender(AGAIN, turns.again)], rounds)
        rate = lookups(folder / "index", blocks)
    return [Block("turns", [table(found, tokens, NEW * bytes_per_token(turns.model), blocks, rate)], found.rounds)]


def table(found: Rounds, tokens: int, new_bytes: int, blocks: int, rate: float) -> Table:
    """The figures, one below the other."""
    rows = [
        [f"first token after {tokens:,} tokens of history and {NEW} new ones: {AGAIN}", f"{found.median(AGAIN):.3g} s"],
        [f"the same, history {FOUND}", f"{found.median(FOUND):.3g} s ({found.faster(FOUND, AGAIN):.3g}x as fast)"],
        ["data and journal written for that turn", f"{found.median(FOUND, 'written') / 2**20:.3g} MiB"],
        ["K and V of its new tokens", f"{new_bytes / 2**20:.3g} MiB"],
        [f"blocks looked up, in an index of {blocks:,}", f"{rate:,.0f} a second"],
    ]
    return Table(["measured", ""], rows, "The shipped model, cpu target, its file not in the page cache.")
