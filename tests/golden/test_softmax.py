"""Scores and the integer softmax."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from golden import abi, float64, scores, softmax
from golden.abi import Status

TABLES = (abi.EXP2_C0, abi.EXP2_C1, abi.EXP2_C2)
INT32 = st.integers(-(2**31), 2**31 - 1)
NEAR = st.integers(-(40 << 20), 40 << 20)


def packed(flags):
    return np.packbits(np.asarray(flags, np.bool_), bitorder="little")


def test_scores_equal_the_literal_rule(literal):
    rng = np.random.default_rng(1)
    dots = (rng.standard_normal(300) * np.exp2(rng.integers(-20, 30, 300))).astype(np.float32).view(np.uint32)
    for c in (0x3E02_4B1D, 0xBF80_0000, 0x7F7F_FFFF, 0x0000_0001, 0x0000_0000, 0x8000_0000):
        assert scores(dots, c).tolist() == [literal.score(x, c) for x in dots]


def test_scores_take_one_scale_per_head():
    dots = np.array([[1.0, 2.0], [1.0, 2.0]], np.float32).view(np.uint32)
    scale = np.array([[0.5], [-4.0]], np.float32).view(np.uint32)
    assert (scores(dots, scale) / 2.0**20).tolist() == [[0.5, 1.0], [-4.0, -8.0]]


@given(st.lists(st.tuples(INT32 | NEAR, st.booleans()), max_size=30), st.lists(INT32 | NEAR, max_size=5))
def test_any_scores_equal_the_literal_rule(literal, dense, tail):
    x, flags = [a for a, _ in dense], [b for _, b in dense]
    result = softmax(np.array(x, np.int32), packed(flags), np.array(tail, np.int32))
    if not x and not tail:
        assert result.status == Status.BAD_LENGTH
    elif not any(flags) and not tail:
        assert result.status == Status.EMPTY
        assert (result.p.tolist(), result.max, result.sum) == ([0] * len(x), 0, 0)
    else:
        p, maximum, total = literal.softmax(x + tail, flags + [True] * len(tail), TABLES)
        assert (result.status, result.p.tolist(), result.max, result.sum) == (0, p, maximum, total)


@pytest.mark.parametrize(
    ("x", "maximum"), [(0, 0), (1, 1), (-1, 0), (1 << 20, 1), (2**31 - 1, 2048), (-(2**31), -2048)]
)
def test_maximum_is_the_ceiling(x, maximum):
    assert softmax(np.array([x, -(2**31)], np.int32)).max == maximum


def test_largest_sum():
    result = softmax(np.zeros(abi.MAX_TOKENS, np.int32))
    assert (result.max, result.sum) == (0, abi.MAX_TOKENS << 31)
    assert result.sum < 1 << 49


def test_masked_tokens_do_not_set_the_maximum():
    result = softmax(np.array([5 << 20, 0, 3 << 20], np.int32), packed([False, True, False]))
    assert (result.p.tolist(), result.max) == ([0, 1 << 31, 0], 0)


def test_scores_from_the_tail_equal_dense_ones():
    x = np.random.default_rng(2).integers(-(20 << 20), 20 << 20, 200).astype(np.int32)
    whole = softmax(x)
    for split in (0, 1, 150, 200):
        result = softmax(x[:split], None, x[split:])
        np.testing.assert_array_equal(result.p, whole.p)
        assert (result.max, result.sum) == (whole.max, whole.sum)


def test_order_changes_no_bit():
    rng = np.random.default_rng(3)
    x, order = rng.integers(-(30 << 20), 30 << 20, 5000).astype(np.int32), rng.permutation(5000)
    a, b = softmax(x), softmax(x[order])
    np.testing.assert_array_equal(a.p[order], b.p)
    assert (a.max, a.sum) == (b.max, b.sum)


def test_error_against_float64():
    """Each p is within half a unit of 16 bits, plus the unit's own error, plus half a unit of 2^-31."""
    x = np.random.default_rng(4).integers(-(25 << 20), 0, 20000).astype(np.int32)
    result = softmax(x)
    y = x / 2.0**20 - result.max
    bound = np.exp2(np.floor(y)) * 0.518 * 2.0**-15 + 2.0**-32
    assert (np.abs(result.p * 2.0**-31 - np.exp2(y)) <= bound).all()
    expected = float64.softmax(x / 2.0**20 * np.log(2))
    assert np.abs(result.p / result.sum - expected).max() < 2.0**-15 * expected.max()


def test_bad_lengths_and_dtypes():
    assert softmax(np.zeros(0, np.int32)).status == Status.BAD_LENGTH
    assert softmax(np.zeros(abi.MAX_TOKENS, np.int32), None, np.zeros(1, np.int32)).status == Status.BAD_LENGTH
    assert softmax(np.zeros(0, np.int32), None, np.zeros(1, np.int32)).status == 0
    with pytest.raises(ValueError, match="int32"):
        softmax(np.zeros(3, np.int64))
    with pytest.raises(ValueError, match="bitmap"):
        softmax(np.zeros(9, np.int32), np.zeros(1, np.uint8))
