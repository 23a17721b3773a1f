"""Scores, and the base-2 softmax with an integer maximum."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from golden import bitmap as bitmaps
from golden import single
from golden.abi import SCORE_FRACTION_BITS, Status
from golden.exp2 import probability
from golden.gemv import check_tokens


@dataclass(frozen=True)
class SoftmaxResult:
    """`p` uint32 [dense + tail] and `sum` with LSB 2^-31, `max` M; zeros unless status is 0."""

    status: Status
    p: NDArray[np.uint32]
    max: int
    sum: int


def scores(dots: NDArray[np.uint32], scale_log2e: int | NDArray[np.uint32]) -> NDArray[np.int32]:
    """Q12.20 scores of dot products: sat_int32(RNE(fl32(dot * c) * 2^20)); patterns in, c broadcasts and is finite."""
    return single.to_score(single.mul(single.patterns(dots), np.asarray(scale_log2e).astype(np.uint32)))


def softmax(
    dense: NDArray[np.int32], valid: NDArray[np.uint8] | None = None, tail: NDArray[np.int32] | None = None
) -> SoftmaxResult:
    """Probabilities of one head's scores: `dense` int32 [s] under the bitmap `valid`, then `tail` int32 [t].

    BAD_LENGTH unless 1 <= s + t <= MAX_TOKENS; EMPTY without any valid token.
    """
    tail = np.zeros(0, np.int32) if tail is None else np.asarray(tail)
    dense = np.asarray(dense)
    for name, x in (("dense", dense), ("tail", tail)):
        if x.dtype != np.int32 or x.ndim != 1:
            raise ValueError(f"{name} scores must be int32 with one dimension, got {x.dtype}{x.shape}")
    flags = np.concatenate([bitmaps.to_flags(valid, dense.size), np.ones(tail.size, np.bool_)])
    status = check_tokens(flags.size)
    if status == 0 and not flags.any():
        status = Status.EMPTY
    if status:
        return SoftmaxResult(status, np.zeros(flags.size, np.uint32), 0, 0)
    return _softmax(np.concatenate([dense, tail]).astype(np.int64), flags)


def _softmax(x: NDArray[np.int64], flags: NDArray[np.bool_]) -> SoftmaxResult:
    maximum = -(-int(x[flags].max()) >> SCORE_FRACTION_BITS)
    y = np.where(flags, x - (maximum << SCORE_FRACTION_BITS), 0)
    p = np.where(flags, probability(y), np.uint32(0))
    return SoftmaxResult(Status(0), p, maximum, int(p.sum(dtype=np.uint64)))
