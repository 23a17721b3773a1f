"""Host time of the queries of a batch in one layer: a command for each row beside one command for all rows.

The rows attend to few tokens, so that what remains is the cost of commands. Both ways take turns on the same sessions;
a round's ratio is taken inside the round, and its median over the rounds is reported. `--tokens` makes rows longer.
"""

from __future__ import annotations

import argparse
import json
import statistics
import tempfile
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np
from rich.console import Console
from rich.table import Table

from kvdrive import abi
from kvdrive.kernels.native import scale_bits
from kvdrive.kvcache.session import Query, Session, attend
from kvdrive.nvme.wire import MAX_ATTN_ROWS
from kvdrive.perf.kept import processor
from kvdrive.targets.base import Target
from kvdrive.targets.emulator import Emulator

_HEADS, _GROUP, _DIM, _INLINE = 4, 4, 64, 8


@dataclass(frozen=True)
class Row:
    """Microseconds of a layer's queries, medians; `ratio` of the rows' time to that of single commands."""

    rows: int
    tokens: int
    single_us: float
    rows_us: float
    ratio: float

    @property
    def saved_us(self) -> float:
        """Of each row but the first."""
        return (self.single_us - self.rows_us) / (self.rows - 1)


def queries(target: Target, rows: int, tokens: int) -> list[Query]:
    """One query for each of `rows` sessions of `tokens` tokens, with pending tokens."""
    rng = np.random.default_rng(1)
    found = []
    for _ in range(rows):
        session = Session(target)
        for kind in abi.KvKind:
            session.append(0, kind, 0, rng.standard_normal((_HEADS, tokens, _DIM)).astype(np.float16))
        scores = rng.integers(-1000, 1000, (_HEADS, _GROUP, _INLINE)).astype(np.int32)
        v = rng.standard_normal((_HEADS, _INLINE, _DIM)).astype(np.float16)
        q = rng.standard_normal((_HEADS, _GROUP, _DIM)).astype(np.float16)
        found.append(Query(session, 0, q, tokens, scale_bits(None, _DIM), inline_scores=scores, inline_v=v))
    return found


def measure(target: Target, rows: int, tokens: int, rounds: int) -> Row:
    """Attend in both ways, in turns."""
    asked = queries(target, rows, tokens)
    ways: dict[int, list[float]] = {1: [], MAX_ATTN_ROWS: []}
    for turn in range(rounds + 5):
        for most, seconds in ways.items():
            target.rows_at_once = most
            took = _seconds(lambda: attend(target, asked))
            if turn >= 5:
                seconds.append(took)
    single, together = ways[1], ways[MAX_ATTN_ROWS]
    ratio = statistics.median(b / a for a, b in zip(single, together, strict=True))
    return Row(rows, tokens, 1e6 * statistics.median(single), 1e6 * statistics.median(together), ratio)


def _seconds(work: Callable[[], object]) -> float:
    began = time.perf_counter()
    work()
    return time.perf_counter() - began


def main() -> None:
    """Measure, print the table and write the file."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rows", type=int, nargs="+", default=[2, 4, 8, 16])
    parser.add_argument("--tokens", type=int, nargs="+", default=[16, 4096])
    parser.add_argument("--rounds", type=int, default=200)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--json", type=Path, help="write the measurements to this file")
    args = parser.parse_args()
    found = []
    with tempfile.TemporaryDirectory() as folder, Emulator(Path(folder) / "drive.kv", "fast", args.threads) as target:
        for tokens in args.tokens:
            found += [measure(target, rows, tokens, args.rounds) for rows in args.rows]
    table = Table(title=f"queries of one layer, {processor()}")
    for name in ("rows", "tokens", "single us", "one command us", "ratio", "saved us a row"):
        table.add_column(name, justify="right")
    for row in found:
        numbers = (f"{row.single_us:.0f}", f"{row.rows_us:.0f}", f"{row.ratio:.2f}", f"{row.saved_us:.1f}")
        table.add_row(str(row.rows), str(row.tokens), *numbers)
    Console().print(table)
    if args.json:
        args.json.parent.mkdir(parents=True, exist_ok=True)
        args.json.write_text(json.dumps([asdict(row) for row in found], indent=2) + "\n")


if __name__ == "__main__":
    main()
