"""Exact attention: bits against the literal model, errors against float64, and changes that may not alter a bit."""

import numpy as np
import pytest

import golden
from golden import abi, attention, float64, merge_partials, scale_bits
from golden.abi import Status

TABLES = (abi.EXP2_C0, abi.EXP2_C1, abi.EXP2_C2)


def normal(rng, *shape):
    return rng.standard_normal(shape).astype(np.float16)


def make(seed, g, s, d, inline=0):
    """(q, k, v, inline_k, inline_v): standard normal binary16."""
    rng = np.random.default_rng(seed)
    return (normal(rng, n, d) for n in (g, s, s, inline, inline))


def inline_scores(q, k):
    """Scores that a host computes for inline tokens, equal to the engine's."""
    c = scale_bits(None, q.shape[1])
    return golden.scores(golden.gemv.dots(q.view(np.uint16), k.view(np.uint16)), c)


def packed(flags):
    return np.packbits(flags, bitorder="little")


def same(a, b):
    """Equal results, bit by bit."""
    assert a.status == b.status
    for x, y in ((a.out, b.out), (a.max, b.max), (a.sum, b.sum)):
        assert x.dtype == y.dtype
        assert x.tobytes() == y.tobytes()


def all_zero(result):
    return not any(array.any() for array in (result.out, result.max, result.sum))


@pytest.mark.parametrize("partial", [False, True])
@pytest.mark.parametrize(("g", "s", "d", "inline"), [(1, 6, 32, 0), (2, 5, 64, 3), (4, 0, 32, 4), (8, 3, 256, 1)])
def test_bits_of_the_literal_model(literal, g, s, d, inline, partial):
    rng = np.random.default_rng([g, s, d, inline])
    q, k, v, _, inline_v = make([g, s, d], g, s, d, inline)
    k *= np.float16(2)
    flags = rng.random(s) < 0.7
    x = rng.integers(-(1 << 22), 1 << 22, (g, inline)).astype(np.int32)
    c = scale_bits(None, d)
    result = attention(q, k, v, valid=packed(flags), inline_scores=x, inline_v=inline_v, partial=partial)
    assert result.status == 0
    patterns = result.out.view(np.uint32 if partial else np.uint16)
    rows = [a.view(np.uint16).tolist() for a in (q, k, v, inline_v)]
    for h in range(g):
        out, maximum, total = literal.attention(
            rows[0][h], rows[1], rows[2], c, flags.tolist(), x[h].tolist(), rows[3], TABLES, partial
        )
        assert (patterns[h].tolist(), int(result.max[h]), int(result.sum[h])) == (out, maximum, total)


@pytest.mark.parametrize("g", abi.GROUP_SIZES)
@pytest.mark.parametrize("d", range(32, 257, 32))
def test_close_to_float64_for_all_sizes(g, d):
    q, k, v, _, _ = make([1, g, d], g, 300, d)
    result = attention(q, k, v)
    exact = float64.attention(q, k, v)
    spread = np.abs(v.astype(np.float64)).max()
    # Half a unit of binary16, plus p's relative error of 2^-16 on both sides of the quotient.
    bound = np.maximum(np.spacing(np.abs(result.out)).astype(np.float64), 2.0**-24) / 2 + spread * 2.0**-15
    assert (np.abs(result.out.astype(np.float64) - exact) <= bound).all()


def test_scale_bits_is_the_rounded_product():
    assert scale_bits(None, 128) == np.float32(1.4426950408889634 / np.sqrt(128)).view(np.uint32)
    assert scale_bits(0.5, 128) == np.float32(0.7213475204444817).view(np.uint32)


def test_order_of_tokens_changes_no_bit():
    q, k, v, _, _ = make(2, 4, 4000, 64)
    order = np.random.default_rng(3).permutation(4000)
    same(attention(q, k[order], v[order]), attention(q, k, v))


@pytest.mark.parametrize("dense", [0, 1, 100, 128, 129, 200])
@pytest.mark.parametrize("partial", [False, True])
def test_dense_and_inline_split_changes_no_bit(dense, partial):
    q, k, v, _, _ = make(4, 2, 200, 96)
    split = attention(
        q, k[:dense], v[:dense], inline_scores=inline_scores(q, k[dense:]), inline_v=v[dense:], partial=partial
    )
    same(split, attention(q, k, v, partial=partial))


def test_heads_do_not_see_each_other():
    q, k, v, _, _ = make(5, 8, 500, 64)
    together = attention(q, k, v)
    for h in range(8):
        alone = attention(q[h : h + 1], k, v)
        assert alone.out.tobytes() == together.out[h].tobytes()
        assert (alone.max[0], alone.sum[0]) == (together.max[h], together.sum[h])


