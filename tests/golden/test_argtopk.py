"""The k largest keys."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from golden import abi, argtopk, float64
from golden.abi import KeyType, Status

FINITE32 = st.integers(0, 2**32 - 1).filter(lambda x: x & 0x7F800000 != 0x7F800000)
FEW = st.sampled_from([0x00000000, 0x80000000, 0x00000001, 0x80000001, 0x3F800000, 0xBF800000, 0x7F7FFFFF, 0xFF7FFFFF])


def by_sorting(values, k):
    return sorted(sorted(range(len(values)), key=lambda i: (-values[i], i))[:k])


def bits_of(bitmap):
    return np.flatnonzero(np.unpackbits(bitmap, bitorder="little")).tolist()


@given(st.lists(FINITE32 | FEW, min_size=1, max_size=600), st.data())
def test_binary32_keys(keys, data):
    k = data.draw(st.integers(1, len(keys)))
    keys = np.array(keys, np.uint32)
    result = argtopk(keys, k)
    expected = by_sorting(keys.view(np.float32).tolist(), k)
    assert result.status == 0
    assert result.indices.dtype == np.uint32
    assert result.indices.tolist() == expected == bits_of(result.bitmap)
    assert result.bitmap.shape == (64 * -(-len(keys) // 512),)
    np.testing.assert_array_equal(float64.argtopk(keys.view(np.float32), k), result.indices)


@given(st.lists(st.integers(0, 0x7BFF), min_size=1, max_size=100), st.data())
def test_magnitudes_ignore_the_sign(magnitudes, data):
    k = data.draw(st.integers(1, len(magnitudes)))
    signs = data.draw(st.lists(st.booleans(), min_size=len(magnitudes), max_size=len(magnitudes)))
    keys = np.array([m | s << 15 for m, s in zip(magnitudes, signs, strict=True)], np.uint16)
    result = argtopk(keys, k, KeyType.MAGNITUDE16)
    assert result.indices.tolist() == by_sorting(magnitudes, k)


def test_ties_pick_the_lowest_index():
    assert argtopk(np.ones(1000, np.float32), 3).indices.tolist() == [0, 1, 2]
    assert argtopk(np.array([1, 2, 1, 2, 1], np.float32), 3).indices.tolist() == [0, 1, 3]


def test_zeros_of_both_signs_are_equal():
    assert argtopk(np.array([-0.0, 0.0, -1.0], np.float32), 1).indices.tolist() == [0]
    assert argtopk(np.array([-1.0, 0.0, -0.0], np.float32), 1).indices.tolist() == [1]
    assert argtopk(np.array([-0.0, 0.0], np.float16), 1, KeyType.MAGNITUDE16).indices.tolist() == [0]


def test_the_largest_job():
    keys = np.random.default_rng(1).integers(0, 4000, abi.MAX_TOKENS).astype(np.float32)
    result = argtopk(keys, abi.MAX_TOP_K)
    kept = np.zeros(abi.MAX_TOKENS, np.bool_)
    kept[result.indices] = True
    assert result.indices.size == abi.MAX_TOP_K
    threshold = keys[kept].min()
    assert keys[~kept].max() <= threshold
    assert np.flatnonzero((keys == threshold) & kept).max() < np.flatnonzero((keys == threshold) & ~kept).min()


@pytest.mark.parametrize("bad", [0x7F800000, 0xFF800000, 0x7FC00000, 0x7F800001])
def test_non_finite_keys_give_nothing(bad):
    result = argtopk(np.array([1, bad, 2], np.uint32), 1)
    assert result.status == Status.NON_FINITE
    assert (result.indices.size, result.bitmap.size) == (0, 0)


@pytest.mark.parametrize("bad", [0x7C00, 0xFC00, 0x7E00, 0x7C01])
def test_non_finite_magnitudes_give_nothing(bad):
    assert argtopk(np.array([1, bad], np.uint16), 1, KeyType.MAGNITUDE16).status == Status.NON_FINITE


@pytest.mark.parametrize(
    ("n", "k", "status"),
    [
        (5, 0, Status.BAD_K),
        (5, 6, Status.BAD_K),
        (abi.MAX_TOKENS, abi.MAX_TOP_K + 1, Status.BAD_K),
        (0, 1, Status.BAD_LENGTH | Status.BAD_K),
        (abi.MAX_TOKENS + 1, 1, Status.BAD_LENGTH),
    ],
)
def test_bad_sizes(n, k, status):
    result = argtopk(np.ones(n, np.float32), k)
    assert result.status == status
    assert (result.indices.size, result.bitmap.size) == (0, 0)


def test_wrong_dtypes_raise():
    with pytest.raises(ValueError, match="binary32"):
        argtopk(np.ones(3, np.float16), 1)
    with pytest.raises(ValueError, match="binary16"):
        argtopk(np.ones(3, np.float32), 1, KeyType.MAGNITUDE16)
    with pytest.raises(ValueError, match="one-dimensional"):
        argtopk(np.ones((3, 1), np.float32), 1)
