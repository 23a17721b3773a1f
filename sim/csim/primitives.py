"""Cases of the arithmetic headers in hls/common: corner cases and random patterns; small domains completely."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

import golden
from csim.vectors import Case
from golden import exp2, half, single, wide
from golden.abi import LANES, SCORE_FRACTION_BITS, WEIGHT_BITS

NAME = "primitives"

Patterns: TypeAlias = NDArray[np.uint32]
Halves: TypeAlias = NDArray[np.uint16]

SIGN, INFINITY = 0x80000000, 0x7F800000
ONE = 1 << SCORE_FRACTION_BITS
ACC_BITS, SUM_BITS = 89, 49
CORNERS = np.array(
    [0, 1, 2, 3, 0x7FFFFF, 0x800000, 0x800001, 0xFFFFFF, 0x1000000, 0x33800000, 0x3F7FFFFF, 0x3F800000, 0x3F800001,
     0x3FFFFFFF, 0x40000000, 0x4B000001, 0x5F000000, 0x7EFFFFFF, 0x7F000000, 0x7F7FFFFE, 0x7F7FFFFF],
    np.uint32,
)  # fmt: skip


def cases(rng: np.random.Generator, small: bool) -> Iterator[Case]:
    """Hundreds of thousands of values per function, a tenth of that if `small`. Small domains are always complete."""
    count = 20_000 if small else 200_000
    yield from _halves_cases(rng, count)
    yield from _single_cases(rng, count)
    yield from _probability_cases(rng, count)
    yield from _sum_cases(rng, count // 10)
    yield from _ratio_cases(rng, count // 10)


def _halves_cases(rng: np.random.Generator, count: int) -> Iterator[Case]:
    every = np.arange(1 << 16, dtype=np.uint16)
    finite = every[half.is_finite(every)]
    yield _case("is_finite", half.is_finite(every), a=every)
    yield _case("to_fixed", half.fixed(finite), a=finite)
    beats = rng.choice(finite, (count // 64, LANES))
    bad = rng.random(len(beats)) < 0.5
    beats[bad, rng.integers(0, LANES, bad.sum())] = rng.choice(every[~half.is_finite(every)], bad.sum())
    yield _case("all_finite", ~bad, a=beats)


def _single_cases(rng: np.random.Generator, count: int) -> Iterator[Case]:
    operations: dict[str, Callable[[Patterns, Patterns], Patterns]] = {
        "add": single.add,
        "subtract": lambda a, b: single.add(a, b ^ np.uint32(SIGN)),
        "mul": single.mul,
        "div": single.div,
    }
    for name, operation in operations.items():
        for a, b in _pairs(rng, count):
            defined = ((b & ~np.uint32(SIGN)) != 0) | (name != "div")
            yield _case(name, operation(a[defined], b[defined]), a=a[defined], b=b[defined])
    yield from _half_way_products(rng, count)
    x = np.concatenate([*_corner_pairs(), _singles(rng, count), _near_scores(rng, count)])
    positive = x & ~np.uint32(SIGN)
    yield _case("sqrt", single.sqrt(positive), a=positive)
    squares = single.mul(positive, positive)
    squares = np.concatenate([squares, squares + np.uint32(1), squares - np.uint32(1)])
    squares = squares[single.is_finite(squares) & (squares < SIGN)]
    yield _case("sqrt", single.sqrt(squares), a=squares)
    special = np.array([INFINITY, SIGN | INFINITY, INFINITY | 1, SIGN | 0x7FFFFFFF], np.uint32)
    everything = np.concatenate([x, special])
    yield _case("is_finite_single", single.is_finite(everything), a=everything)
    scores = np.concatenate([x, special[:2]])
    yield _case("single_to_score", single.to_score(scores), a=scores)
    narrow = np.concatenate([x, _near_halves(rng, count)])
    yield _case("single_to_half", half.from_float32_bits(narrow), a=narrow)


def _pairs(rng: np.random.Generator, count: int) -> Iterator[tuple[Patterns, Patterns]]:
    """All pairs of corners, unrelated numbers, and numbers that nearly cancel or differ by a few binades."""
    yield _corner_pairs()
    a = _singles(rng, count)
    yield a, _singles(rng, count)
    near = a ^ rng.integers(0, 16, count, np.uint32) ^ rng.choice(np.array([0, SIGN], np.uint32), count)
    yield a, near
    distance = rng.integers(-30, 31, count) << 23
    shifted = _singles(rng, count) & np.uint32(0x807FFFFF)
    exponent = np.clip((a & np.uint32(INFINITY)).astype(np.int64) + distance, 0, INFINITY - (1 << 23))
    yield a, shifted | exponent.astype(np.uint32)


def _corner_pairs() -> tuple[Patterns, Patterns]:
    corners = np.concatenate([CORNERS, CORNERS | np.uint32(SIGN)])
    a, b = np.meshgrid(corners, corners)
    return a.reshape(-1), b.reshape(-1)


def _half_way_products(rng: np.random.Generator, count: int) -> Iterator[Case]:
    """Products with few significant bits below the result's last bit, so that ties are common."""
    a, b = rng.integers(1, 1 << 13, (2, count))
    for a_scale, b_scale in ((0, 0), (-13, -149), (-149, -13), (-20, -130)):  # all but the first give subnormals
        x = np.ldexp(a, a_scale).astype(np.float32).view(np.uint32)
        y = np.ldexp(b, b_scale).astype(np.float32).view(np.uint32)
        yield _case("mul", single.mul(x, y), a=x, b=y)


