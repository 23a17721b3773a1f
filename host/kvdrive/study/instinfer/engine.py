"""Cycles of the engine's units for one head: those of our kernels, as their RTL was simulated (bitstreams/)."""

from __future__ import annotations

import json

from kvdrive.perf.shapes import HALF_BYTES
from kvdrive.tree import ROOT


def _cycles(kernel: str, job: str, amount: float) -> float:
    """Cycles of a simulated job, for another amount of bytes, keys or scores."""
    measured = json.loads((ROOT / f"bitstreams/{kernel}.json").read_text())["measured"]
    found = next(one for one in measured if one["job"] == job)
    return float(found["cycles"] / found["amount"] * amount)


def exact(tokens: int, head_dim: int) -> dict[str, float]:
    """Cycles of exact attention by unit."""
    row = HALF_BYTES * head_dim
    return {
        "logit": _cycles("gemv_g1", "rows, 1024 tokens, d = 128", tokens * row),
        "softmax": _cycles("softmax", "4096 scores", tokens),
        "attend": _cycles("gemv_g1", "accumulate, 1024 tokens, d = 128", tokens * row),
    }


def sparse(tokens: int, head_dim: int, ratio: int) -> dict[str, float]:
    """The same of SparF, if every page passes the filters, which keep 1/`ratio`."""
    row, rank, kept = HALF_BYTES * head_dim, max(1, head_dim // ratio), max(1, tokens // ratio)
    return {
        # K by embeddings, then K and V by tokens
        "filter": _cycles("page_filter", "64 pages of 4 KiB, half kept", 3 * tokens * row),
        "logit-0": _cycles("gemv_g1", "columns, 1024 tokens, d = 128", tokens * rank * HALF_BYTES),
        "argtopk": _cycles("argtopk", "k = 64 of 16384 keys", head_dim + tokens),
        "logit": _cycles("gemv_g1", "rows, 1024 tokens, d = 128", kept * row),
        "softmax": _cycles("softmax", "4096 scores", tokens + kept),
        "attend": _cycles("gemv_g1", "accumulate, 1024 tokens, d = 128", kept * row),
    }
