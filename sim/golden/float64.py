"""The same algorithms in plain float64. They measure errors; their bits are never compared.

They follow the papers' formulas and use none of the integer modules, so that both cannot share a mistake. Arrays have
any real dtype and are converted to float64; masks are boolean arrays (True = attend). Nothing is quantised.
"""

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

Real = NDArray[np.float64]
Mask = NDArray[np.bool_]


@dataclass(frozen=True)
class Sparf:
    """`out` [g, d]; `rows` and `tokens`: chosen indices, ascending; `alpha` [g]: mass of the chosen tokens."""

    out: Real
    rows: NDArray[np.intp]
    tokens: NDArray[np.intp]
    alpha: Real


@dataclass(frozen=True)
class Groups:
    """`out` [g, d]; `units`: chosen indices, ascending; `left` [g]: estimated mass of what was not read."""

    out: Real
    units: NDArray[np.intp]
    left: Real


def _real(x: ArrayLike) -> Real:
    return np.asarray(x).astype(np.float64)


def argtopk(keys: ArrayLike, k: int) -> NDArray[np.intp]:
    """Indices, ascending, of the k largest keys; among equal keys the lowest index wins."""
    values = _real(keys)
    return np.sort(np.lexsort((np.arange(values.size), -values))[:k])


def page_filter(
    pages: NDArray[np.uint8], wanted: Mask, row_bytes: int, page_bytes: int
) -> tuple[NDArray[np.uint8], NDArray[np.uint8]]:
    """(kept rows uint8, 1 per needed page) of whole pages; `wanted` [rows] numbers rows across pages."""
    per_page = page_bytes // row_bytes
    kept = []
    needed = np.zeros(len(pages) // page_bytes, np.uint8)
    for row in np.flatnonzero(wanted):
        page, slot = divmod(int(row), per_page)
        start = page * page_bytes + slot * row_bytes
        kept.append(pages[start : start + row_bytes])
        needed[page] = 1
    return np.concatenate(kept) if kept else np.zeros(0, np.uint8), needed


def gemv_rows(q: ArrayLike, k: ArrayLike) -> Real:
    """q [g, d] times token-major k [s, d] -> [g, s]."""
    result: Real = _real(q) @ _real(k).T
    return result


def gemv_columns(q: ArrayLike, k_columns: ArrayLike, tokens: int) -> Real:
    """q [g, r] times block-column k [blocks, r, 32] -> [g, tokens]."""
    blocks = np.einsum("gr,brt->gbt", _real(q), _real(k_columns))
    dots: Real = blocks.reshape(len(blocks), -1)[:, :tokens]
    return dots


def gemv_accumulate(p: ArrayLike, v: ArrayLike) -> Real:
    """p [g, s] times v [s, d] -> [g, d]."""
    result: Real = _real(p) @ _real(v)
    return result


def softmax(scores: ArrayLike, mask: Mask | None = None) -> Real:
    """Softmax (base e) over the last axis, 0 where `mask` is False."""
    x = _real(scores)
    if mask is not None:
        x = np.where(mask, x, -np.inf)
    weights = np.exp(x - x.max(axis=-1, keepdims=True))
    p: Real = weights / weights.sum(axis=-1, keepdims=True)
    return p


def attention(
    q: ArrayLike,
    k: ArrayLike,
    v: ArrayLike,
    *,
    scale: float | None = None,
    mask: Mask | None = None,
    inline_scores: ArrayLike | None = None,
    inline_v: ArrayLike | None = None,
) -> Real:
    """softmax(scale * q k^T) v -> [g, d]; `scale` 1 / sqrt(d) by default.

    Inline scores [g, t] are logits to base e. Masked rows of v may be Inf or NaN.
    """
    scores = gemv_rows(q, k) * _scale(q, scale)
    if mask is not None:
        scores = np.where(mask, scores, -np.inf)
        v = np.where(np.asarray(mask)[:, None], _real(v), 0.0)
    scores, values = _with_inline(scores, _real(v), inline_scores, inline_v)
    return gemv_accumulate(softmax(scores), values)


def sparf(
    q: ArrayLike,
    k: ArrayLike,
    v: ArrayLike,
    *,
    r: int,
    k_top: int,
    local: int,
    scale: float | None = None,
    mask: Mask | None = None,
    inline_scores: ArrayLike | None = None,
    inline_v: ArrayLike | None = None,
) -> Sparf:
    """SparF attention for g query heads of one KV head (SparQ's score scale, a local window, mean-value blending)."""
    query, keys, values = _real(q), _real(k), _real(v)
    scale = _scale(q, scale)
    mask = np.ones(len(keys), np.bool_) if mask is None else mask
    inline_tokens = 0 if inline_scores is None else np.shape(inline_scores)[1]
    # Steps 1 to 4: the rows with the largest |q|, then approximate scores over all tokens.
    rows = argtopk(np.abs(query).sum(axis=0), r)
    share = np.abs(query[:, rows]).sum(axis=1) / np.maximum(np.abs(query).sum(axis=1), np.finfo(np.float64).tiny)
    factor = np.where(share > 0, scale / np.sqrt(np.where(share > 0, share, 1.0)), scale)
    approximate = np.where(mask, query[:, rows] @ keys[:, rows].T * factor[:, None], -np.inf)
    approximate, all_values = _with_inline(approximate, np.where(mask[:, None], values, 0.0), inline_scores, inline_v)
    p = softmax(approximate)
    # Steps 5 to 7: the last tokens are forced in, then the k largest of the heads' common mass.
    mass = p[:, : len(keys)].sum(axis=0)
    mass[len(keys) - local :] = np.inf
    mass[~mask] = -np.inf
    tokens = argtopk(mass, k_top)
    tokens = tokens[mask[tokens]]
    alpha = p[:, tokens].sum(axis=1) + p[:, len(keys) :].sum(axis=1)
    # Steps 8 to 11: exact attention over the chosen tokens, blended with the mean of all values.
    near = attention(query, keys[tokens], values[tokens], scale=scale, inline_scores=inline_scores, inline_v=inline_v)
    mean = all_values.sum(axis=0) / (np.count_nonzero(mask) + inline_tokens)
    return Sparf(alpha[:, None] * near + (1.0 - alpha[:, None]) * mean, rows, tokens, alpha)


def group_keys(k: ArrayLike, scale: float) -> Real:
    """What the 2-bit index stands for, [whole spans of 32 tokens, d], with ranges in multiples of `scale`."""
    keys = _real(k)
    spans = keys[: len(keys) // 32 * 32].reshape(-1, 32, keys.shape[1])
    lowest = np.clip(np.floor(spans.min(axis=1, keepdims=True) / scale), -128, 127) * scale
    step = np.clip(np.ceil(4 * (spans.max(axis=1, keepdims=True) - lowest) / (3 * scale)), 1, 255) * scale / 4
    codes = np.clip(np.floor((spans - lowest) / step + 0.5), 0, 3)
    return (lowest + codes * step).reshape(-1, keys.shape[1])


def groups(
    q: ArrayLike,
    k: ArrayLike,
    v: ArrayLike,
    *,
    unit: int,
    k_top: int,
    scale: float | None = None,
    mask: Mask | None = None,
    inline_scores: ArrayLike | None = None,
    inline_v: ArrayLike | None = None,
) -> Groups:
    """Attention to the k_top units of `unit` tokens with the largest estimated mass."""
    query, keys, values = _real(q), _real(k), _real(v)
    scale = _scale(q, scale)
    mask = np.ones(len(keys), np.bool_) if mask is None else mask
    approximate = group_keys(keys, 2.0 ** np.ceil(np.log2(np.abs(keys).max() / 127)))
    tokens = len(approximate)
    exponents = 2.0 ** np.ceil(np.log2(np.abs(query).max(axis=1, keepdims=True) / 127))
    estimate = np.rint(query / exponents) * exponents @ approximate.T * scale
    estimate = np.where(mask[:tokens], estimate, -np.inf)
    estimate, _ = _with_inline(estimate, np.zeros((0, values.shape[1])), inline_scores, inline_v)
    p = softmax(estimate)[:, :tokens]
    starts = np.arange(0, tokens, unit)
    mass = np.add.reduceat(p, starts, axis=1)
    order = mass.sum(axis=0)
    order[[0, -1]] = np.inf
    units = argtopk(order, k_top)
    chosen = np.isin(np.arange(len(keys)) // unit, units) | (np.arange(len(keys)) >= tokens)
    read = chosen & mask
    out = attention(query, keys[read], values[read], scale=scale, inline_scores=inline_scores, inline_v=inline_v)
    # What was read has exact weights, the rest estimated ones.
    logits, _ = _with_inline(query @ keys[read].T * scale, values[read], inline_scores, inline_v)
    unread = np.where(chosen[:tokens], 0, np.exp(estimate[:, :tokens])).sum(axis=1)
    return Groups(out, units, unread / (unread + np.exp(logits).sum(axis=1)))


def _scale(q: ArrayLike, scale: float | None) -> float:
    return 1.0 / math.sqrt(np.shape(q)[1]) if scale is None else scale


def _with_inline(
    scores: Real, values: Real, inline_scores: ArrayLike | None, inline_v: ArrayLike | None
) -> tuple[Real, Real]:
    if inline_scores is None:
        return scores, values
    if inline_v is None:
        raise ValueError("inline_scores without inline_v")
    return np.concatenate([scores, _real(inline_scores)], axis=1), np.concatenate([values, _real(inline_v)])
