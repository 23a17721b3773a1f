"""Attention over K and V in binary16, 8 and 4 bits, in one drive: rates side by side, from memory and from the disk.

Every round attends to the same context in each format, one after the other, and ratios are taken inside a round. The
drive is the cpu target: "memory" reads its file in the page cache, "disk" around it. --write puts the table into
docs/eval.md.
"""

from __future__ import annotations

import argparse
import os
import statistics
import tempfile
import time
from pathlib import Path

import numpy as np

from kvdrive import abi
from kvdrive.choices import KV_FORMATS
from kvdrive.kernels.native import scale_bits
from kvdrive.kvcache import formats
from kvdrive.kvcache.session import Session
from kvdrive.perf.kept import processor
from kvdrive.targets.base import Target
from kvdrive.targets.cpu import CpuDrive
from kvdrive.tree import ROOT
from page_blocks import write_blocks

_AT_ONCE = 4096  # tokens of an append


class Contexts:
    """The same context in every format, one session each."""

    def __init__(self, target: Target, heads: int, g: int, tokens: int, d: int) -> None:
        rng = np.random.default_rng(1)
        self.tokens, self.bytes = tokens, 2 * heads * tokens * d * 2
        self.target, self.scale = target, scale_bits(None, d)
        self.q = rng.standard_normal((heads, g, d)).astype(np.float16)
        self.sessions = {name: Session(target, formats.joined(0, formats.named(name))) for name in KV_FORMATS}
        for first in range(0, tokens, _AT_ONCE):
            size = (heads, min(_AT_ONCE, tokens - first), d)
            for kind in abi.KvKind:
                rows = rng.standard_normal(size).astype(np.float16)
                for session in self.sessions.values():
                    session.append(0, kind, first, rows)

    def attend(self, name: str) -> tuple[float, int]:
        """Seconds of one attention over a format, and the bytes of K and V that it read."""
        before, began = self.target.stats().kv_bytes_read, time.perf_counter()
        self.sessions[name].attend(0, self.q, self.tokens, self.scale)
        return time.perf_counter() - began, self.target.stats().kv_bytes_read - before


Measured = dict[str, tuple[list[float], int]]  # format: seconds of each round, bytes that one attention read


def measure(contexts: Contexts, rounds: int) -> Measured:
    """Attend in every format in each round; a first round does not count."""
    seconds: dict[str, list[float]] = {name: [] for name in KV_FORMATS}
    read = {name: contexts.attend(name)[1] for name in KV_FORMATS}
    for _ in range(rounds):
        for name in KV_FORMATS:
            seconds[name].append(contexts.attend(name)[0])
    return {name: (seconds[name], read[name]) for name in KV_FORMATS}


def lines(place: str, g: int, size: int, found: Measured) -> list[list[str]]:
    """A line of the table for each format."""
    plain, plain_bytes = found["f16"]
    out = []
    for name, (seconds, read) in found.items():
        faster = statistics.median(a / b for a, b in zip(plain, seconds, strict=True))
        rate = size / statistics.median(seconds) / 1e9
        out.append([place, str(g), name, f"{plain_bytes / read:.2f}", f"{rate:.2f}", f"{faster:.2f}"])
    return out


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--tokens", type=int, default=65536)
    parser.add_argument("--heads", type=int, default=8)
    parser.add_argument("--head-dim", type=int, default=128)
    parser.add_argument("--groups", type=int, nargs="+", default=[1, 4])
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--threads", type=int, default=os.cpu_count() or 1)
    parser.add_argument("--folder", type=Path, help="of the drives; default: a temporary one")
    parser.add_argument("--write", action="store_true", help="write the table into --page")
    parser.add_argument("--page", type=Path, default=ROOT / "docs/eval.md", help="with a block format-rates")
    asked = parser.parse_args()
    table = [
        ["from", "g", "format", "fewer bytes", "GB/s of binary16", "faster"],
        ["---", "---:", "---", *["---:"] * 3],
    ]
    room = 4 * 2 * asked.heads * asked.tokens * asked.head_dim * 2 + (1 << 28)
    for place, cache_bytes in (("memory", room), ("disk", 0)):
        with (
            tempfile.TemporaryDirectory(dir=asked.folder) as folder,
            CpuDrive(Path(folder) / "drive", asked.threads, room, cache_bytes=cache_bytes) as target,
        ):
            for g in asked.groups:
                contexts = Contexts(target, asked.heads, g, asked.tokens, asked.head_dim)
                table += lines(place, g, contexts.bytes, measure(contexts, asked.rounds))
                for session in contexts.sessions.values():
                    session.trim(0)
    text = "\n".join("| " + " | ".join(line) + " |" for line in table)
    note = (
        f"{processor()}, {asked.threads} threads; {asked.tokens:,} tokens, {asked.heads} KV heads, "
        f"d = {asked.head_dim}, median of {asked.rounds} rounds. GB/s count the bytes that binary16 has."
    )
    print(f"{text}\n\n{note}")
    if asked.write:
        write_blocks(asked.page, {"format-rates": f"{text}\n\n{note}"})


if __name__ == "__main__":
    main()
