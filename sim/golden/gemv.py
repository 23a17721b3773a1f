"""Exact matrix-vector products on binary16: every sum is an integer, dot products are rounded once.

A fixed-point binary16 number (magnitude below 2^40) is split into two 20-bit limbs, so that limb products and their
sums stay inside int64; blocks of tokens bound the memory. No block size changes a result, because sums are exact.
"""

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from golden import half, single, wide
from golden.abi import (
    COMMAND_GROUPS,
    COMMAND_HEAD_DIM_STEP,
    GROUP_SIZES,
    HEAD_DIM_STEP,
    LANES,
    MAX_HEAD_DIM,
    MAX_TOKENS,
    Status,
)
from golden.half import Half

_LIMB = 20
# p <= 2^31 times a limb below 2^20 (in magnitude at most 2^20): 2048 of them stay below 2^63.
_BLOCK_TOKENS = 2048
DOT_EXPONENT = -2 * half.FRACTION_BITS
P_LIMIT = 1 << 31


@dataclass(frozen=True)
class GemvResult:
    """`dots`: binary32 patterns uint32 [g, s]; zeros unless status is 0."""

    status: Status
    dots: NDArray[np.uint32]


@dataclass(frozen=True)
class AccumulateResult:
    """`acc` int64 [g, d, 2]: low and high word of 128-bit integers with LSB 2^-55; zeros unless status is 0."""

    status: Status
    acc: NDArray[np.int64]


class Shapes(NamedTuple):
    """Query heads per KV head, and the step of the head dimensions (from one step to MAX_HEAD_DIM)."""

    groups: tuple[int, ...]
    head_dim_step: int


COMMAND_SHAPES = Shapes(COMMAND_GROUPS, COMMAND_HEAD_DIM_STEP)  # shapes that the drive's commands accept
KERNEL_SHAPES = Shapes(GROUP_SIZES, HEAD_DIM_STEP)  # shapes that the kernels are built for


def check_group(g: int, shapes: Shapes = COMMAND_SHAPES) -> Status:
    """BAD_GROUP unless g is one of the groups."""
    return Status(0) if g in shapes.groups else Status.BAD_GROUP


def check_head_dim(d: int, shapes: Shapes = COMMAND_SHAPES) -> Status:
    """BAD_HEAD_DIM unless d is a multiple of the step, up to 256."""
    return (
        Status(0) if d in range(shapes.head_dim_step, MAX_HEAD_DIM + 1, shapes.head_dim_step) else Status.BAD_HEAD_DIM
    )


def check_tokens(tokens: int) -> Status:
    """BAD_LENGTH unless 1 <= tokens <= MAX_TOKENS."""
    return Status(0) if 1 <= tokens <= MAX_TOKENS else Status.BAD_LENGTH


def gemv_rows(q: Half, k: Half) -> GemvResult:
    """fl32(q . k_t) for q [g, d] and token-major k [s, d], binary16."""
    q, k = matrix(q, "q"), matrix(k, "k")
    if q.shape[1] != k.shape[1]:
        raise ValueError(f"q {q.shape} and k {k.shape} differ in their head dimension")
    status = check_group(len(q)) | check_head_dim(q.shape[1]) | check_tokens(len(k))
    if status == 0 and not (half.is_finite(q).all() and half.is_finite(k).all()):
        status = Status.NON_FINITE
    if status:
        return GemvResult(status, np.zeros((len(q), len(k)), np.uint32))
    return GemvResult(status, dots(q, k))


def gemv_columns(q: Half, k_columns: Half, tokens: int) -> GemvResult:
    """fl32(q . k_t) for q [g, r] and block-column k [ceil(tokens / 32), r, 32], binary16; 1 <= r <= 256 (BAD_R)."""
    q = matrix(q, "q")
    k = rows_of_columns(k_columns, tokens)
    if q.shape[1] != k.shape[1]:
        raise ValueError(f"q {q.shape} and k_columns {np.shape(k_columns)} differ in their number of rows")
    status = check_group(len(q)) | check_tokens(tokens)
    if not 1 <= q.shape[1] <= MAX_HEAD_DIM:
        status |= Status.BAD_R
    if status == 0 and not (half.is_finite(q).all() and half.is_finite(k).all()):
        status = Status.NON_FINITE
    if status:
        return GemvResult(status, np.zeros((len(q), tokens), np.uint32))
    return GemvResult(status, dots(q, k))


