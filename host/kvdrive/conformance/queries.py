"""Queries, and their answers by the golden model."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from kvdrive import abi
from kvdrive.conformance.bench import Bench, Halves, Stored, with_fields
from kvdrive.kernels.native import scale_bits
from kvdrive.kernels.oracle import GoldenKernels
from kvdrive.nvme import commands
from kvdrive.nvme.commands import AttentionQuery, Command
from kvdrive.nvme.rows import encoded

_MODES = {
    abi.Mode.EXACT: "exact",
    abi.Mode.PARTIAL: "partial",
    abi.Mode.SPARF_ATTEND: "sparf",
    abi.Mode.GROUPS: "groups",
}


@dataclass(frozen=True)
class Query:
    """q [heads, g, d] over the first `tokens` tokens of a session; the rest as `commands.attn_submit` takes it."""

    q: Halves
    tokens: int
    valid: NDArray[np.bool_] | None = None
    mode: abi.Mode = abi.Mode.EXACT
    r: int = 0
    k_top: int = 0
    local: int = 0
    inline_scores: NDArray[np.int32] | None = None
    inline_v: Halves | None = None

    def submit(self, session: int, head: int = 0, layer: int = 0) -> Command:
        """Its ATTN_SUBMIT."""
        return self.of(session, head, layer).command()

    def of(self, session: int, head: int = 0, layer: int = 0) -> AttentionQuery:
        """The query of a session, as a row or as a command of its own."""
        return commands.attention_query(
            session, layer, head, self.q, self.tokens, scale_bits(None, self.q.shape[2]), self.valid, mode=self.mode,
            r=self.r, k_top=self.k_top, local=self.local, inline_scores=self.inline_scores, inline_v=self.inline_v,
        )  # fmt: skip

    def fetch(self, ticket: int) -> Command:
        """The ATTN_FETCH of its ticket."""
        heads, group, d = self.q.shape
        return commands.attn_fetch(ticket, heads, group, d, self.mode)


def ask(bench: Bench, stored: Stored, query: Query) -> None:
    """Submit and fetch; the answer must be the golden model's, bit for bit."""
    compare(bench, stored, query, bench.ok(query.fetch(bench.ok(query.submit(stored.number)).result)).data)


def compare(bench: Bench, stored: Stored, query: Query, data: NDArray[np.uint8]) -> None:
    """Compare an answer with the golden model's: outputs, maxima, sums, and of SparF and groups alpha.

    Groups: everything that is stored came with one append.
    """
    heads, group, d = query.q.shape
    found = commands.attention_result(data, heads, group, d, query.mode)
    for head in range(heads):
        arrays: dict[str, Any] = {
            "q": query.q[head],
            "k": stored.k[head, : query.tokens],
            "v": stored.v[head, : query.tokens],
            "valid": query.valid,
        }
        if query.inline_scores is not None and query.inline_v is not None:
            arrays |= {"inline_scores": query.inline_scores[head], "inline_v": query.inline_v[head]}
        arrays |= {"r": query.r, "k_top": query.k_top, "l": query.local}
        if query.mode == abi.Mode.GROUPS:
            arrays |= {"unit": query.r, "all_k": stored.k[head]}
        want = GoldenKernels().attention(arrays, _MODES[query.mode])
        place = f"head {head} of {heads}, group {group}, d {d}, {query.tokens} tokens, {query.mode.name}"
        bench.same(f"outputs of {place}", found.out[head], want["out"])
        bench.same(f"maxima of {place}", found.max[head], np.asarray(want["max"], np.int32))
        bench.same(f"sums of {place}", found.sum[head], np.asarray(want["sum"], np.uint64))
        if query.mode in (abi.Mode.SPARF_ATTEND, abi.Mode.GROUPS):
            bench.same(f"alpha of {place}", found.alpha[head], want["alpha"])


def exact(bench: Bench, stored: Stored, group: int = 2) -> Query:
    """Exact attention to everything that a session holds."""
    heads, tokens, d = stored.k.shape
    return Query(bench.halves(heads, group, d), tokens)


def holds(bench: Bench, stored: Stored) -> None:
    """A session holds K and V as they were stored: attention has the golden model's bits, and the rows come back."""
    ask(bench, stored, exact(bench, stored))
    heads, tokens, d = stored.k.shape
    for kind, rows in ((abi.KvKind.KEYS, stored.k), (abi.KvKind.VALUES, stored.v)):
        read = commands.kv_read(stored.number, 0, 0, kind, 0, (heads, tokens, d), stored.stored_as)
        bench.same(f"stored {kind.name.lower()}", bench.ok(read).data, encoded(rows, stored.stored_as).reshape(-1))


def submit_with(query: Query, stored: Stored, **fields: int) -> Command:
    """The query's ATTN_SUBMIT with other values in some fields."""
    return with_fields(query.submit(stored.number), abi.AttnSubmit, **fields)
