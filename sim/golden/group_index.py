"""The 2-bit index of K that policy groups stores: a range per span of 32 tokens and channel, a code per number."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from golden import gemv, half
from golden.abi import MAX_INDEX_EXPONENT, MIN_INDEX_EXPONENT, SPAN_TOKENS
from golden.half import Half

_LOWEST, _HIGHEST = -128, 127
_MOST_STEPS = 255
_MOST_CODE = 3


@dataclass(frozen=True)
class GroupIndex:
    """Index of n spans of d channels: `lo` int8 [n, d], `step` uint8 [n, d], `codes` uint8 [n, 32, d] in 0 to 3.

    `exponent` is e: `lo` counts 2^e, `step` 2^(e - 2), in LSB 2^-24. `saturated`: channels with a clamped range.
    """

    lo: NDArray[np.int8]
    step: NDArray[np.uint8]
    codes: NDArray[np.uint8]
    exponent: int
    saturated: int = 0

    @property
    def tokens(self) -> int:
        """Indexed tokens."""
        return len(self.lo) * SPAN_TOKENS

    def quarters(self, first: int = 0, end: int | None = None) -> NDArray[np.int64]:
        """What the codes of the spans first to end - 1 stand for, [32 (end - first), d] with LSB 2^(e - 26)."""
        lo, step, codes = (a[first:end].astype(np.int64) for a in (self.lo, self.step, self.codes))
        return (4 * lo[:, None] + step[:, None] * codes).reshape(-1, lo.shape[1])

    def to_bytes(self) -> NDArray[np.uint8]:
        """The spans as they lie in memory, uint8 [n, 10 d]."""
        n, d = self.lo.shape
        fields = self.codes.reshape(n, SPAN_TOKENS * d // 4, 4)
        packed = (fields << np.array([0, 2, 4, 6], np.uint8)).sum(axis=2).astype(np.uint8)
        return np.concatenate([self.lo.view(np.uint8), self.step, packed], axis=1)


def from_bytes(spans: NDArray[np.uint8], exponent: int) -> GroupIndex:
    """Inverse of `GroupIndex.to_bytes`; any bytes are an index."""
    spans = np.asarray(spans)
    if spans.dtype != np.uint8 or spans.ndim != 2 or spans.shape[1] % (SPAN_TOKENS // 4 + 2):
        raise ValueError(f"expected uint8 [spans, 10 d], got {spans.dtype}{spans.shape}")
    n, d = len(spans), spans.shape[1] // (SPAN_TOKENS // 4 + 2)
    codes = (spans[:, 2 * d :, None] >> np.array([0, 2, 4, 6], np.uint8)) & _MOST_CODE
    lo = np.ascontiguousarray(spans[:, :d]).view(np.int8)
    return GroupIndex(lo, spans[:, d : 2 * d].copy(), codes.reshape(n, SPAN_TOKENS, d), exponent)


def index_exponent(k: Half) -> int:
    """e for the K [t, d] of a head's first append: the smallest with max |fixed(k)| <= 127 * 2^e, from 2 to 34."""
    top = int(np.abs(half.fixed(gemv.matrix(k, "k"))).max(initial=0))
    exponent = MIN_INDEX_EXPONENT
    while top > _HIGHEST << exponent:
        exponent += 1
    assert exponent <= MAX_INDEX_EXPONENT
    return exponent


def build_index(k: Half, exponent: int | None = None) -> GroupIndex:
    """Index of the complete spans of k [s, d]; `exponent` is e (default: `index_exponent(k)`).

    Inf and NaN count as 0.
    """
    k = gemv.matrix(k, "k")
    e = index_exponent(k) if exponent is None else exponent
    n, d = len(k) // SPAN_TOKENS, k.shape[1]
    value = half.fixed(k[: n * SPAN_TOKENS]).reshape(n, SPAN_TOKENS, d)
    exact_lo = value.min(axis=1) >> e
    lo = np.clip(exact_lo, _LOWEST, _HIGHEST)
    exact_step = -(-4 * (value.max(axis=1) - (lo << e)) // (3 << e))
    step = np.clip(exact_step, 1, _MOST_STEPS)
    width = (step << e)[:, None]
    codes = np.clip((8 * (value - (lo << e)[:, None]) + width) // (2 * width), 0, _MOST_CODE)
    saturated = int(np.count_nonzero((lo != exact_lo) | (exact_step > _MOST_STEPS)))
    return GroupIndex(lo.astype(np.int8), step.astype(np.uint8), codes.astype(np.uint8), e, saturated)
