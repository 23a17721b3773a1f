"""binary32 primitives against IEEE 754 hardware (numpy) and against Fractions."""

from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pairs import some_quick

from golden import single, wide

CORNERS = np.array(
    [
        *(0x00000000, 0x00000001, 0x00000002, 0x00000003, 0x00400000, 0x007FFFFF, 0x00800000, 0x00800001),
        *(0x00FFFFFF, 0x01000000, 0x0B800000, 0x33800000, 0x33FFFFFF, 0x34000000, 0x34000001, 0x3EAAAAAB),
        *(0x3F000000, 0x3F7FFFFF, 0x3F800000, 0x3F800001, 0x3F800002, 0x3FC00000, 0x3FFFFFFF, 0x40000000),
        *(0x40490FDB, 0x4B000000, 0x4B000001, 0x4B7FFFFF, 0x4B800000, 0x4B800001, 0x5F000000, 0x7E800000),
        *(0x7EFFFFFF, 0x7F000000, 0x7F7FFFFE, 0x7F7FFFFF, 0x7F800000, 0x7FC00000, 0x7F800001),
    ],
    np.uint32,
)
CORNERS = np.concatenate([CORNERS, CORNERS | np.uint32(0x80000000)])
OPERATIONS = {"add": np.add, "mul": np.multiply, "div": np.divide}
CHUNK = 500_000


def canonical(x):
    """IEEE results in the contract's form: zeros are positive, and there is one NaN."""
    return np.where(np.isnan(x), np.uint32(0x7FC00000), np.where(x == 0, np.uint32(0), x.view(np.uint32)))


def agree(name, a, b):
    with np.errstate(all="ignore"):
        expected = canonical(OPERATIONS[name](a.view(np.float32), b.view(np.float32)))
    got = getattr(single, name)(a, b)
    assert got.dtype == np.uint32
    wrong = np.flatnonzero(got != expected)
    assert wrong.size == 0, [(hex(a[i]), hex(b[i]), hex(got[i]), hex(expected[i])) for i in wrong[:3]]


@pytest.mark.parametrize("name", OPERATIONS)
def test_all_pairs_of_corners(name):
    a, b = (x.reshape(-1) for x in np.meshgrid(CORNERS, CORNERS))
    agree(name, a, b)


@pytest.mark.parametrize("chunks", some_quick([1, 7], [1]))
@pytest.mark.parametrize("name", OPERATIONS)
@pytest.mark.parametrize("family", ["any", "near", "short"])
def test_random_pairs(name, family, chunks):
    """Half a million pairs a chunk: any patterns, exponents close by, few mantissa bits (ties)."""
    rng = np.random.default_rng([20, sorted(OPERATIONS).index(name), ["any", "near", "short"].index(family)])
    for _ in range(chunks):
        a, b = rng.integers(0, 1 << 32, (2, CHUNK), dtype=np.uint32)
        if family != "any":
            distance = rng.integers(-30, 31, CHUNK)
            exponent = (a >> 23 & 255).astype(np.int64)
            b = b & np.uint32(0x807FFFFF) | (np.clip(exponent + distance, 0, 254) << 23).astype(np.uint32)
        if family == "short":
            a, b = a & np.uint32(0xFFFE0000), b & np.uint32(0xFFF00000)
        agree(name, a, b)


def test_subnormal_products_and_quotients():
    """Results around the smallest numbers, where the rounding position moves."""
    rng = np.random.default_rng(21)
    a, b = rng.integers(0, 1 << 23, (2, CHUNK), dtype=np.uint32)
    exponent = rng.integers(1, 127, CHUNK)
    small = 127 - exponent + rng.integers(-26, 3, CHUNK)
    x = a | (exponent << 23).astype(np.uint32)
    agree("mul", x, b | (np.clip(small, 0, 254) << 23).astype(np.uint32))
    large = exponent + 127 + rng.integers(-3, 26, CHUNK)
    agree("div", x, b | (np.clip(large, 0, 254) << 23).astype(np.uint32))


def test_square_roots():
    rng = np.random.default_rng(22)
    exact = (rng.integers(0, 4096, 4096).astype(np.float32) ** 2).view(np.uint32)
    for patterns in (
        CORNERS,
        exact,
        rng.integers(0, 1 << 32, 1_000_000, dtype=np.uint32),
        np.arange(5000, dtype=np.uint32),
    ):
        with np.errstate(invalid="ignore"):
            expected = canonical(np.sqrt(patterns.view(np.float32)))
        np.testing.assert_array_equal(single.sqrt(patterns), expected)


def test_values_may_be_given_as_float32():
    a, b = np.array([1.5, -2.0], np.float32), np.array([0.25, 8.0], np.float32)
    np.testing.assert_array_equal(single.mul(a, b).view(np.float32), a * b)
    with pytest.raises(ValueError, match="binary32"):
        single.add(a.astype(np.float64), b)


