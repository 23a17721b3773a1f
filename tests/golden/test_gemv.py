"""Exact matrix-vector products."""

from fractions import Fraction

import numpy as np
import pytest

from golden import abi, block_columns, float64, gemv, gemv_accumulate, gemv_columns, gemv_rows, half, wide
from golden.abi import Status

MAX = np.float16(65504)


def any_half(rng, shape, largest_exponent=30):
    """Random finite binary16 of every exponent up to a limit, subnormals and zeros of both signs included."""
    exponent = rng.integers(0, largest_exponent + 1, shape)
    pattern = rng.integers(0, 1024, shape) | exponent << 10 | rng.integers(0, 2, shape) << 15
    return pattern.astype(np.uint16).view(np.float16)


def weights(rng, shape):
    """Random probabilities: at most 2^31, at most 20 significant bits, many zeros."""
    p = rng.integers(1 << 19, 1 << 20, shape) << rng.integers(0, 12, shape)
    return np.where(rng.random(shape) < 0.2, 0, p).astype(np.uint32)


def exact_sums(p, v):
    """sum p * fixed(v) with Python integers."""
    return p.astype(object) @ half.fixed(v).astype(object)


@pytest.mark.parametrize("g", abi.GROUP_SIZES)
@pytest.mark.parametrize("d", range(32, 257, 32))
def test_rows_equal_literal_dots(literal, g, d):
    rng = np.random.default_rng([1, g, d])
    q, k = any_half(rng, (g, d)), any_half(rng, (3, d))
    result = gemv_rows(q, k)
    assert result.status == 0
    assert result.dots.dtype == np.uint32
    expected = [[literal.dot(a, b) for b in k.view(np.uint16)] for a in q.view(np.uint16)]
    assert result.dots.tolist() == expected


def test_cancellation_is_exact(literal):
    """65504^2 repeated with both signs, and one product of the smallest size, which only exact sums keep."""
    q = np.full((1, 256), MAX)
    k = np.where(np.arange(256) % 2 == 0, MAX, -MAX).reshape(1, 256)
    q[0, :2] = k[0, :2] = np.float16(2**-24)
    assert gemv_rows(q, k).dots.view(np.float32)[0, 0] == np.float32(2.0**-47)


def test_largest_dot_of_both_signs():
    q, k = np.full((1, 256), MAX), np.stack([np.full(256, MAX), np.full(256, -MAX)])
    exact = 256 * 65504.0**2
    assert gemv_rows(q, k).dots.view(np.float32).tolist() == [[exact, -exact]]


def test_rows_are_close_to_float64():
    rng = np.random.default_rng(2)
    q, k = rng.standard_normal((4, 128)).astype(np.float16), rng.standard_normal((500, 128)).astype(np.float16)
    exact = float64.gemv_rows(q, k)
    error = np.abs(gemv_rows(q, k).dots.view(np.float32) - exact)
    assert (error <= np.abs(exact) * 2.0**-24 + 1e-13).all()


