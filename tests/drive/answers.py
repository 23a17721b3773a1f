# SPDX-License-Identifier: Apache-2.0
"""The inline data of an ATTN_SUBMIT, and the result of its ATTN_FETCH."""

import numpy as np
from random_halves import halves

from kvdrive import abi


def inline_data(rng, heads, group, tokens, d):
    """Host scores int32 [heads, group, tokens] and V [heads, tokens, d], and both as a command carries them."""
    scores = rng.integers(-8 << 20, 8 << 20, (heads, group, tokens)).astype(np.int32)
    v = halves(rng, heads, tokens, d)
    padded = np.zeros((heads, group, -(-tokens // 16) * 16), np.int32)
    padded[..., :tokens] = scores
    return scores, v, np.concatenate([padded.reshape(-1).view(np.uint8), v.reshape(-1).view(np.uint8)])


def result_bytes(q: np.ndarray, out: np.dtype | type = np.float16) -> int:
    """Bytes of the answer to q [heads, g, d]: a record for every 8 query heads of a KV head, then the outputs."""
    records = len(q) * -(-q.shape[1] // abi.MAX_GROUP)
    return records * abi.AttentionResult.itemsize + q.size * np.dtype(out).itemsize


def split_result(data: np.ndarray, q: np.ndarray, out: np.dtype | type) -> tuple[dict[str, np.ndarray], np.ndarray]:
    """The records' per-head fields [heads, g], and the outputs [heads, g, d] as `out`, of the answer to q."""
    heads, group, _ = q.shape
    size = heads * -(-group // abi.MAX_GROUP) * abi.AttentionResult.itemsize
    records = data[:size].view(abi.AttentionResult)
    fields = {name: records[name].reshape(heads, -1)[:, :group] for name in ("max", "sum", "alpha")}
    return fields, data[size:].view(out).reshape(q.shape)