def _singles(rng: np.random.Generator, count: int) -> Patterns:
    """Finite patterns: random ones, of ordinary size, subnormal, and with few significant bits."""
    bits = rng.integers(0, 1 << 32, count, np.uint32)
    ordinary = (bits & np.uint32(0x807FFFFF)) | rng.integers(110, 144, count).astype(np.uint32) << np.uint32(23)
    subnormal = bits & np.uint32(0x80FFFFFF)
    short = bits & np.uint32(0xFFFFF000)
    result = np.choose(rng.integers(0, 4, count), [bits, ordinary, subnormal, short])
    return np.where((result & np.uint32(INFINITY)) == INFINITY, result ^ np.uint32(0x40000000), result)


def _near_scores(rng: np.random.Generator, count: int) -> Patterns:
    """Values around halves of the scores' LSB, and around the ends of the scores' range."""
    halves = (rng.integers(-(1 << 16), 1 << 16, count) / (2 * ONE)).astype(np.float32).view(np.uint32)
    ends = np.array([2048.0, -2048.0, 2047.9999, 1024.0], np.float32).view(np.uint32)
    return np.concatenate([halves, halves + np.uint32(1), ends, ends - np.uint32(1), ends + np.uint32(1)])


def _near_halves(rng: np.random.Generator, count: int) -> Patterns:
    """Binary16 numbers, the middles between them, and their neighbours in binary32."""
    finite = np.arange(0, 0x7C00, dtype=np.uint16)
    exact = half.to_float32_bits(rng.choice(finite, count)) | rng.choice(np.array([0, SIGN], np.uint32), count)
    middle = exact + np.uint32(0x1000)
    return np.concatenate([exact, middle, middle + np.uint32(1), middle - np.uint32(1)])


def _probability_cases(rng: np.random.Generator, count: int) -> Iterator[Case]:
    fractions = np.arange(ONE, dtype=np.uint32)
    yield _case("exp2_mantissa", exp2.exp2_mantissa(fractions).astype(np.uint32), a=fractions)
    edges = np.array([-(2**31), -(2**31) + 1, -ONE - 1, -ONE, -1, 0, 1, ONE - 1, ONE, ONE + 1, 2**31 - 1])
    x = np.concatenate([edges, rng.integers(-(2**31), 2**31, count)])
    ceilings = -(-x >> SCORE_FRACTION_BITS)
    yield _case("ceil_score", ceilings.astype(np.int32), a=x.astype(np.int32))
    ladder = np.repeat(-np.arange(0, 36 * ONE, 1013), 1)
    for name, scores, maxima in (
        ("at the maximum", x, ceilings),
        ("below it", x, np.minimum(ceilings + rng.integers(0, 36, x.size), 2048)),
        ("far below it", x, np.full(x.size, 2048)),
        ("a ladder", ladder, np.zeros(ladder.size, np.int64)),
    ):
        p = exp2.probability(scores - (maxima << SCORE_FRACTION_BITS))
        assert name != "a ladder" or {0, 1, 2} <= set(p[-ladder.size :].tolist())
        yield _case("probability", p, a=scores.astype(np.int32), b=maxima.astype(np.int32))
        yield _case("to_probability", p, a=p)