@pytest.mark.parametrize(("r", "tokens"), [(1, 1), (1, 33), (7, 31), (16, 32), (64, 100), (255, 65), (256, 64)])
def test_columns_equal_rows(r, tokens):
    rng = np.random.default_rng([3, r, tokens])
    q, k = any_half(rng, (2, r)), any_half(rng, (tokens, r))
    columns = block_columns(k)
    assert columns.shape == (-(-tokens // 32), r, 32)
    expected = gemv.dots(q.view(np.uint16), k.view(np.uint16))
    np.testing.assert_array_equal(gemv_columns(q, columns, tokens).dots, expected)


def test_columns_ignore_lanes_beyond_the_tokens():
    rng = np.random.default_rng(4)
    q, k = any_half(rng, (1, 8)), any_half(rng, (40, 8))
    columns = block_columns(k)
    clean = gemv_columns(q, columns, 40)
    columns[1, :, 8:] = np.float16("nan")
    dirty = gemv_columns(q, columns, 40)
    assert dirty.status == 0
    np.testing.assert_array_equal(dirty.dots, clean.dots)


def test_block_columns_keeps_the_dtype_and_pads_with_zeros():
    for dtype in (np.float16, np.uint16):
        columns = block_columns(np.ones((33, 4), dtype))
        assert columns.dtype == dtype
        assert columns[0].all()
        assert columns[1, :, 0].all()
        assert not columns[1, :, 1:].any()


@pytest.mark.parametrize("g", abi.GROUP_SIZES)
@pytest.mark.parametrize("d", [32, 96, 256])
def test_accumulators_are_exact(g, d):
    rng = np.random.default_rng([5, g, d])
    p, v = weights(rng, (g, 40)), any_half(rng, (40, d))
    result = gemv_accumulate(p, v)
    assert result.status == 0
    assert (wide.to_ints(wide.unpack(result.acc)) == exact_sums(p, v)).all()


@pytest.mark.parametrize("sign", [1, -1])
def test_largest_accumulator_fits(sign):
    """Every token at p = 1 with the largest value: 2^17 * 2^31 * 65504 * 2^24."""
    p = np.full((1, abi.MAX_TOKENS), 1 << 31, np.uint32)
    v = np.full((abi.MAX_TOKENS, 32), sign * MAX)
    acc = wide.to_ints(wide.unpack(gemv_accumulate(p, v).acc))
    assert set(acc.flat) == {sign * abi.MAX_TOKENS * (1 << 31) * (65504 << 24)}
    assert abs(acc[0, 0]) < 1 << 89


def test_block_size_changes_no_bit():
    rng = np.random.default_rng(6)
    q, k = (any_half(rng, shape).view(np.uint16) for shape in ((2, 64), (5000, 64)))
    p, v = weights(rng, (2, 5000)), any_half(rng, (5000, 64)).view(np.uint16)
    for block in (1000, 2048):
        np.testing.assert_array_equal(gemv.dots(q, k, block), gemv.dots(q, k, 777))
        np.testing.assert_array_equal(wide.pack(gemv.accumulate(p, v, block)), wide.pack(gemv.accumulate(p, v, 777)))


def test_order_changes_no_bit():
    rng = np.random.default_rng(7)
    q, k, v, p = any_half(rng, (4, 64)), any_half(rng, (3000, 64)), any_half(rng, (3000, 64)), weights(rng, (4, 3000))
    tokens, lanes = rng.permutation(3000), rng.permutation(64)
    np.testing.assert_array_equal(gemv_rows(q[:, lanes], k[:, lanes]).dots, gemv_rows(q, k).dots)
    np.testing.assert_array_equal(gemv_rows(q, k[tokens]).dots, gemv_rows(q, k).dots[:, tokens])
    np.testing.assert_array_equal(gemv_accumulate(p[:, tokens], v[tokens]).acc, gemv_accumulate(p, v).acc)


def test_accumulators_equal_a_fraction_sum():
    p, v = np.array([[3, 1 << 31]], np.uint32), np.full((2, 32), np.float16(-0.5))
    acc = wide.to_ints(wide.unpack(gemv_accumulate(p, v).acc))
    assert Fraction(int(acc[0, 0]), 2**55) == Fraction(-1, 2) * (3 + 2**31) / 2**31


@pytest.mark.parametrize("bad", [np.inf, -np.inf, np.nan])
def test_non_finite_data_gives_zeros(bad):
    q, k = np.ones((1, 32), np.float16), np.ones((50, 32), np.float16)
    for array in (q, k):
        array[-1, 5] = bad
        assert gemv_rows(q, k).status == Status.NON_FINITE
        assert not gemv_rows(q, k).dots.any()
        assert gemv_columns(q, block_columns(k), 50).status == Status.NON_FINITE
        array[-1, 5] = 1
    k[3, 3] = bad
    result = gemv_accumulate(np.zeros((1, 50), np.uint32), k)  # even if its weight is 0
    assert result.status == Status.NON_FINITE
    assert not result.acc.any()


@pytest.mark.parametrize(
    ("g", "d", "s", "status"),
    [
        (18, 32, 1, Status.BAD_GROUP),
        (1, 4, 1, Status.BAD_HEAD_DIM),
        (1, 288, 1, Status.BAD_HEAD_DIM),
        (1, 100, 1, Status.BAD_HEAD_DIM),
        (1, 32, 0, Status.BAD_LENGTH),
        (1, 32, abi.MAX_TOKENS + 1, Status.BAD_LENGTH),
        (130, 33, 0, Status.BAD_GROUP | Status.BAD_HEAD_DIM | Status.BAD_LENGTH),
    ],
)
def test_bad_sizes(g, d, s, status):
    q, k = np.ones((g, d), np.float16), np.ones((s, d), np.float16)
    rows, accumulated = gemv_rows(q, k), gemv_accumulate(np.ones((g, s), np.uint32), k)
    assert (rows.status, accumulated.status) == (status, status)
    assert not rows.dots.any()
    assert not accumulated.acc.any()


def test_bad_r():
    for r in (0, 257):
        q, k = np.ones((1, r), np.float16), np.ones((5, r), np.float16)
        assert gemv_columns(q, block_columns(k), 5).status == Status.BAD_R


def test_wrong_shapes_and_dtypes_raise():
    q, k = np.ones((1, 32), np.float16), np.ones((4, 32), np.float16)
    with pytest.raises(ValueError, match="head dimension"):
        gemv_rows(q, k[:, :16])
    with pytest.raises(ValueError, match="binary16"):
        gemv_rows(q.astype(np.float32), k)
    with pytest.raises(ValueError, match="two dimensions"):
        gemv_rows(q[0], k)
    with pytest.raises(ValueError, match="k_columns"):
        gemv_columns(q, block_columns(k), 33)
    with pytest.raises(ValueError, match="p must be"):
        gemv_accumulate(np.ones((1, 3), np.uint32), k)
    with pytest.raises(ValueError, match="above 1"):
        gemv_accumulate(np.full((1, 4), (1 << 31) + 1, np.uint32), k)
