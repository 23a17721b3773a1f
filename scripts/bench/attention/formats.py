"""Attention over K and V in binary16, 8 and 4 bits, in one drive: rates side by side, from memory and from the disk.

Every round attends to the same context in each format. The drive is the cpu target: "memory" reads its file in the page
cache, "disk" around it.
"""

from __future__ import annotations

import time

import numpy as np

from bench.rounds import Contender, Counts, Rounds, take_turns
from bench.setup import Setup
from bench.table import Block, Table
from kvdrive import abi
from kvdrive.choices import KV_FORMATS
from kvdrive.kernels.native import scale_bits
from kvdrive.kvcache import formats
from kvdrive.kvcache.session import Session
from kvdrive.nvme.rows import joined
from kvdrive.targets.base import Target
from kvdrive.targets.cpu import CpuDrive

_AT_ONCE = 4096  # tokens of an append


class Contexts:
    """The same context in every format, one session each."""

    def __init__(self, target: Target, heads: int, g: int, tokens: int, d: int) -> None:
        rng = np.random.default_rng(1)
        self.tokens, self.bytes = tokens, 2 * heads * tokens * d * 2
        self.target, self.scale = target, scale_bits(None, d)
        self.q = rng.standard_normal((heads, g, d)).astype(np.float16)
        self.sessions = {name: Session(target, joined(0, formats.named(name))) for name in KV_FORMATS}
        for first in range(0, tokens, _AT_ONCE):
            size = (heads, min(_AT_ONCE, tokens - first), d)
            for kind in abi.KvKind:
                rows = rng.standard_normal(size).astype(np.float16)
                for session in self.sessions.values():
                    session.append(0, kind, first, rows)

    def attend(self, name: str) -> Counts:
        """One attention over a format, and the bytes of K and V that it reads."""
        before, began = self.target.stats().kv_bytes_read, time.perf_counter()
        self.sessions[name].attend(0, self.q, self.tokens, self.scale)
        took = time.perf_counter() - began
        return {"seconds": took, "bytes": self.target.stats().kv_bytes_read - before}

    def contenders(self) -> list[Contender]:
        """The formats."""
        return [Contender(name, lambda name=name: self.attend(name)) for name in KV_FORMATS]


def run(setup: Setup) -> list[Block]:
    """A row for each place, group of query heads and format."""
    heads, tokens, d = setup.size((8, 65536, 128), (2, 256, 64))
    room, rows, kept = 4 * 2 * heads * tokens * d * 2 + (1 << 28), [], {}
    for place, cache_bytes in (("memory", room), ("disk", 0)):
        with (
            setup.folder(room) as folder,
            CpuDrive(folder / "drive", setup.threads, room, cache_bytes=cache_bytes) as target,
        ):
            for g in (1, 4):
                contexts = Contexts(target, heads, g, tokens, d)
                found = take_turns(contexts.contenders(), setup.size(7, 1), warm_up=1)
                rows += lines(place, g, contexts.bytes, found)
                kept[f"{place}, g = {g}"] = found.rounds
                for session in contexts.sessions.values():
                    session.trim(0)
    note = (
        f"{tokens:,} tokens, {heads} KV heads, d = {d}, median of {setup.size(7, 1)} rounds. GB/s count the bytes that "
        "binary16 has."
    )
    head = ["from", "g", "format", "fewer bytes", "GB/s of binary16", "faster"]
    return [Block("formats", [Table(head, rows, note, align="lrlrrr")], kept)]


def lines(place: str, g: int, size: int, found: Rounds) -> list[list[str]]:
    """A row for each format."""
    plain = found.median("f16", "bytes")
    return [
        [
            place,
            str(g),
            name,
            f"{plain / found.median(name, 'bytes'):.2f}",
            f"{size / found.median(name) / 1e9:.2f}",
            f"{found.faster(name, 'f16'):.2f}",
        ]
        for name in found.names
    ]
