"""SparF: bits against the literal model, and its relation to exact attention and to float64."""

import numpy as np
import pytest

import golden
from golden import abi, bitmap, float64, scale_bits, single, sparf, sparf_attend, sparf_rows, sparf_tokens, v_sum
from golden.abi import Status
from golden.sparf import token_keys

TABLES = (abi.EXP2_C0, abi.EXP2_C1, abi.EXP2_C2)


def normal(rng, *shape):
    return rng.standard_normal(shape).astype(np.float16)


def make(seed, g, s, d, inline=0):
    """(q, k, v, inline_scores, inline_v) of peaky attention."""
    rng = np.random.default_rng(seed)
    q, k, v, inline_v = (normal(rng, n, d) for n in (g, s, s, inline))
    return q * np.float16(3), k, v, rng.integers(-(4 << 20), 8 << 20, (g, inline)).astype(np.int32), inline_v


def packed(flags):
    return np.packbits(flags, bitorder="little")


def chosen(result, s):
    return np.flatnonzero(bitmap.to_flags(result.bitmap, s)).tolist()


@pytest.mark.parametrize(
    ("g", "s", "d", "inline", "r", "k_top", "local"),
    [
        (1, 40, 32, 0, 4, 8, 2),
        (2, 33, 64, 3, 16, 5, 5),
        (4, 20, 32, 1, 1, 20, 0),
        (5, 50, 32, 0, 31, 1, 1),
        (8, 12, 96, 2, 96, 7, 3),
    ],
)
def test_bits_of_the_literal_model(literal, g, s, d, inline, r, k_top, local):
    q, k, v, x, inline_v = make([g, s, d], g, s, d, inline)
    flags = np.random.default_rng([g, s]).random(s) < 0.8
    result = sparf(q, k, v, r=r, k_top=k_top, local=local, valid=packed(flags), inline_scores=x, inline_v=inline_v)
    assert result.status == 0
    rows = [a.view(np.uint16).tolist() for a in (q, k, v, inline_v)]
    out, embedding, tokens, alpha = literal.sparf(
        *rows[:3], scale_bits(None, d), r, k_top, local, flags.tolist(), x.tolist(), rows[3], TABLES
    )
    assert np.flatnonzero(bitmap.to_flags(result.rows, 512)).tolist() == embedding
    assert chosen(result, s) == tokens
    assert result.alpha.tolist() == alpha
    assert result.out.view(np.uint16).tolist() == out


