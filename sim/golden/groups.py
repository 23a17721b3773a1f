"""Policy groups: attention to the units of tokens that a 2-bit index of K deems most important (docs/arithmetic.md)."""

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from golden import bitmap as bitmaps
from golden import gemv, half, single, wide
from golden.abi import (
    MAX_INDEX_EXPONENT,
    MIN_INDEX_EXPONENT,
    SPAN_TOKENS,
    UNIT_TOKENS,
    WEIGHT_BITS,
    Status,
)
from golden.argtopk import argtopk
from golden.attention import attention, check_scale, empty_result, make_inline, scale_bits
from golden.group_index import GroupIndex, build_index
from golden.half import Half
from golden.rounding import round_shift
from golden.softmax import scores, softmax

FORCED_KEY = 0x7F7FFFFF
_QUERY_LIMIT = 127
_BLOCK_SPANS = 64
LIMIT_BITS = 16  # fraction bits of the share that may be left unread


@dataclass(frozen=True)
class ChoiceResult:
    """`bitmap` of the chosen units, their number, and per head M, Z and the mass of the other units (LSB 2^-31).

    All zero unless status is 0.
    """

    status: Status
    bitmap: NDArray[np.uint8]
    selected: int
    max: NDArray[np.int32]
    sum: NDArray[np.uint64]
    unread: NDArray[np.uint64]


@dataclass(frozen=True)
class GroupsResult:
    """`out` [g, d], `max`, `sum` of the attention; `choice`; bool `read` [s]; `left` float64 [g], an estimate."""

    status: Status
    out: NDArray[Any]
    max: NDArray[np.int32]
    sum: NDArray[np.uint64]
    choice: ChoiceResult
    read: NDArray[np.bool_]
    left: NDArray[np.float64]


