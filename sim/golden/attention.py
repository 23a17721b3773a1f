"""Exact attention of one KV head for its g query heads, and partial results of it."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from golden import bitmap as bitmaps
from golden import gemv, half, single
from golden.abi import Status
from golden.half import Half
from golden.single import Single
from golden.softmax import scores, softmax
from golden.wide import Wide


@dataclass(frozen=True)
class AttentionResult:
    """`out` float16 [g, d] (float32 for partial jobs), `max` int32 [g], `sum` uint64 [g] (LSB 2^-31).

    All zero unless status is 0.
    """

    status: Status
    out: NDArray[Any]
    max: NDArray[np.int32]
    sum: NDArray[np.uint64]


@dataclass(frozen=True)
class Inline:
    """Tokens whose scores come from the host: `scores` int32 [g, t], `v` binary16 patterns [t, d]."""

    scores: NDArray[np.int32]
    v: NDArray[np.uint16]


def scale_bits(scale: float | None, d: int) -> int:
    """The pattern of c = fl32(scale * log2 e), scale = 1 / sqrt(d) by default; the product in float64."""
    factor = (1.0 / math.sqrt(d) if scale is None else scale) * math.log2(math.e)
    return int(np.float32(factor).view(np.uint32))


def attention(
    q: Half,
    k: Half,
    v: Half,
    *,
    scale_log2e: int | None = None,
    valid: NDArray[np.uint8] | None = None,
    inline_scores: NDArray[np.int32] | None = None,
    inline_v: Half | None = None,
    partial: bool = False,
) -> AttentionResult:
    """Attention of q [g, d] over k, v [s, d] (binary16) and t inline tokens: scores int32 [g, t], v [t, d].

    `scale_log2e` is the binary32 pattern of c (default: `scale_bits(None, d)`), `valid` a bitmap of the dense tokens.
    With `partial`, `out` is binary32 for `merge_partials`. Status: BAD_GROUP, BAD_HEAD_DIM, BAD_LENGTH, BAD_SCALE,
    NON_FINITE, EMPTY.
    """
    q, k, v = gemv.matrix(q, "q"), gemv.matrix(k, "k"), gemv.matrix(v, "v")
    g, d = q.shape
    if k.shape[1] != d or v.shape != k.shape:
        raise ValueError(f"q {q.shape}, k {k.shape} and v {v.shape} do not fit")
    inline = make_inline(inline_scores, inline_v, g, d)
    flags = bitmaps.to_flags(valid, len(k))
    c = scale_bits(None, d) if scale_log2e is None else int(scale_log2e)
    status = gemv.check_group(g) | gemv.check_head_dim(d) | gemv.check_tokens(len(k) + len(inline.v))
    status |= check_scale(np.array([c], np.uint32))
    if status == 0:
        status = _check_data(q, k, v, flags, inline)
    if status:
        return empty_result(status, g, d, partial)
    acc, maxima, sums = _weigh(scores(gemv.dots(q, k), c), v, valid, inline)
    if partial:
        out = single.ratio_to_single(acc, sums[:, None]).view(np.float32)
    else:
        out = single.ratio_to_half(acc, sums[:, None]).view(np.float16)
    return AttentionResult(status, out, maxima, sums)


def _weigh(
    dense: NDArray[np.int32], v: NDArray[np.uint16], valid: NDArray[np.uint8] | None, inline: Inline
) -> tuple[Wide, NDArray[np.int32], NDArray[np.uint64]]:
    """(acc [g, d], M [g], Z [g]) of scores [g, s] and v [s, d], with inline tokens; masked rows of v may be Inf."""
    heads = [softmax(x, valid, t) for x, t in zip(dense, inline.scores, strict=True)]
    p = np.stack([head.p for head in heads])
    acc = gemv.accumulate(p, np.concatenate([v, inline.v]))
    return acc, np.array([h.max for h in heads], np.int32), np.array([h.sum for h in heads], np.uint64)


def merge_partials(parts: Sequence[AttentionResult]) -> NDArray[np.float32]:
    """Attention [g, d] over the union of disjoint token sets from their partial results (`partial=True`).

    Weights are sum * 2^max, in float64. The result is close to one job over all tokens, but not bit-identical to it.
    EMPTY parts have weight 0. Raises ValueError if no part holds a token.
    """
    parts = [part for part in parts if part.status == 0]
    if not parts:
        raise ValueError("no partial result holds a token")
    reference = np.max([part.max for part in parts], axis=0)
    weights = [np.ldexp(part.sum.astype(np.float64), part.max - reference)[:, None] for part in parts]
    total = sum(w * part.out.astype(np.float64) for w, part in zip(weights, parts, strict=True))
    return np.asarray(total / sum(weights), np.float32)


def make_inline(
    inline_scores: NDArray[np.int32] | None, inline_v: Half | None, g: int, d: int, need_v: bool = True
) -> Inline:
    """Inline tokens of checked shapes; without `need_v` its values are zeros. ValueError if shapes do not fit."""
    x = np.zeros((g, 0), np.int32) if inline_scores is None else np.asarray(inline_scores)
    if x.dtype != np.int32 or x.ndim != 2 or len(x) != g:
        raise ValueError(f"inline_scores must be int32 [{g}, t], got {x.dtype}{x.shape}")
    if not need_v or inline_v is None:
        v = np.zeros((x.shape[1] if not need_v else 0, d), np.uint16)
    else:
        v = gemv.matrix(inline_v, "inline_v")
    if v.shape != (x.shape[1], d):
        raise ValueError(f"inline_v must be [{x.shape[1]}, {d}], got {v.shape}")
    return Inline(x, v)


def empty_result(status: Status, g: int, d: int, partial: bool) -> AttentionResult:
    """A result of zeros with a status."""
    out = np.zeros((g, d), np.float32 if partial else np.float16)
    return AttentionResult(status, out, np.zeros(g, np.int32), np.zeros(g, np.uint64))


def check_scale(scale: Single) -> Status:
    """BAD_SCALE unless all patterns are finite."""
    return Status(0) if single.is_finite(scale).all() else Status.BAD_SCALE


def _check_data(
    q: NDArray[np.uint16], k: NDArray[np.uint16], v: NDArray[np.uint16], flags: NDArray[np.bool_], inline: Inline
) -> Status:
    """The status bits NON_FINITE and EMPTY, of which both may be set."""
    used = (q, k[flags], v[flags], inline.v)
    status = Status(0) if all(half.is_finite(x).all() for x in used) else Status.NON_FINITE
    if not flags.any() and len(inline.v) == 0:
        status |= Status.EMPTY
    return status