def test_masked_tokens_change_no_bit_and_may_hold_anything():
    q, k, v, _, _ = make(6, 2, 300, 64)
    flags = np.random.default_rng(7).random(300) < 0.5
    expected = attention(q, k[flags], v[flags])
    same(attention(q, k, v, valid=packed(flags)), expected)
    k[~flags], v[~flags] = np.nan, np.inf
    same(attention(q, k, v, valid=np.concatenate([packed(flags), np.full(20, 255, np.uint8)])), expected)


def test_ties_in_everything_give_the_common_value():
    q, k, v = np.zeros((1, 32), np.float16), np.ones((777, 32), np.float16), np.full((777, 32), np.float16(0.1))
    result = attention(q, k, v)
    assert (result.out == np.float16(0.1)).all()
    assert (result.max[0], int(result.sum[0])) == (0, 777 << 31)


def test_negative_underflow_gives_positive_zero():
    """-2^-24 against zeros: the mean rounds to zero, which has no sign."""
    q, k, v = np.zeros((1, 32), np.float16), np.zeros((3, 32), np.float16), np.zeros((3, 32), np.float16)
    v[0] = np.float16(-(2**-24))
    assert not attention(q, k, v).out.view(np.uint16).any()
    assert (attention(q, k, v, partial=True).out < 0).all()


@pytest.mark.parametrize("value", [np.inf, -np.inf, np.nan])
@pytest.mark.parametrize("where", ["q", "k", "v", "inline_v"])
def test_non_finite_data_gives_zeros(value, where):
    q, k, v, inline_k, inline_v = make(8, 2, 20, 32, 3)
    arrays = {"q": q, "k": k, "v": v, "inline_v": inline_v}
    x = inline_scores(q, inline_k)
    arrays[where][-1, 7] = value
    for partial in (False, True):
        result = attention(q, k, v, inline_scores=x, inline_v=inline_v, partial=partial)
        assert result.status == Status.NON_FINITE
        assert all_zero(result)


def test_a_value_without_weight_still_counts_as_non_finite():
    q, k, v = np.ones((1, 32), np.float16), np.ones((2, 32), np.float16), np.ones((2, 32), np.float16)
    k[1] = -1000
    v[1, 0] = np.inf
    assert attention(q, k, v).status == Status.NON_FINITE


def test_empty_jobs():
    q, k, v, _, _ = make(9, 1, 10, 32)
    result = attention(q, k, v, valid=np.zeros(2, np.uint8))
    assert result.status == Status.EMPTY
    assert all_zero(result)
    q[0, 0] = np.nan
    assert attention(q, k, v, valid=np.zeros(2, np.uint8)).status == Status.EMPTY | Status.NON_FINITE


@pytest.mark.parametrize(
    ("g", "s", "d", "c", "status"),
    [
        (17, 4, 32, 0, Status.BAD_GROUP),
        (1, 4, 44, 0, Status.BAD_HEAD_DIM),
        (1, 0, 32, 0, Status.BAD_LENGTH),
        (1, abi.MAX_TOKENS + 1, 32, 0, Status.BAD_LENGTH),
        (1, 4, 32, 0x7F800000, Status.BAD_SCALE),
        (1, 4, 32, 0xFFC00000, Status.BAD_SCALE),
    ],
)
def test_bad_jobs(g, s, d, c, status):
    q, k = np.full((g, d), np.nan, np.float16), np.full((s, d), np.nan, np.float16)
    result = attention(q, k, k, scale_log2e=c)
    assert result.status == status
    assert not result.out.any()


def test_wrong_shapes_raise():
    q, k, v, _, inline_v = make(10, 2, 10, 32, 3)
    x = np.zeros((2, 3), np.int32)
    with pytest.raises(ValueError, match="do not fit"):
        attention(q, k, v[:9])
    with pytest.raises(ValueError, match="inline_v"):
        attention(q, k, v, inline_scores=x)
    with pytest.raises(ValueError, match="inline_v"):
        attention(q, k, v, inline_v=inline_v)
    with pytest.raises(ValueError, match="inline_scores"):
        attention(q, k, v, inline_scores=x[:1], inline_v=inline_v)
    with pytest.raises(ValueError, match="inline_scores"):
        attention(q, k, v, inline_scores=x.astype(np.int64), inline_v=inline_v)


def test_merged_partials_are_close_to_one_job():
    q, k, v, _, _ = make(11, 4, 1000, 64)
    k[:300] *= np.float16(3)
    parts = [attention(q, k[a:b], v[a:b], partial=True) for a, b in ((0, 300), (300, 310), (310, 1000))]
    empty = attention(q, k[:8], v[:8], valid=np.zeros(1, np.uint8), partial=True)
    merged = merge_partials([*parts, empty])
    assert merged.dtype == np.float32
    whole = attention(q, k, v, partial=True)
    assert np.abs(merged - whole.out).max() < 2.0**-15
    with pytest.raises(ValueError, match="no partial"):
        merge_partials([empty])


def test_one_partial_merges_to_itself():
    q, k, v, _, _ = make(12, 1, 50, 32)
    part = attention(q, k, v, partial=True)
    np.testing.assert_array_equal(merge_partials([part]), part.out)