def units_of(tokens: int, unit: int) -> int:
    """Units of `unit` tokens that hold `tokens` indexed tokens."""
    return -(-tokens // unit)


def quantise_queries(q: Half) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """(q8 [g, d] in -127 to 127, f [g]) of q [g, d]: q is close to q8 * 2^(f - 24)."""
    value = half.fixed(gemv.matrix(q, "q"))
    shifts = np.array([_shift(int(top)) for top in np.abs(value).max(axis=1)], np.int64)
    magnitude = round_shift(np.abs(value).astype(np.uint64), shifts[:, None]).astype(np.int64)
    return np.where(value < 0, -magnitude, magnitude), shifts


def _shift(top: int) -> int:
    shift = 0
    while top > _QUERY_LIMIT << shift:
        shift += 1
    return shift


def group_scores(q: Half, index: GroupIndex, scale_log2e: int) -> NDArray[np.int32]:
    """Q12.20 scores [g, 32 n] of q [g, d] with the indexed tokens; `scale_log2e` is the pattern of c."""
    q8, shifts = quantise_queries(q)
    sums = np.zeros((len(q8), len(index.lo) * SPAN_TOKENS), np.int64)
    for first in range(0, len(index.lo), _BLOCK_SPANS):
        k = index.quarters(first, first + _BLOCK_SPANS)
        sums[:, first * SPAN_TOKENS : first * SPAN_TOKENS + len(k)] = q8 @ k.T
    lsb = shifts + index.exponent - 2 - 2 * half.FRACTION_BITS
    dots = np.stack([single.from_wide(s, int(exponent)) for s, exponent in zip(sums, lsb, strict=True)])
    return scores(dots, scale_log2e)


def unit_keys(mass: NDArray[np.int64], sums: NDArray[np.uint64]) -> NDArray[np.uint32]:
    """Keys [units] from the masses int64 [g, units] and Z [g]: head-weighted, the first and the last unit forced."""
    smallest = int(sums.min())
    weights = [(smallest << WEIGHT_BITS) // int(z) for z in sums]
    total = sum(row.astype(object) * weight for row, weight in zip(mass, weights, strict=True))
    keys = single.from_wide(wide.from_ints(total), 0)
    keys[[0, -1]] = FORCED_KEY
    return keys


def group_choice(
    q: Half,
    index: GroupIndex,
    unit: int,
    k_top: int,
    scale_log2e: int,
    valid: NDArray[np.uint8] | None = None,
    inline_scores: NDArray[np.int32] | None = None,
) -> ChoiceResult:
    """Choose k_top units of `unit` tokens for q [g, d] from the index; `valid` is a bitmap of the indexed tokens.

    Status: BAD_GROUP, BAD_HEAD_DIM, BAD_LENGTH, BAD_K, BAD_UNIT, BAD_EXPONENT, BAD_SCALE, NON_FINITE (of q), EMPTY.
    """
    q = gemv.matrix(q, "q")
    g, d = q.shape
    tokens = index.tokens
    if index.lo.shape[1] != d:
        raise ValueError(f"q {q.shape} and an index of {index.lo.shape[1]} channels do not fit")
    flags = bitmaps.to_flags(valid, tokens)
    inline = make_inline(inline_scores, None, g, d, need_v=False)
    status = gemv.check_group(g) | gemv.check_head_dim(d) | gemv.check_tokens(tokens + len(inline.v))
    status |= check_scale(np.array([scale_log2e], np.uint32)) | check_choice(tokens, unit, k_top, index.exponent)
    if status == 0:
        status |= Status(0) if half.is_finite(q).all() else Status.NON_FINITE
        status |= Status(0) if flags.any() or len(inline.v) else Status.EMPTY
    if status:
        return no_choice(status, g, units_of(tokens, unit) if unit in UNIT_TOKENS else 0)
    units = units_of(tokens, unit)
    heads = [softmax(x, valid, t) for x, t in zip(group_scores(q, index, scale_log2e), inline.scores, strict=True)]
    p = np.zeros((g, units * unit), np.int64)
    p[:, :tokens] = [head.p[:tokens] for head in heads]
    mass = p.reshape(g, units, unit).sum(axis=2)
    sums = np.array([head.sum for head in heads], np.uint64)
    bitmap = argtopk(unit_keys(mass, sums), k_top).bitmap
    unread = mass[:, ~bitmaps.to_flags(bitmap, units)].sum(axis=1).astype(np.uint64)
    return ChoiceResult(status, bitmap, k_top, np.array([head.max for head in heads], np.int32), sums, unread)


def limited_choice(
    q: Half,
    index: GroupIndex,
    unit: int,
    k_top: int,
    limit: int,
    scale_log2e: int,
    valid: NDArray[np.uint8] | None = None,
    inline_scores: NDArray[np.int32] | None = None,
) -> ChoiceResult:
    """`group_choice` with k_top units or more: so many that each head leaves at most limit / 65536 of Z unread.

    No limit if it is 0.
    """
    while True:
        choice = group_choice(q, index, unit, k_top, scale_log2e, valid, inline_scores)
        units = units_of(index.tokens, unit)
        if choice.status or k_top == units or not limit or not _leaves_more(choice, limit):
            return choice
        k_top = min(units, k_top + (k_top + 1) // 2)


def _leaves_more(choice: ChoiceResult, limit: int) -> bool:
    heads = zip(choice.unread, choice.sum, strict=True)
    return any(int(unread) > int(total) * limit >> LIMIT_BITS for unread, total in heads)


def check_choice(tokens: int, unit: int, k_top: int, exponent: int) -> Status:
    """The status bits of a choice that depend on these numbers only."""
    status = Status(0) if tokens and tokens % SPAN_TOKENS == 0 else Status.BAD_LENGTH
    if exponent not in range(MIN_INDEX_EXPONENT, MAX_INDEX_EXPONENT + 1):
        status |= Status.BAD_EXPONENT
    if unit not in UNIT_TOKENS:
        return status | Status.BAD_UNIT
    return status if 1 <= k_top <= units_of(tokens, unit) else status | Status.BAD_K


def no_choice(status: Status, g: int, units: int) -> ChoiceResult:
    """A result of zeros with a status."""
    zeros = np.zeros(g, np.uint64)
    return ChoiceResult(status, bitmaps.zeros(units), 0, np.zeros(g, np.int32), zeros, zeros)


def chosen_tokens(choice: ChoiceResult, unit: int, indexed: int, tokens: int) -> NDArray[np.bool_]:
    """bool [tokens]: tokens of the chosen units, and those from `indexed` on."""
    units = bitmaps.to_flags(choice.bitmap, units_of(indexed, unit))
    return np.concatenate([np.repeat(units, unit)[:indexed], np.ones(tokens - indexed, np.bool_)])


def groups(
    q: Half,
    k: Half,
    v: Half,
    *,
    unit: int,
    k_top: int,
    exponent: int | None = None,
    scale_log2e: int | None = None,
    valid: NDArray[np.uint8] | None = None,
    inline_scores: NDArray[np.int32] | None = None,
    inline_v: Half | None = None,
    partial: bool = False,
    limit: int = 0,
) -> GroupsResult:
    """The whole policy: index, choice, attention to what was chosen, with the caller's page reads done on arrays.

    Shapes as in `attention`. `exponent` is the e of the index (default: as if all of k came with the first append).
    `k_top` is not checked if no token is indexed. `limit`: as in `limited_choice`.
    """
    q, k, v = gemv.matrix(q, "q"), gemv.matrix(k, "k"), gemv.matrix(v, "v")
    (g, d), s = q.shape, len(k)
    inline = make_inline(inline_scores, inline_v, g, d)
    flags = bitmaps.to_flags(valid, s)
    c = scale_bits(None, d) if scale_log2e is None else int(scale_log2e)
    index = build_index(k, exponent)
    choice = no_choice(Status.EMPTY, g, 0)
    if index.tokens:
        choice = limited_choice(q, index, unit, k_top, limit, c, np.packbits(flags, bitorder="little"), inline.scores)
    if choice.status not in (Status(0), Status.EMPTY):
        failed = empty_result(choice.status, g, d, partial)
        return GroupsResult(
            choice.status, failed.out, failed.max, failed.sum, choice, np.zeros(s, np.bool_), np.zeros(g)
        )
    read = chosen_tokens(choice, unit, index.tokens, s) & flags
    wanted = np.packbits(read, bitorder="little")
    result = attention(
        q, k, v, scale_log2e=c, valid=wanted, inline_scores=inline.scores, inline_v=inline.v, partial=partial
    )
    left = np.zeros(g) if result.status else left_out(choice, result.max, result.sum)
    return GroupsResult(result.status, result.out, result.max, result.sum, choice, read, left)


def left_out(choice: ChoiceResult, maxima: NDArray[np.int32], sums: NDArray[np.uint64]) -> NDArray[np.float64]:
    """Estimated share [g] of the softmax in the units that were not chosen; `maxima`, `sums` of the attention."""
    unread = choice.unread.astype(np.float64)
    with np.errstate(over="ignore"):
        read = np.ldexp(sums.astype(np.float64), maxima - choice.max)
    return np.divide(unread, unread + read, out=np.zeros(len(unread)), where=unread > 0)
