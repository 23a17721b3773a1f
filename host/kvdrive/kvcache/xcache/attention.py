"""Attention over K and V in memory, with the bits of a drive."""

from __future__ import annotations

import numpy as np

from kvdrive import abi
from kvdrive._native import Engine
from kvdrive.kernels.job import JobMemory, pad_scores
from kvdrive.kvcache.session import Query
from kvdrive.nvme.commands import AttentionOutput, Halves


class MemoryAttention:
    """Answers queries as a drive would; `threads` compute. Not safe to call concurrently."""

    def __init__(self, threads: int) -> None:
        self._engine = Engine("fast", threads)

    def attend(self, query: Query, k: Halves, v: Halves) -> AttentionOutput:
        """The answer to `query` over k and v [heads, tokens, d], from the first of the query's heads on."""
        heads, group, head_dim = query.q.shape
        records = -(-group // abi.MAX_GROUP)
        out = np.empty((heads, group, head_dim), np.float16)
        found = np.empty((heads, records), abi.AttentionResult)
        for head in range(heads):
            job = JobMemory(
                abi.Mode.EXACT,
                group,
                head_dim,
                tokens=query.tokens,
                inline_tokens=0 if query.inline_scores is None else query.inline_scores.shape[2],
                scale_log2e=query.scale_log2e,
            )
            job.place("q", query.q[head])
            job.place("k", k[query.head + head, : query.tokens])
            job.place("v", v[query.head + head, : query.tokens])
            if query.how.valid is not None:
                job.place("valid", np.packbits(query.how.valid, bitorder="little"))
            if query.inline_scores is not None and query.inline_v is not None:
                job.place("inline_scores", pad_scores(query.inline_scores[head]))
                job.place("inline_v", query.inline_v[head])
            job.reserve("out", group * head_dim * 2)
            job.reserve("result", records * abi.AttentionResult.itemsize)
            memory = job.image()
            status = self._engine.attention(memory, 0)
            assert status == 0, f"finite halves of a shape that a drive takes (status {status:#x})"
            out[head] = job.read(memory, "out", np.float16).reshape(group, head_dim)
            found[head] = job.read(memory, "result", abi.AttentionResult)
        return AttentionOutput(out, found.reshape(-1).view(np.uint8))