@pytest.mark.parametrize("g", abi.GROUP_SIZES)
@pytest.mark.parametrize("d", [32, 128, 256])
def test_close_to_float64(g, d):
    q, k, v, _, _ = make([1, g, d], g, 400, d)
    limits = {"r": d // 4, "k_top": 60, "local": 16}
    result, exact = sparf(q, k, v, **limits), float64.sparf(q, k, v, **limits)
    assert np.flatnonzero(bitmap.to_flags(result.rows, d)).tolist() == exact.rows.tolist()
    assert chosen(result, 400) == exact.tokens.tolist()
    assert np.abs(result.alpha.view(np.float32) - exact.alpha).max() < 2.0**-14
    assert np.abs(result.out.astype(np.float64) - exact.out).max() < 2.0**-9


def test_with_a_mask_and_inline_tokens_close_to_float64():
    q, k, v, x, inline_v = make(2, 4, 300, 64, 9)
    flags = np.random.default_rng(3).random(300) < 0.6
    limits = {"r": 32, "k_top": 50, "local": 10}
    result = sparf(q, k, v, **limits, valid=packed(flags), inline_scores=x, inline_v=inline_v)
    logits = x / 2.0**20 * np.log(2)
    exact = float64.sparf(q, k, v, **limits, mask=flags, inline_scores=logits, inline_v=inline_v)
    assert chosen(result, 300) == exact.tokens.tolist()
    assert np.abs(result.out.astype(np.float64) - exact.out).max() < 2.0**-9


@pytest.mark.parametrize("g", abi.GROUP_SIZES)
def test_everything_chosen_is_exact_attention(g):
    """r = d and k = s: alpha is 1, and the output is the rounded PARTIAL result of exact attention."""
    q, k, v, x, inline_v = make([4, g], g, 100, 64, 5)
    result = sparf(q, k, v, r=64, k_top=100, local=0, inline_scores=x, inline_v=inline_v)
    exact = golden.attention(q, k, v, inline_scores=x, inline_v=inline_v, partial=True)
    assert (result.alpha == 0x3F800000).all()
    assert chosen(result, 100) == list(range(100))
    np.testing.assert_array_equal(result.out, exact.out.astype(np.float16))
    np.testing.assert_array_equal(result.max, exact.max)
    np.testing.assert_array_equal(result.sum, exact.sum)


def test_rows_are_the_largest_sums_of_magnitudes():
    q = np.zeros((2, 32), np.float16)
    q[0, 3], q[1, 3], q[0, 9], q[1, 20] = 1, -1, 1.5, -1.75
    result = sparf_rows(q, 2, scale_bits(None, 32))
    assert np.flatnonzero(bitmap.to_flags(result.rows, 512)).tolist() == [3, 20]
    # Head 0: 2.5 of magnitude, 1 of it chosen; head 1: everything chosen.
    c = np.uint32(scale_bits(None, 32)).view(np.float32)
    expected = np.array([c * np.sqrt(np.float32(2.5)), c], np.float32)
    np.testing.assert_array_equal(result.scale, expected.view(np.uint32))


def test_a_head_without_magnitude_in_the_rows_keeps_the_scale():
    q = np.zeros((2, 32), np.float16)
    q[0, 0], q[1, 1] = 4, 1
    c = scale_bits(None, 32)
    assert sparf_rows(q, 1, c).scale.tolist() == [c, c]
    assert sparf_rows(np.zeros((1, 32), np.float16), 5, c).scale.tolist() == [c]


@pytest.mark.parametrize("g", abi.GROUP_SIZES)
def test_token_keys_follow_the_formula(literal, g):
    """Weights floored to 24 bits, an exact sum, one rounding; then the window, then the mask."""
    rng = np.random.default_rng([13, g])
    p = (rng.integers(1 << 15, (1 << 16) + 1, (g, 60)) << rng.integers(0, 16, (g, 60))).astype(np.uint32)
    sums = rng.integers(1 << 31, 1 << 49, g).astype(np.uint64)
    flags = rng.random(60) < 0.8
    flags[-3:] = True, False, True
    weights = [int(sums.min()) * 2**24 // int(z) for z in sums]
    expected = [literal.fl32(sum(int(x) * w for x, w in zip(column, weights, strict=True))) for column in p.T]
    expected[-3:] = [0x7F7FFFFF] * 3
    expected = [key if ok else 0xFF7FFFFF for key, ok in zip(expected, flags, strict=True)]
    assert token_keys(p, sums, flags, 3).tolist() == expected


def test_local_window_wins_and_the_mask_wins_over_it():
    q, k, v, _, _ = make(5, 1, 64, 32)
    flags = np.ones(64, np.bool_)
    flags[60] = False
    result = sparf(q, k, v, r=8, k_top=8, local=8, valid=packed(flags))
    # One of the eight goes to the best remaining token, because the masked one is below every other key.
    tokens = chosen(result, 64)
    assert len(tokens) == 8
    assert tokens[1:] == [56, 57, 58, 59, 61, 62, 63]


def test_fewer_valid_tokens_than_k():
    q, k, _, _, _ = make(6, 2, 40, 32)
    flags = np.zeros(40, np.bool_)
    flags[[3, 17]] = True
    first = sparf_rows(q, 8, scale_bits(None, 32))
    embedding = np.flatnonzero(bitmap.to_flags(first.rows, 32))
    second = sparf_tokens(q, golden.block_columns(k[:, embedding]), first.rows, 40, 10, 4, first.scale, packed(flags))
    assert (second.selected, chosen(second, 40)) == (2, [3, 17])
    assert (second.alpha == 0x3F800000).all()


def test_only_inline_tokens_are_left():
    """All dense tokens masked: nothing is chosen, alpha is 1, the inline tokens is the answer."""
    q, k, v, x, inline_v = make(7, 1, 40, 32, 3)
    none = np.zeros(5, np.uint8)
    result = sparf(q, k, v, r=8, k_top=4, local=4, valid=none, inline_scores=x, inline_v=inline_v)
    assert result.status == 0
    assert not result.bitmap.any()
    assert (result.alpha == 0x3F800000).all()
    exact = golden.attention(q, k, v, valid=none, inline_scores=x, inline_v=inline_v, partial=True)
    np.testing.assert_array_equal(result.out, exact.out.astype(np.float16))


def test_blend_of_one_half():
    """alpha = 1/2 between a value of 2 and a mean of 1."""
    q, k, v = (np.zeros((1, 32), np.float16), np.zeros((1, 32), np.float16), np.full((1, 32), np.float16(2)))
    total = np.full(32, 10 << 24, np.int64)
    half = np.array([0.5], np.float32).view(np.uint32)
    result = sparf_attend(q, k, v, total, 10, half, scale_bits(None, 32))
    assert (result.out == np.float16(1.5)).all()


def test_order_of_inline_tokens_and_of_heads():
    q, k, v, x, inline_v = make(8, 4, 80, 32, 6)
    limits = {"r": 8, "k_top": 10, "local": 3}
    result = sparf(q, k, v, **limits, inline_scores=x, inline_v=inline_v)
    order = np.array([3, 1, 5, 0, 2, 4])
    other = sparf(q[::-1], k, v, **limits, inline_scores=np.ascontiguousarray(x[::-1, order]), inline_v=inline_v[order])
    np.testing.assert_array_equal(result.out, other.out[::-1])
    np.testing.assert_array_equal(result.bitmap, other.bitmap)


def test_v_sum_is_exact():
    v = np.array([[65504], [2**-24], [-65504]], np.float16).repeat(32, axis=1)
    assert v_sum(v).tolist() == [1] * 32
    assert v_sum(v, np.array([1], np.uint8)).tolist() == [65504 << 24] * 32
    v[1] = np.nan
    assert v_sum(v, np.array([5], np.uint8)).tolist() == [0] * 32
    with pytest.raises(ValueError, match="Inf or NaN"):
        v_sum(v)


@pytest.mark.parametrize("where", [0, 1, 2])
def test_non_finite_data_gives_zeros(where):
    arrays = list(make(9, 2, 30, 32))[:3]
    # SPARF_TOKENS certainly reads the row of k with the largest |q|, and perhaps no other row.
    arrays[where][-1] = np.nan
    result = sparf(*arrays, r=4, k_top=5, local=1)
    assert result.status == Status.NON_FINITE
    for array in (result.out, result.rows, result.bitmap, result.alpha, result.max, result.sum):
        assert not array.any()


def test_empty_job():
    q, k, v, _, _ = make(10, 2, 30, 32)
    result = sparf(q, k, v, r=4, k_top=5, local=1, valid=np.zeros(4, np.uint8))
    assert result.status == Status.EMPTY
    assert not result.out.any()


@pytest.mark.parametrize(
    ("change", "status"),
    [
        ({"r": 0}, Status.BAD_R),
        ({"r": 33}, Status.BAD_R),
        ({"k_top": 0}, Status.BAD_K),
        ({"k_top": 31}, Status.BAD_K),
        ({"k_top": 3, "local": 4}, Status.BAD_K),
        ({"scale_log2e": 0x7F800000}, Status.BAD_SCALE),
    ],
)
def test_bad_limits(change, status):
    q, k, v, _, _ = make(11, 1, 30, 32)
    result = sparf(q, k, v, **({"r": 4, "k_top": 5, "local": 1} | change))
    assert result.status == status
    assert not result.out.any()


def test_bad_calls_of_single_jobs():
    q, k, v, _, _ = make(12, 1, 30, 32)
    first = sparf_rows(q, 4, scale_bits(None, 32))
    columns = golden.block_columns(k[:, :4])
    assert sparf_tokens(q, columns, np.zeros(64, np.uint8), 30, 5, 1, first.scale).status == Status.BAD_R
    infinite = np.array([single.INFINITY], np.uint32)
    assert sparf_tokens(q, columns, first.rows, 30, 5, 1, infinite).status == Status.BAD_SCALE
    for count in (0, abi.MAX_TOKENS + 1):
        result = sparf_attend(q, k, v, v_sum(v), count, np.array([0x3F800000], np.uint32), scale_bits(None, 32))
        assert result.status == Status.BAD_LENGTH
    with pytest.raises(ValueError, match="v_sum"):
        sparf_attend(q, k, v, v_sum(v)[:5], 30, np.array([0], np.uint32), scale_bits(None, 32))
