"""Cases of the gemv kernel: rows, columns and accumulate for every group size, and refused calls."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

import golden
from csim.vectors import Case
from golden.abi import GROUP_SIZES, HEAD_DIM_STEP, LANES, MAX_HEAD_DIM, MAX_TOKENS, Status

NAME = "gemv"

ROWS, COLUMNS, ACCUMULATE = range(3)
HEAD_DIMS = range(HEAD_DIM_STEP, MAX_HEAD_DIM + 1, HEAD_DIM_STEP)
EMBEDDING_ROWS = (1, 2, 7, 31, 32, 33, 63, 64, 65, 100, 128, 129, 200, 255, 256)
TOKENS = (1, 2, 7, 8, 9, 31, 32, 33, 63, 64, 65, 97)
INFINITY, NAN = 0x7C00, 0x7E00
LARGEST, SMALLEST = 0x7BFF, 0x0001
P_ONE = 1 << 31

Halves: TypeAlias = NDArray[np.uint16]


def cases(rng: np.random.Generator, small: bool) -> Iterator[Case]:
    """Every head dimension with every group; borders of lengths; extreme values; Inf and NaN; refused calls."""
    yield from _shapes(rng, small)
    yield from _extremes(rng)
    yield from _not_finite(rng)
    yield from _refused(rng)
    if not small:
        yield _rows(rng, "long", _halves(rng, 4, 128), _halves(rng, 1000, 128))
        yield _columns(rng, "long", _halves(rng, 4, 70), _halves(rng, 1000, 70))
        yield _accumulate("long", _probabilities(rng, 4, 4096), _halves(rng, 4096, 64))
        yield _widest_accumulators()


def _widest_accumulators() -> Case:
    """The most terms that a call takes, of either sign, each as large as its part of the accumulator allows."""
    v = np.full((MAX_TOKENS, 160), LARGEST, np.uint16)  # with this d, one slot gets all terms of a dimension
    v[:, ::2] |= 0x8000
    p = np.empty((2, MAX_TOKENS), np.uint32)
    p[0], p[1] = 0xFFFF << 15, 0xFFFF << 2
    return _accumulate("widest", p, v)


def _shapes(rng: np.random.Generator, small: bool) -> Iterator[Case]:
    for g in GROUP_SIZES:
        for d in HEAD_DIMS:
            for tokens in rng.choice(TOKENS, 1 if small else 3, replace=False):
                yield _rows(rng, "rows", _halves(rng, g, d), _halves(rng, tokens, d))
                yield _accumulate("accumulate", _probabilities(rng, g, tokens), _halves(rng, tokens, d))
        for r in rng.choice(EMBEDDING_ROWS, 3, replace=False) if small else EMBEDDING_ROWS:
            tokens = rng.choice(TOKENS)
            yield _columns(rng, "columns", _halves(rng, g, r), _halves(rng, tokens, r))
    for tokens in TOKENS:
        yield _rows(rng, "rows", _halves(rng, 1, 64), _halves(rng, tokens, 64))
        yield _columns(rng, "columns", _halves(rng, 1, 40), _halves(rng, tokens, 40))
        yield _accumulate("accumulate", _probabilities(rng, 1, tokens), _halves(rng, tokens, 32))


def _extremes(rng: np.random.Generator) -> Iterator[Case]:
    """The widest sums of either sign, full cancellation, subnormals, and probabilities of 1 and of one unit."""
    largest, smallest = np.full((2, 256), LARGEST, np.uint16), np.full((2, 256), SMALLEST, np.uint16)
    for name, k in (("largest", largest), ("smallest", smallest), ("negative", largest | 0x8000)):
        tokens = np.repeat(k[:1], 33, axis=0)
        yield _rows(rng, name, largest, tokens)
        yield _rows(rng, name, smallest, tokens)
        yield _columns(rng, name, largest, tokens)
        for p in (0, 1, 0xFFFF, 0xFFFF << 15, P_ONE):
            yield _accumulate(f"{name}, p {p}", np.full((2, 33), p, np.uint32), tokens)
    for q_pattern, k_pattern in ((0x43FF, 0x47FF), (0x47FF, 0xC3FF)):  # the widest of the two sums of a dot product
        q, k = np.full((1, 256), q_pattern, np.uint16), np.full((1, 256), k_pattern, np.uint16)
        yield _rows(rng, "widest lower sum", q, k)
    alternating = largest.copy()
    alternating[:, 1::2] |= 0x8000
    yield _rows(rng, "cancelling", alternating, largest)
    alternating[:, 0] = SMALLEST
    alternating[:, 1] = 0x8000
    yield _rows(rng, "nearly cancelling", alternating, largest)
    yield _rows(rng, "tie", *_ties())
    yield _rows(rng, "zeros", np.full((1, 32), 0x8000, np.uint16), np.zeros((3, 32), np.uint16))


def _ties() -> tuple[Halves, Halves]:
    """Dot products of 2^24 + an odd number, half-way between two binary32 numbers; and one unit to either side."""
    q, k = np.zeros((1, 32), np.float16), np.zeros((8, 32), np.float16)
    q[0, :4] = 4096, 1, 1, 2.0**-20
    k[:, 0] = 4096
    k[:, 1] = range(1, 17, 2)
    k[4:, 3] = 1
    k[6:] *= -1
    return q.view(np.uint16), k.view(np.uint16)


def _not_finite(rng: np.random.Generator) -> Iterator[Case]:
    for pattern in (INFINITY, INFINITY | 0x8000, NAN, 0xFFFF):
        for bad_q in (False, True):
            q, k = _halves(rng, 2, 64), _halves(rng, 40, 64)
            target = q if bad_q else k
            target[rng.integers(len(target)), rng.integers(64)] = pattern
            yield _rows(rng, "not finite", q, k)
            yield _columns(rng, "not finite", q, k)
            if not bad_q:
                yield _accumulate("not finite", _probabilities(rng, 2, 40), k)


def _refused(rng: np.random.Generator) -> Iterator[Case]:
    """Calls that fail each check, alone and together. No stream is fed, and the kernel must read none."""
    for mode, width, tokens, status in (
        (-1, 32, 1, Status.BAD_MODE),
        (3, 32, 1, Status.BAD_MODE),
        (ROWS, 0, 1, Status.BAD_HEAD_DIM),
        (ROWS, -32, 1, Status.BAD_HEAD_DIM),
        (ROWS, 33, 1, Status.BAD_HEAD_DIM),
        (ACCUMULATE, 288, 1, Status.BAD_HEAD_DIM),
        (COLUMNS, 0, 1, Status.BAD_R),
        (COLUMNS, 257, 1, Status.BAD_R),
        (COLUMNS, -1, 0, Status.BAD_R | Status.BAD_LENGTH),
        (ROWS, 32, 0, Status.BAD_LENGTH),
        (ACCUMULATE, 32, -1, Status.BAD_LENGTH),
        (COLUMNS, 1, MAX_TOKENS + 1, Status.BAD_LENGTH),
        (ROWS, 31, 2**31 - 1, Status.BAD_HEAD_DIM | Status.BAD_LENGTH),
    ):
        nothing = np.zeros(0, np.uint8)
        group = int(rng.choice(GROUP_SIZES))
        yield _case(f"refused: {mode} {width} {tokens}", mode, group, width, tokens, int(status), nothing, nothing, 0)


def _rows(rng: np.random.Generator, name: str, q: Halves, k: Halves) -> Case:
    expected = golden.gemv_rows(q, k)
    return _dots(f"{name}: g {len(q)}, d {q.shape[1]}", ROWS, q, k, expected, len(k))


def _columns(rng: np.random.Generator, name: str, q: Halves, k: Halves) -> Case:
    """Jobs in block-column form. Lanes beyond the last token hold any pattern, also Inf and NaN."""
    tokens, r = k.shape
    columns = golden.block_columns(k)
    spare = columns[-1][:, (tokens - 1) % LANES + 1 :]
    spare[...] = rng.integers(0, 1 << 16, spare.shape, np.uint16)
    expected = golden.gemv_columns(q, columns, tokens)
    padded = np.pad(q, ((0, 0), (0, -r % LANES)))
    return _dots(f"{name}: g {len(q)}, r {r}", COLUMNS, padded, columns, expected, tokens, r)


def _dots(
    label: str, mode: int, q: Halves, k: Halves, expected: golden.GemvResult, tokens: int, width: int | None = None
) -> Case:
    """Results as beats: one per token, with head h in lane h."""
    lanes = np.zeros((tokens, 16), np.uint32)
    lanes[:, : len(q)] = expected.dots.T
    width = q.shape[1] if width is None else width
    return _case(label, mode, len(q), width, tokens, int(expected.status), q, k, tokens, lanes)


def _accumulate(name: str, p: NDArray[np.uint32], v: Halves) -> Case:
    g, tokens = p.shape
    d = v.shape[1]
    expected = golden.gemv_accumulate(p, v)
    weights = np.zeros((tokens, 16), np.uint32)
    weights[:, :g] = p.T
    chunks = expected.acc.reshape(g, d // LANES, LANES, 2).transpose(1, 0, 2, 3)
    label = f"{name}: g {g}, d {d}"
    return _case(label, ACCUMULATE, g, d, tokens, int(expected.status), weights, v, g * d // 4, chunks)


def _case(
    label: str,
    mode: int,
    group: int,
    width: int,
    tokens: int,
    status: int,
    operands: np.ndarray,
    beats: np.ndarray,
    result_beats: int,
    results: np.ndarray | None = None,
) -> Case:
    case: list[tuple[str, np.ndarray | int | str]] = [
        ("label", f"{label}, {tokens} tokens"),
        ("mode", mode),
        ("group", group),
        ("width", width),
        ("tokens", int(tokens)),
        ("status", status),
        ("operands", operands),
        ("beats", beats),
        ("result_beats", result_beats),
    ]
    if status == 0 and results is not None:
        case.append(("results", np.ascontiguousarray(results).reshape(-1).view(np.uint64)))
    return case


def _halves(rng: np.random.Generator, *shape: int) -> Halves:
    """Finite patterns: half of them uniform over all patterns, half of ordinary size."""
    uniform = rng.integers(0, 1 << 16, shape, np.uint16)
    uniform[(uniform & INFINITY) == INFINITY] ^= 0x4000
    ordinary = rng.standard_normal(shape).astype(np.float16).view(np.uint16)
    return np.where(rng.random(shape) < 0.5, uniform, ordinary)


def _probabilities(rng: np.random.Generator, *shape: int) -> NDArray[np.uint32]:
    """Probabilities of all magnitudes up to 2^31, with at most 20 significant bits."""
    mantissas = rng.integers(0, 1 << 20, shape, np.uint64)
    shifts = rng.integers(0, 13, shape).astype(np.uint64)
    return np.minimum(mantissas << shifts, np.uint64(P_ONE)).astype(np.uint32)