def _sum_cases(rng: np.random.Generator, count: int) -> Iterator[Case]:
    finite = np.arange(1 << 16, dtype=np.uint16)
    finite = finite[half.is_finite(finite)]
    a, b = rng.choice(finite, (2, count // 4, LANES))
    b[::3] = a[::3] ^ rng.choice(np.array([0, 0x8000], np.uint16), b[::3].shape)  # so many sums cancel
    a[0], b[0] = 0x7BFF, 0x7BFF
    a[1], b[1] = 0x7BFF, 0xFBFF
    a[2], b[2] = 0x0001, 0x8001
    yield _case("dots", _dots(a, b), a=a, b=b)
    p = rng.integers(0, 1 << 16, count, np.uint32) << rng.integers(0, 16, count, np.uint32)
    p[rng.random(count) < 0.1] = 1 << 31
    v = rng.choice(finite, count)
    v[count // 2 :] = 0x7BFF
    products = p.astype(object) * half.fixed(v).astype(object)
    yield _case("accumulation", wide.pack(wide.from_ints(np.cumsum(products))).view(np.uint64), a=p, b=v)
    for name, bits, lsb in (
        ("dot_to_single", 89, -48),
        ("wide_to_single<-24, 52>", 52, -24),
        ("wide_to_single<0, 65>", 65, 0),
        ("wide_to_single<0, 128>", 128, 0),
    ):
        numbers = wide.from_ints(_integers(rng, count, bits - 1))
        yield _case(name, single.from_wide(numbers, lsb), low=numbers.low, high=numbers.high.view(np.uint64))


def _dots(a: Halves, b: Halves) -> Patterns:
    return np.concatenate([golden.gemv_rows(x[None], y[None]).dots[0] for x, y in zip(a, b, strict=True)])


def _integers(rng: np.random.Generator, count: int, bits: int) -> list[int]:
    """Integers of every length up to `bits`, of either sign. A third are near ties: 24 bits, a half, and -1 to 1."""
    numbers = [0, 1, -1, 2**bits - 1, 1 - 2**bits]
    for _ in range(count):
        number = int.from_bytes(rng.bytes(16)) >> (128 - int(rng.integers(1, bits + 1)))
        length = number.bit_length()
        if rng.random() < 0.33 and length > 26:
            number = (number >> (length - 24) << 1 | 1) << (length - 25)
            number += int(rng.integers(-1, 2)) if length > 27 else 0
        numbers.append(number if rng.random() < 0.5 else -number)
    return numbers


def _ratio_cases(rng: np.random.Generator, count: int) -> Iterator[Case]:
    acc = _integers(rng, count, ACC_BITS)
    totals = [max(1, abs(z)) for z in _integers(rng, count, SUM_BITS)]
    rng.shuffle(totals)
    for i in range(0, count, 3):  # quotients at a tie and next to it: odd multiples of half a unit of either format
        precision = int(rng.choice([11, 24]))
        odd = 2 * int(rng.integers(1 << (precision - 1), 1 << precision)) + 1
        acc[i] = (odd * totals[i] << int(rng.integers(0, 16))) // 2 + int(rng.integers(-1, 2))
    for i in range(1, count, 30):  # outputs that are subnormal or zero in binary16
        acc[i] = totals[i] * int(rng.integers(-1100, 1100)) // 2 + int(rng.integers(-1, 2))
    numbers = wide.from_ints(acc)
    sums = np.array(totals, np.uint64)
    words = {"low": numbers.low, "high": numbers.high.view(np.uint64), "b": sums}
    yield _case("ratio_to_half", single.ratio_to_half(numbers, sums), **words)
    yield _case("ratio_to_single", single.ratio_to_single(numbers, sums), **words)
    partner = np.array(rng.permutation(sums))
    partner[::5] = sums[::5]
    small, large = np.minimum(sums, partner), np.maximum(sums, partner)
    weights = (small.astype(object) << WEIGHT_BITS) // large.astype(object)
    yield _case("ratio_to_weight", weights.astype(np.uint32), a=small, b=large)


def _case(name: str, result: np.ndarray, **arguments: np.ndarray) -> Case:
    return [("label", name), *arguments.items(), ("result", result)]
