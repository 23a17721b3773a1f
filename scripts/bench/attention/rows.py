"""Host time of the queries of a batch in one layer: a command for each row beside one command for all rows.

The rows attend to few tokens, so that what remains is the cost of commands.
"""

from __future__ import annotations

import numpy as np

from bench.rounds import Contender, Rounds, take_turns
from bench.setup import Setup
from bench.table import Block, Table
from kvdrive import abi
from kvdrive.kernels.native import scale_bits
from kvdrive.kvcache.session import Query, Session, attend
from kvdrive.nvme.wire import MAX_ATTN_ROWS
from kvdrive.targets.base import Target
from kvdrive.targets.emulator import Emulator

_HEADS, _GROUP, _DIM, _INLINE = 4, 4, 64, 8
SINGLE, TOGETHER = "a command for each row", "one command"


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


def measure(target: Target, rows: int, tokens: int, rounds: int) -> Rounds:
    """Both ways on the same sessions."""
    asked = queries(target, rows, tokens)

    def way(most: int) -> None:
        target.rows_at_once = most
        attend(target, asked)

    ways = ((SINGLE, 1), (TOGETHER, MAX_ATTN_ROWS))
    return take_turns([Contender(name, lambda most=most: way(most)) for name, most in ways], rounds, warm_up=5)


def run(setup: Setup) -> list[Block]:
    """A row for each number of rows and tokens."""
    counts, contexts, rounds = setup.size(((2, 4, 8, 16), (16, 4096), 200), ((2, 4), (16,), 2))
    rows = []
    with setup.folder() as folder, Emulator(folder / "drive.kv", "fast", 1) as target:
        for tokens in contexts:
            for count in counts:
                found = measure(target, count, tokens, rounds)
                single, together = (1e6 * found.median(name) for name in (SINGLE, TOGETHER))
                numbers = (f"{single:.0f}", f"{together:.0f}", f"{found.faster(TOGETHER, SINGLE):.2f}")
                rows.append([str(count), f"{tokens:,}", *numbers, f"{(single - together) / (count - 1):.1f}"])
    head = ["rows", "tokens", f"{SINGLE}, us", f"{TOGETHER}, us", "times as fast", "us saved by each further row"]
    return [Block("rows", [Table(head, rows, "One thread of the drive.", align="r" * 6)])]
