"""Cases of the softmax kernel: lengths, masks, tails, extreme scores and refused calls."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

import golden
from csim.vectors import Case
from golden.abi import MAX_TOKENS, SCORE_FRACTION_BITS, Status

NAME = "softmax"

LENGTHS = (1, 2, 31, 32, 33, 127, 128, 129, 511, 512, 513, 1000, 1024, 4096)
LOWEST, HIGHEST = -(2**31), 2**31 - 1
ONE = 1 << SCORE_FRACTION_BITS

Scores: TypeAlias = NDArray[np.int32]


def cases(rng: np.random.Generator, small: bool) -> Iterator[Case]:
    """Every length with each mask and tail; scores at and around the borders; refused calls."""
    for length in LENGTHS:
        yield _case("no mask", _scores(rng, length))
        yield _case("all valid", _scores(rng, length), np.ones(length, np.bool_))
        yield _case("none valid", _scores(rng, length), np.zeros(length, np.bool_))
        for density in (0.01, 0.5, 0.99):
            valid = rng.random(length) < density
            yield _case(f"mask {density}", _scores(rng, length), valid)
            yield _case(f"mask {density}, tail", _scores(rng, length), valid, _scores(rng, 17))
        for tail in (1, 2, 100):
            yield _case("tail", _scores(rng, length), None, _scores(rng, tail))
        yield _case("tail alone", _scores(rng, 0), None, _scores(rng, length))
        yield _case("tail above masked", _scores(rng, length), np.zeros(length, np.bool_), _scores(rng, 3))
    yield from _extremes(rng)
    yield from _refused(rng)
    yield _case("most", _scores(rng, MAX_TOKENS))
    if not small:
        yield _case("most, masked", _scores(rng, MAX_TOKENS - 31), rng.random(MAX_TOKENS - 31) < 0.7, _scores(rng, 31))
        yield _case("most, of the same score", np.full(MAX_TOKENS, 5 * ONE, np.int32))


def _extremes(rng: np.random.Generator) -> Iterator[Case]:
    """Pairs with a score at the border of int32; scores around whole numbers; masked scores above the maximum."""
    for top in (LOWEST, LOWEST + 1, -ONE, -1, 0, 1, ONE - 1, ONE, ONE + 1, HIGHEST - 1, HIGHEST):
        yield _case("one score", np.array([top], np.int32))
        yield _case("two scores", np.array([top, LOWEST], np.int32))
        yield _case("two scores", np.array([HIGHEST, top], np.int32))
        below = np.clip(top - np.arange(0, 36 * ONE, ONE // 7 + 1), LOWEST, HIGHEST).astype(np.int32)
        yield _case("ladder", rng.permutation(below))
        masked = np.array([HIGHEST, top, HIGHEST, LOWEST], np.int32)
        yield _case("masked above", masked, np.array([False, True, False, True]))
    for distance in (16, 17, 31, 32, 33, 34):
        around = distance * ONE + np.arange(-4, 5)
        yield _case("edge of p", np.concatenate([[0], -around]).astype(np.int32))


def _refused(rng: np.random.Generator) -> Iterator[Case]:
    for dense, tail in (
        (0, 0),
        (-1, 1),
        (1, -1),
        (-1, -1),
        (MAX_TOKENS, 1),
        (1, MAX_TOKENS),
        (MAX_TOKENS + 1, 0),
        (HIGHEST, HIGHEST),
        (LOWEST, LOWEST),
    ):
        yield _layout(
            f"refused: {dense} and {tail}",
            _scores(rng, 4),
            np.zeros(64, np.uint8),
            _scores(rng, 4),
            golden.SoftmaxResult(Status.BAD_LENGTH, np.zeros(0, np.uint32), 0, 0),
            counts=(dense, tail),
        )


def _case(name: str, dense: Scores, valid: NDArray[np.bool_] | None = None, tail: Scores | None = None) -> Case:
    """One case. Bits of the mask beyond the last dense score are set; they must have no effect."""
    bitmap = None
    if valid is not None:
        spare = np.ones(-valid.size % 512, np.bool_)
        bitmap = np.packbits(np.concatenate([valid, spare]), bitorder="little")
    tail = np.zeros(0, np.int32) if tail is None else tail
    expected = golden.softmax(dense, bitmap, tail)
    label = f"{name}: {dense.size} dense, {tail.size} tail"
    return _layout(label, dense, bitmap, tail, expected, counts=(dense.size, tail.size))


def _layout(
    label: str,
    dense: Scores,
    bitmap: NDArray[np.uint8] | None,
    tail: Scores,
    expected: golden.SoftmaxResult,
    *,
    counts: tuple[int, int],
) -> Case:
    return [
        ("label", label),
        ("dense", dense),
        ("tail", tail),
        ("valid", np.zeros(0, np.uint8) if bitmap is None else bitmap),
        ("dense_count", counts[0]),
        ("tail_count", counts[1]),
        ("masked", int(bitmap is not None)),
        ("status", int(expected.status)),
        ("p", expected.p),
        ("max", expected.max),
        ("sum", expected.sum),
    ]


def _scores(rng: np.random.Generator, count: int) -> Scores:
    """Scores around a random centre, near enough to each other that all magnitudes of p appear."""
    centre = rng.integers(-(2**30), 2**30)
    return (centre + rng.integers(-38 * ONE, 0, count)).astype(np.int32)