def block_columns(k_rows: Half) -> NDArray[np.float16]:
    """Token-major [s, r] to the block-column form [ceil(s / 32), r, 32]; lanes beyond s are zero. Keeps the dtype."""
    k_rows = matrix(k_rows, "k_rows", keep=True)
    s, r = k_rows.shape
    blocks = -(-s // LANES)
    padded = np.zeros((blocks * LANES, r), k_rows.dtype)
    padded[:s] = k_rows
    return np.ascontiguousarray(padded.reshape(blocks, LANES, r).transpose(0, 2, 1))


def rows_of_columns(k_columns: Half, tokens: int) -> NDArray[np.uint16]:
    """Block-column [ceil(tokens / 32), r, 32] back to token-major patterns [tokens, r], without the spare lanes."""
    columns = half.bits(k_columns)
    if columns.ndim != 3 or columns.shape[0] != -(-tokens // LANES) or columns.shape[2] != LANES:
        raise ValueError(f"k_columns must be [ceil(tokens / 32), r, 32], got {columns.shape} for {tokens} tokens")
    return columns.transpose(0, 2, 1).reshape(len(columns) * LANES, columns.shape[1])[:tokens]


def gemv_accumulate(p: NDArray[np.uint32], v: Half) -> AccumulateResult:
    """sum_t p_t * fixed(v_t), exact, for p uint32 [g, s] (LSB 2^-31, at most 2^31) and v [s, d] binary16.

    There is no mask here: an Inf or NaN in any row of v is NON_FINITE, whatever its p.
    """
    p, v = np.asarray(p), matrix(v, "v")
    if p.dtype != np.uint32 or p.ndim != 2 or p.shape[1] != len(v):
        raise ValueError(f"p must be uint32 [g, {len(v)}], got {p.dtype}{p.shape}")
    if (p > P_LIMIT).any():
        raise ValueError("a probability is above 1")
    status = check_group(len(p)) | check_head_dim(v.shape[1]) | check_tokens(len(v))
    if status == 0 and not half.is_finite(v).all():
        status = Status.NON_FINITE
    if status:
        return AccumulateResult(status, np.zeros((len(p), v.shape[1], 2), np.int64))
    return AccumulateResult(status, wide.pack(accumulate(p, v)))


def matrix(x: Half, name: str, keep: bool = False) -> NDArray[np.uint16]:
    """A two-dimensional binary16 array as patterns (or as it is with `keep`); ValueError otherwise."""
    patterns = half.bits(x)
    if patterns.ndim != 2:
        raise ValueError(f"{name} must have two dimensions, got {patterns.shape}")
    return np.asarray(x) if keep else patterns


def dots(q: NDArray[np.uint16], k: NDArray[np.uint16], block_tokens: int = _BLOCK_TOKENS) -> NDArray[np.uint32]:
    """fl32(q . k_t) as patterns [g, s] for patterns q [g, n], k [s, n]; Inf and NaN count as 0."""
    return single.from_wide(exact_dots(q, k, block_tokens), DOT_EXPONENT)


def exact_dots(q: NDArray[np.uint16], k: NDArray[np.uint16], block_tokens: int = _BLOCK_TOKENS) -> wide.Wide:
    """q . k_t [g, s] with LSB 2^-48 for patterns q [g, n], k [s, n], n below 2^21; Inf and NaN count as 0."""
    q_low, q_high = _limbs(half.fixed(q))
    result = wide.zeros((len(q), len(k)))
    for start in range(0, len(k), block_tokens):
        k_low, k_high = _limbs(half.fixed(k[start : start + block_tokens]).T)
        low = wide.from_int64(q_low @ k_low)
        middle = wide.from_int64(q_low @ k_high + q_high @ k_low, _LIMB)
        high = wide.from_int64(q_high @ k_high, 2 * _LIMB)
        total = wide.add(wide.add(low, middle), high)
        for words, found in zip(result, total, strict=True):
            words[:, start : start + block_tokens] = found
    return result


def accumulate(p: NDArray[np.uint32], v: NDArray[np.uint16], block_tokens: int = _BLOCK_TOKENS) -> wide.Wide:
    """sum_t p_t * fixed(v_t) [g, d] for p [g, s] and patterns v [s, d]; Inf and NaN count as 0.

    `block_tokens` is at most 2048, or int64 would overflow.
    """
    total = wide.zeros((len(p), v.shape[1]))
    for start in range(0, len(v), block_tokens):
        weights = p[:, start : start + block_tokens].astype(np.int64)
        low, high = _limbs(half.fixed(v[start : start + block_tokens]))
        total = wide.add(total, wide.from_int64(weights @ low))
        total = wide.add(total, wide.from_int64(weights @ high, _LIMB))
    return total


def _limbs(values: NDArray[np.int64]) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """(low, high) with values = high * 2^20 + low and 0 <= low < 2^20."""
    return values & ((1 << _LIMB) - 1), values >> _LIMB
