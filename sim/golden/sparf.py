"""SparF: attention from a few embedding rows and a few tokens, as three jobs and as their composition."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from golden import bitmap as bitmaps
from golden import gemv, half, single, wide
from golden.abi import BEAT_BITS, MAX_TOKENS, MAX_TOP_K, WEIGHT_BITS, Status
from golden.argtopk import argtopk
from golden.attention import AttentionResult, check_scale, empty_result, make_inline, scale_bits
from golden.attention import attention as exact_attention
from golden.half import Half
from golden.single import Single
from golden.softmax import scores, softmax

_LOCAL_KEY = 0x7F7FFFFF
_MASKED_KEY = 0xFF7FFFFF
_ONE = np.uint32(0x3F800000)


@dataclass(frozen=True)
class RowsResult:
    """`rows` uint8 [64]: bitmap of embedding rows; `scale` uint32 [g]: patterns of c_h; zeros unless status is 0."""

    status: Status
    rows: NDArray[np.uint8]
    scale: NDArray[np.uint32]


@dataclass(frozen=True)
class TokensResult:
    """`bitmap` of the chosen dense tokens, their number, and per head M, Z (LSB 2^-31) and the pattern of alpha."""

    status: Status
    bitmap: NDArray[np.uint8]
    selected: int
    max: NDArray[np.int32]
    sum: NDArray[np.uint64]
    alpha: NDArray[np.uint32]


@dataclass(frozen=True)
class SparfResult:
    """Outputs of the three jobs: `out` float16 [g, d], `rows`, `bitmap`, `alpha`; `max`, `sum` of the last job."""

    status: Status
    out: NDArray[np.float16]
    rows: NDArray[np.uint8]
    bitmap: NDArray[np.uint8]
    alpha: NDArray[np.uint32]
    max: NDArray[np.int32]
    sum: NDArray[np.uint64]


def sparf_rows(q: Half, r: int, scale_log2e: int) -> RowsResult:
    """Choose the r embedding rows of q [g, d] with the largest sum of magnitudes, and the score scale of each head."""
    q = gemv.matrix(q, "q")
    g, d = q.shape
    status = gemv.check_group(g) | gemv.check_head_dim(d) | check_scale(np.array([scale_log2e], np.uint32))
    if not 1 <= r <= d:
        status |= Status.BAD_R
    if status == 0 and not half.is_finite(q).all():
        status = Status.NON_FINITE
    if status:
        return RowsResult(status, bitmaps.zeros(BEAT_BITS), np.zeros(g, np.uint32))
    magnitude = np.abs(half.fixed(q))
    chosen = argtopk(single.from_wide(magnitude.sum(axis=0), -half.FRACTION_BITS), r)
    kept = magnitude[:, chosen.indices].sum(axis=1)
    ratio = single.div(
        single.from_wide(magnitude.sum(axis=1), -half.FRACTION_BITS), single.from_wide(kept, -half.FRACTION_BITS)
    )
    c = np.uint32(scale_log2e)
    scale = np.where(kept == 0, c, single.mul(np.full(g, c), single.sqrt(ratio)))
    return RowsResult(status, bitmaps.from_indices(chosen.indices, BEAT_BITS), scale.astype(np.uint32))


def sparf_tokens(
    q: Half,
    k_columns: Half,
    rows: NDArray[np.uint8],
    tokens: int,
    k_top: int,
    local: int,
    scale: Single,
    valid: NDArray[np.uint8] | None = None,
    inline_scores: NDArray[np.int32] | None = None,
) -> TokensResult:
    """Choose k_top of the dense tokens from the chosen rows of K, [ceil(tokens / 32), r, 32] binary16.

    `rows` and `scale` (patterns [g]) come from `sparf_rows`; the last `local` tokens are chosen before any other.
    """
    q = gemv.matrix(q, "q")
    g, d = q.shape
    k = gemv.rows_of_columns(k_columns, tokens)
    flags = bitmaps.to_flags(valid, tokens)
    inline = make_inline(inline_scores, None, g, d, need_v=False)
    scale = single.patterns(scale)
    embedding = np.flatnonzero(bitmaps.to_flags(rows, d))
    status = gemv.check_group(g) | gemv.check_head_dim(d) | gemv.check_tokens(tokens + len(inline.v))
    status |= check_scale(scale) | _check_choice(tokens, k_top, local)
    if not 1 <= k.shape[1] <= d or embedding.size != k.shape[1]:
        status |= Status.BAD_R
    if status == 0:
        finite = half.is_finite(q).all() and half.is_finite(k[flags]).all()
        status |= Status(0) if finite else Status.NON_FINITE
        status |= Status(0) if flags.any() or len(inline.v) else Status.EMPTY
    if status:
        zeros = np.zeros(g, np.uint32)
        return TokensResult(status, bitmaps.zeros(tokens), 0, zeros.astype(np.int32), zeros.astype(np.uint64), zeros)
    dense = scores(gemv.dots(q[:, embedding], k), scale[:, None])
    heads = [softmax(x, valid, t) for x, t in zip(dense, inline.scores, strict=True)]
    p = np.stack([head.p for head in heads])
    sums = np.array([head.sum for head in heads], np.uint64)
    chosen = argtopk(token_keys(p[:, :tokens], sums, flags, local), k_top).indices
    chosen = chosen[flags[chosen]]
    mass = p[:, chosen].sum(axis=1, dtype=np.int64) + p[:, tokens:].sum(axis=1, dtype=np.int64)
    alpha = single.ratio_to_single(wide.from_int64(mass), sums, lsb_exponent=0)
    maxima = np.array([head.max for head in heads], np.int32)
    return TokensResult(status, bitmaps.from_indices(chosen, tokens), chosen.size, maxima, sums, alpha)


def _check_choice(tokens: int, k_top: int, local: int) -> Status:
    status = Status(0) if tokens else Status.BAD_LENGTH
    if not 1 <= k_top <= min(tokens, MAX_TOP_K) or local > k_top:
        status |= Status.BAD_K
    return status


def token_keys(
    p: NDArray[np.uint32], sums: NDArray[np.uint64], flags: NDArray[np.bool_], local: int
) -> NDArray[np.uint32]:
    """Keys [s] of the dense tokens for p [g, s], Z [g]: head-weighted mass, then the local window, then the mask."""
    smallest = int(sums.min())
    weights = np.array([(smallest << WEIGHT_BITS) // int(z) for z in sums], np.int64)
    keys = single.from_wide((p.astype(np.int64) * weights[:, None]).sum(axis=0), 0)
    keys[len(keys) - local :] = _LOCAL_KEY
    keys[~flags] = _MASKED_KEY
    return keys


def sparf_attend(
    q: Half,
    k: Half,
    v: Half,
    v_sum: NDArray[np.int64],
    count: int,
    alpha: Single,
    scale_log2e: int,
    valid: NDArray[np.uint8] | None = None,
    inline_scores: NDArray[np.int32] | None = None,
    inline_v: Half | None = None,
) -> AttentionResult:
    """Attention over the chosen tokens k, v [n, d] and the inline tokens, blended with the mean of all V.

    `v_sum` int64 [d] (LSB 2^-24) over `count` tokens; `alpha` patterns [g] from `sparf_tokens`.
    """
    v_sum, alpha = np.asarray(v_sum), single.patterns(alpha)
    o = exact_attention(
        q, k, v, scale_log2e=scale_log2e, valid=valid, inline_scores=inline_scores, inline_v=inline_v, partial=True
    )
    g, d = o.out.shape
    if v_sum.dtype != np.int64 or v_sum.shape != (d,) or alpha.shape != (g,):
        raise ValueError(f"v_sum must be int64 [{d}] and alpha [{g}], got {v_sum.dtype}{v_sum.shape}, {alpha.shape}")
    status = o.status
    if not 1 <= count <= MAX_TOKENS:
        status = (status | Status.BAD_LENGTH) & ~(Status.NON_FINITE | Status.EMPTY)
    if status:
        return empty_result(status, g, d, partial=False)
    mean = single.ratio_to_single(wide.from_int64(v_sum), np.array([count], np.uint64))
    beta = single.add(np.full(g, _ONE), alpha ^ np.uint32(single.SIGN))
    near = single.mul(alpha[:, None], single.patterns(o.out))
    out = single.add(near, single.mul(beta[:, None], mean))
    return AttentionResult(status, half.from_float32_bits(out).view(np.float16), o.max, o.sum)


def v_sum(v: Half, valid: NDArray[np.uint8] | None = None) -> NDArray[np.int64]:
    """Sum of the valid rows of v [s, d], int64 [d] with LSB 2^-24. ValueError for Inf or NaN in them."""
    v = gemv.matrix(v, "v")
    v = v[bitmaps.to_flags(valid, len(v))]
    if not half.is_finite(v).all():
        raise ValueError("v holds Inf or NaN")
    total: NDArray[np.int64] = half.fixed(v).sum(axis=0)
    return total


def sparf(
    q: Half,
    k: Half,
    v: Half,
    *,
    r: int,
    k_top: int,
    local: int,
    scale_log2e: int | None = None,
    valid: NDArray[np.uint8] | None = None,
    inline_scores: NDArray[np.int32] | None = None,
    inline_v: Half | None = None,
) -> SparfResult:
    """The three jobs one after the other, with the caller's page fetches between them done on arrays.

    Shapes and status bits as in `attention` and the three jobs; the first job that fails ends the composition.
    An Inf or NaN in any valid row of v is NON_FINITE, because the mean uses every row.
    """
    q, k, v = gemv.matrix(q, "q"), gemv.matrix(k, "k"), gemv.matrix(v, "v")
    (g, d), s = q.shape, len(k)
    if k.shape[1] != d or v.shape != k.shape:
        raise ValueError(f"q {q.shape}, k {k.shape} and v {v.shape} do not fit")
    inline = make_inline(inline_scores, inline_v, g, d)
    flags = bitmaps.to_flags(valid, s)
    c = scale_bits(None, d) if scale_log2e is None else int(scale_log2e)
    first = sparf_rows(q, r, c)
    if first.status:
        return _sparf_failed(first.status, g, d, s)
    columns = gemv.block_columns(k[:, np.flatnonzero(bitmaps.to_flags(first.rows, d))])
    second = sparf_tokens(q, columns, first.rows, s, k_top, local, first.scale, valid, inline.scores)
    status = second.status
    if status == 0 and not (half.is_finite(v[flags]).all() and half.is_finite(inline.v).all()):
        status = Status.NON_FINITE
    if status:
        return _sparf_failed(status, g, d, s)
    chosen = bitmaps.to_flags(second.bitmap, s)
    total = v_sum(v, valid) + v_sum(inline.v)
    count = int(flags.sum()) + len(inline.v)
    third = sparf_attend(
        q, k[chosen], v[chosen], total, count, second.alpha, c, inline_scores=inline.scores, inline_v=inline.v
    )
    if third.status:
        return _sparf_failed(third.status, g, d, s)
    return SparfResult(third.status, third.out, first.rows, second.bitmap, second.alpha, third.max, third.sum)


def _sparf_failed(status: Status, g: int, d: int, s: int) -> SparfResult:
    zero = empty_result(status, g, d, partial=False)
    return SparfResult(
        status, zero.out, bitmaps.zeros(BEAT_BITS), bitmaps.zeros(s), np.zeros(g, np.uint32), zero.max, zero.sum
    )
