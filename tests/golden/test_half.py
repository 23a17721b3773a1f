"""binary16 conversions over every code."""

from fractions import Fraction

import numpy as np
import pytest

from golden import half

CODES = np.arange(1 << 16, dtype=np.uint16)
EXPONENTS = (CODES >> 10) & 31
FINITE = EXPONENTS != 31


def canonical16(h):
    """numpy's binary16 results in the contract's form: zeros are positive, and there is one NaN."""
    return np.where(np.isnan(h), np.uint16(0x7E00), np.where(h == 0, np.uint16(0), h.view(np.uint16)))


def test_fixed_is_the_value_times_2_to_24_for_all_codes():
    values = half.fixed(CODES)
    assert values.dtype == np.int64
    expected = CODES[FINITE].view(np.float16).astype(np.float64) * 2.0**24
    np.testing.assert_array_equal(values[FINITE], expected)
    assert (values[~FINITE] == 0).all()
    assert np.abs(values).max() == 65504 << 24 < 1 << 40


def test_is_finite_for_all_codes():
    np.testing.assert_array_equal(half.is_finite(CODES), np.isfinite(CODES.view(np.float16)))


def test_to_binary32_for_all_codes():
    patterns = half.to_float32_bits(CODES)
    expected = CODES.view(np.float16).astype(np.float32)
    nan = np.isnan(expected)
    np.testing.assert_array_equal(patterns[~nan], expected[~nan].view(np.uint32))
    np.testing.assert_array_equal(patterns[nan] & np.uint32(0x7FFFFFFF), 0x7FC00000)
    np.testing.assert_array_equal(patterns >> 31, CODES >> 15)


def test_back_from_binary32_for_all_codes():
    expected = canonical16(CODES.view(np.float16))
    back = half.from_float32_bits(half.to_float32_bits(CODES))
    np.testing.assert_array_equal(back, expected)


def test_from_binary32_around_every_code_and_every_tie():
    values = np.sort(CODES[FINITE].view(np.float16).astype(np.float32))
    ties = ((values[:-1].astype(np.float64) + values[1:]) / 2).astype(np.float32)
    limit = np.array([65504, 65519.996, 65520, 65520.004, 65536, 1e30, np.inf], np.float32)
    points = np.concatenate([values, ties, limit, -limit])
    patterns = points.view(np.uint32)
    points = np.concatenate([points, (patterns + 1).view(np.float32), (patterns - 1).view(np.float32)])
    with np.errstate(over="ignore", invalid="ignore"):
        expected = canonical16(points.astype(np.float16))
    np.testing.assert_array_equal(half.from_float32_bits(points.view(np.uint32)), expected)


def test_from_binary32_random_patterns():
    rng = np.random.default_rng(16)
    patterns = rng.integers(0, 1 << 32, 2_000_000, dtype=np.uint32)
    near = patterns[:1_000_000] & np.uint32(0x81FFFFFF) | np.uint32(0x38000000) - (patterns[1_000_000:] & 0x7000000)
    for chunk in (patterns, near):
        with np.errstate(over="ignore", invalid="ignore"):
            expected = canonical16(chunk.view(np.float32).astype(np.float16))
        np.testing.assert_array_equal(half.from_float32_bits(chunk), expected)


def bfloat16_values(codes):
    with np.errstate(invalid="ignore"):  # signalling NaN
        return (codes.astype(np.uint32) << 16).view(np.float32).astype(np.float64)


def test_bfloat16_each_code_as_a_head_of_its_own():
    """Covers the range guard: e is the smallest that fits, for all 65,536 codes."""
    values, exponents, lost = half.from_bfloat16(CODES[:, None], axis=0)
    exact = bfloat16_values(CODES)
    finite = np.isfinite(exact)
    assert (exponents[~finite] == 0).all()
    for e in np.unique(exponents):
        same = finite & (exponents == e)
        assert (np.ldexp(np.abs(exact[same]), -e) <= 65504).all()
        if e:
            assert (np.ldexp(np.abs(exact[same]), 1 - e) > 65504).all()
    assert exponents.max() == 112
    with np.errstate(over="ignore", invalid="ignore"):
        expected = np.ldexp(exact, -exponents).astype(np.float16)
    np.testing.assert_array_equal(values[finite, 0].view(np.uint16), expected[finite].view(np.uint16))
    infinite, nan = np.isinf(exact), np.isnan(exact)
    np.testing.assert_array_equal(values[infinite, 0].view(np.uint16), expected[infinite].view(np.uint16))
    assert np.isnan(values[nan, 0]).all()
    assert lost == int(((expected == 0) & (exact != 0)).sum()) > 0


def test_bfloat16_one_head_shares_its_exponent():
    rng = np.random.default_rng(7)
    codes = rng.integers(0, 1 << 16, (3, 5, 700), dtype=np.uint16)
    codes[(codes & 0x7F80) == 0x7F80] = 0x3F80
    values, exponents, lost = half.from_bfloat16(codes, axis=1)
    assert values.shape == codes.shape
    assert exponents.shape == (5,)
    exact = bfloat16_values(codes)
    expected = np.ldexp(exact, -exponents[None, :, None]).astype(np.float16)
    np.testing.assert_array_equal(values.view(np.uint16), expected.view(np.uint16))
    assert lost == int(((expected == 0) & (exact != 0)).sum())
    largest = np.abs(exact).max(axis=(0, 2))
    for x, e in zip(largest, exponents, strict=True):
        assert Fraction(x) / 2 ** int(e) <= 65504 < Fraction(x) / 2 ** (int(e) - 1)


def test_bfloat16_small_heads_are_left_alone():
    codes = np.array([[0x3F80, 0x8000, 0x0000, 0xC2F7]], np.uint16)
    values, exponents, lost = half.from_bfloat16(codes, axis=0)
    assert (exponents.tolist(), lost) == ([0], 0)
    assert values.view(np.uint16).tolist() == [[0x3C00, 0x8000, 0x0000, 0xD7B8]]


def test_bfloat16_ignores_infinity_for_the_exponent():
    values, exponents, _ = half.from_bfloat16(np.array([[0x7F80, 0xFF80, 0x7FC1, 0x4780]], np.uint16), axis=0)
    assert exponents.tolist() == [1]
    assert np.isposinf(values[0, 0])
    assert np.isneginf(values[0, 1])
    assert np.isnan(values[0, 2])
    assert values[0, 3] == 32768


@pytest.mark.parametrize("dtype", [np.float32, np.int16, np.float64])
def test_other_dtypes_are_refused(dtype):
    with pytest.raises(ValueError, match="binary16"):
        half.fixed(np.zeros(3, dtype))
    with pytest.raises(ValueError, match="bfloat16"):
        half.from_bfloat16(np.zeros((1, 3), dtype), axis=0)