def test_from_int64_is_numpys_conversion():
    rng = np.random.default_rng(23)
    values = rng.integers(-(2**63), 2**63 - 1, 200_000) >> rng.integers(0, 63, 200_000)
    ties = np.concatenate([(np.arange(2**24 - 50, 2**24 + 50) << shift) + (1 << shift >> 1) for shift in range(1, 38)])
    for x in (values, ties, -ties, np.array([0, 1, -1, 2**63 - 1, -(2**63)])):
        np.testing.assert_array_equal(single.from_wide(x, 0), x.astype(np.float32).view(np.uint32))


@given(st.integers(-(2**127), 2**127 - 1), st.sampled_from([-48, -55, -24, 0, -200, -149, -150, 64]))
def test_from_wide_rounds_once(literal, value, exponent):
    got = int(single.from_wide(wide.from_ints([value]), exponent)[0])
    assert got == literal.fl32(Fraction(value) * Fraction(2) ** exponent)


@pytest.mark.parametrize("low", range(0, 65, 4))
def test_from_wide_ties_and_their_neighbours(literal, low):
    """(24 bits, a half) with `low` bits below: exact ties go to even, one unit more or less decides."""
    for odd in (0, 1):
        tie = ((0x800000 | odd) << 1 | 1) << low
        values = [sign * (tie + delta) for delta in (-1, 0, 1) for sign in (1, -1)]
        got = single.from_wide(wide.from_ints(values), -48)
        assert got.tolist() == [literal.fl32(Fraction(v, 2**48)) for v in values]


ACC = st.integers(-(2**89), 2**89)
TOTAL = st.integers(1, 2**49)


@given(ACC, TOTAL)
def test_ratio_to_half_rounds_once(literal, acc, total):
    got = single.ratio_to_half(wide.from_ints([acc]), np.array([total], np.uint64))
    assert int(got[0]) == literal.fl16(Fraction(acc, total) / 2**24)


@given(ACC, TOTAL)
def test_ratio_to_single_rounds_once(literal, acc, total):
    got = single.ratio_to_single(wide.from_ints([acc]), np.array([total], np.uint64))
    assert int(got[0]) == literal.fl32(Fraction(acc, total) / 2**24)


@pytest.mark.parametrize("total", [3 * 2**31, 2**49 - 1])
def test_ratio_corners(literal, total):
    """Ties, the overflow limit, subnormals and results that underflow, on both sides of each, up to 2^-73 away."""
    edges = [Fraction(n, 2**25) for n in (0, 1, 2, 3, 5, 2047, 2048, 4095)] + [
        Fraction(65519),
        Fraction(65520),
        Fraction(65535),
    ]
    edges += [Fraction(2049, 2048), Fraction(2051, 2048), Fraction(4097, 4096)]
    values = [int(edge * total * 2**24) + delta for edge in edges for delta in (-1, 0, 1)]
    values += [-v for v in values]
    got = single.ratio_to_half(wide.from_ints(values), np.full(len(values), total, np.uint64))
    assert got.tolist() == [literal.fl16(Fraction(v, total) / 2**24) for v in values]
    assert single.ratio_to_half(wide.from_ints([-1]), np.array([total], np.uint64))[0] == 0


def test_ratio_broadcasts():
    acc = wide.from_ints([[1 << 24, 2 << 24], [3 << 24, 4 << 24]])
    got = single.ratio_to_single(acc, np.array([[1], [2]], np.uint64)).view(np.float32)
    np.testing.assert_array_equal(got, [[1.0, 2.0], [1.5, 2.0]])


def test_to_score_is_rint_and_clip():
    rng = np.random.default_rng(24)
    ties = ((np.arange(-2000, 2000) + 0.5) / 2**20).astype(np.float32)
    edges = np.array(
        [2047.9999, 2048, -2048, -2048.0002, 4096, 3e38, -3e38, np.inf, -np.inf, 1e-30, 0.0, -0.0], np.float32
    )
    inside = rng.uniform(-2100, 2100, 500_000).astype(np.float32)
    patterns = rng.integers(0, 1 << 32, 500_000, dtype=np.uint32).view(np.float32)
    x = np.concatenate([ties, edges, inside, patterns[~np.isnan(patterns)]])
    expected = np.clip(np.rint(x.astype(np.float64) * 2**20), -(2**31), 2**31 - 1)
    np.testing.assert_array_equal(single.to_score(x.view(np.uint32)), expected)


def test_a_nan_score_is_refused():
    with pytest.raises(ValueError, match="NaN"):
        single.to_score(np.array([0x7FC00000], np.uint32))
