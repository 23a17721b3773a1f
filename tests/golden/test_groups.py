"""Policy groups: bits against the literal model, properties of the index, and its relation to exact attention."""

import itertools

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import golden
from golden import abi, bitmap, build_index, float64, group_choice, groups, half, index_exponent, scale_bits
from golden.abi import Status
from golden.group_index import from_bytes
from golden.groups import FORCED_KEY, group_scores, left_out, limited_choice, quantise_queries, unit_keys

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


def chosen(choice, units):
    return np.flatnonzero(bitmap.to_flags(choice.bitmap, units)).tolist()


@pytest.mark.parametrize(
    ("g", "s", "d", "inline", "unit", "k_top"),
    [
        (1, 128, 32, 0, 16, 3),
        (2, 96, 64, 3, 64, 2),
        (4, 160, 32, 1, 32, 4),
        (5, 96, 32, 17, 16, 5),
        (8, 192, 40, 2, 128, 1),
    ],
)
def test_bits_of_the_literal_model(literal, g, s, d, inline, unit, k_top):
    q, k, _, x, _ = make([g, s, d], g, s, d, inline)
    flags = np.random.default_rng([g, s]).random(s) < 0.8
    index = build_index(k)
    rows = k.view(np.uint16).tolist()
    spans = [literal.group_span(rows[first : first + 32], index.exponent) for first in range(0, s, 32)]
    for mine, other in zip((index.lo, index.step, index.codes), zip(*spans, strict=True), strict=True):
        assert mine.tolist() == list(other)
    result = group_choice(q, index, unit, k_top, scale_bits(None, d), packed(flags), x)
    assert result.status == 0
    units, maxima, sums, unread = literal.group_choice(
        q.view(np.uint16).tolist(),
        spans,
        index.exponent,
        unit,
        k_top,
        scale_bits(None, d),
        flags.tolist(),
        x.tolist(),
        TABLES,
    )
    assert chosen(result, -(-s // unit)) == units
    assert result.selected == k_top
    assert result.max.tolist() == maxima
    assert result.sum.tolist() == sums
    assert result.unread.tolist() == unread


@given(
    st.integers(0, 1 << 32),
    st.integers(1, 3),
    st.sampled_from([8, 32, 64]),
    st.sampled_from([2.0**-20, 2.0**-8, 1.0, 100.0]),
    st.integers(-3, 1),
)
@settings(deadline=None, max_examples=60)
def test_the_index_is_as_close_as_its_steps(seed, n, d, spread, less):
    """Within half a step where no range is clamped; a smaller exponent than needed saturates some channel."""
    rng = np.random.default_rng(seed)
    k = (rng.standard_t(3, (32 * n, d)) * spread * 2.0 ** rng.integers(-6, 6, d)).clip(-60000, 60000).astype(np.float16)
    exponent = max(index_exponent(k) + less, abi.MIN_INDEX_EXPONENT)
    index = build_index(k, exponent)
    value = half.fixed(k).reshape(n, 32, d)
    lo, step = index.lo.astype(np.int64), index.step.astype(np.int64)
    # In units of an eighth of 2^e, so that half a step is whole.
    error = np.abs(8 * value - (index.quarters().reshape(n, 32, d) << exponent + 1)).max(axis=1)
    whole = value.min(axis=1) >> exponent
    fits = (whole == lo) & (4 * value.max(axis=1) <= (4 * lo + 3 * step) << exponent)
    assert np.all(error[fits] <= (step << exponent)[fits])
    assert index.saturated == np.count_nonzero(~fits)
    assert np.all(value.min(axis=1)[fits] >= (lo << exponent)[fits])
    again = from_bytes(index.to_bytes(), exponent)
    for name in ("lo", "step", "codes"):
        np.testing.assert_array_equal(getattr(again, name), getattr(index, name))


def test_the_exponent_is_the_smallest_that_fits():
    assert index_exponent(np.zeros((3, 8), np.float16)) == abi.MIN_INDEX_EXPONENT
    assert index_exponent(np.full((1, 8), 65504, np.float16)) == abi.MAX_INDEX_EXPONENT
    for top in (2.0**-24, 2.0**-10, 1.0, 127 / 128, 127.0, 128.0):
        k = np.array([[0, -top]], np.float16)
        e, value = index_exponent(k), int(half.fixed(k).min())
        assert -value <= 127 << e
        assert e == 2 or -value > 127 << (e - 1)


def test_bytes_of_a_span():
    k = np.zeros((32, 8), np.float16)
    k[:, 1] = np.arange(32) / 32 - 0.5
    k[5, 2] = 1
    index = build_index(k)
    spans = index.to_bytes()
    assert spans.shape == (1, 80)
    scale = 2.0 ** (index.exponent - 24)
    assert scale == 1 / 64  # 1 is above 127 / 128
    assert spans[0, :8].view(np.int8).tolist() == [0, -32, 0, 0, 0, 0, 0, 0]
    assert spans[0, 8:16].tolist() == [1, 83, 86, 1, 1, 1, 1, 1]  # ceil(4 * 62 / 3), ceil(4 * 64 / 3)
    token = spans[0, 16 + 2 * 5]
    assert token == 3 << 4  # k[5, 1] is 5/32 above lo: 10 scales, less than half a step of 83/4
    assert spans[0, 16 + 2 * 31] == 3 << 2


def test_numbers_beyond_the_range_saturate_and_are_counted():
    k = np.zeros((64, 8), np.float16)
    k[:32, 0], k[32, 1], k[33, 2], k[40, 3], k[41, 3] = 1, -9, 9, -1.5, 1.5
    index = build_index(k, index_exponent(k[:32]))
    # The scale is 1/64: -9 and 9 do not fit, and 255 steps of 1/4 times 3 codes are less than 3.
    assert index.saturated == 3
    assert index.lo[1, :4].tolist() == [0, -128, 0, -96]
    assert index.step[1, :4].tolist() == [1, 171, 255, 255]
    assert index.codes[1, [0, 1, 8, 9], [1, 2, 3, 3]].tolist() == [0, 3, 0, 3]
    assert build_index(k).saturated == 0


def test_inf_and_nan_count_as_zero_in_the_index():
    rng = np.random.default_rng(4)
    k = normal(rng, 32, 32)
    k[3, 4], k[7, 8] = 0, 0
    clean = build_index(k)
    k[3, 4], k[7, 8] = np.inf, np.nan
    dirty = build_index(k)
    assert dirty.exponent == clean.exponent
    np.testing.assert_array_equal(dirty.to_bytes(), clean.to_bytes())


def test_queries_keep_seven_bits():
    rng = np.random.default_rng(5)
    q = normal(rng, 8, 64) * np.float16(0.01)
    q[1] = 0
    q[2, 0] = 65504
    q8, f = quantise_queries(q)
    assert np.abs(q8).max() == 127 or np.abs(q8).max() >= 64
    assert f[1] == 0
    value = half.fixed(q)
    assert np.all(np.abs((q8 << f[:, None]) - value) * 2 <= 1 << f[:, None])
    assert np.all((np.abs(value).max(axis=1) > 127 << np.maximum(f - 1, 0)) | (f == 0))


def test_scores_of_any_bytes_stay_below_the_bound():
    """The largest sum: 127 * (4 * 127 + 3 * 255) in 256 channels; any bytes are an index."""
    spans = np.full((1, 2560), 255, np.uint8)
    spans[0, :256] = 127
    index = from_bytes(spans, abi.MAX_INDEX_EXPONENT)
    q = np.full((1, 256), 65504, np.float16)
    q8, f = quantise_queries(q)
    # |q8| has 7 bits, but a rounding may not lift it above 127.
    assert np.abs(q8).max() <= 127
    largest = int((q8 @ index.quarters().T).max())
    assert largest < 1 << 26
    assert (group_scores(q, index, scale_bits(None, 256)) == 2**31 - 1).all()
    assert f[0] == 34


@pytest.mark.parametrize("unit", abi.UNIT_TOKENS)
@pytest.mark.parametrize(("g", "d"), [(1, 64), (3, 32), (8, 128), (4, 256)])
def test_close_to_float64(unit, g, d):
    q, k, v, x, inline_v = make([g, d, unit], g, 400, d, 5)
    flags = np.random.default_rng([3, g]).random(400) < 0.7
    units = -(-384 // unit)
    k_top = max(2, units // 3)
    result = groups(q, k, v, unit=unit, k_top=k_top, valid=packed(flags), inline_scores=x, inline_v=inline_v)
    logits = x / 2.0**20 * np.log(2)
    exact = float64.groups(q, k, v, unit=unit, k_top=k_top, mask=flags, inline_scores=logits, inline_v=inline_v)
    assert result.status == 0
    assert chosen(result.choice, units) == exact.units.tolist()
    assert {0, units - 1} <= set(exact.units.tolist())
    assert np.abs(result.out.astype(np.float64) - exact.out).max() < 2.0**-9
    assert np.abs(result.left - exact.left).max() < 2.0**-12


@pytest.mark.parametrize("g", abi.GROUP_SIZES)
def test_all_units_are_exact_attention(g):
    q, k, v, x, inline_v = make([4, g], g, 100, 64, 5)
    flags = np.random.default_rng(g).random(100) < 0.6
    more = {"valid": packed(flags), "inline_scores": x, "inline_v": inline_v}
    for partial in (False, True):
        result = groups(q, k, v, unit=16, k_top=6, partial=partial, **more)
        exact = golden.attention(q, k, v, partial=partial, **more)
        np.testing.assert_array_equal(result.out, exact.out)
        np.testing.assert_array_equal(result.sum, exact.sum)
        np.testing.assert_array_equal(result.read, flags)
        assert result.choice.unread.tolist() == [0] * g
        assert result.left.tolist() == [0.0] * g


def test_attention_is_exact_over_what_was_read():
    q, k, v, _, _ = make(7, 4, 333, 32)
    result = groups(q, k, v, unit=32, k_top=3)
    exact = golden.attention(q, k[result.read], v[result.read])
    np.testing.assert_array_equal(result.out, exact.out)
    assert result.read[:32].all()
    assert result.read[288:].all()  # the last unit, and 13 tokens that are not indexed
    assert np.count_nonzero(result.read) == 3 * 32 + 13
    assert (result.left > 0).all()


def test_masked_tokens_have_no_mass():
    """What lies under the mask changes nothing; a unit without any other token is chosen last."""
    q, k, v, _, _ = make(8, 2, 256, 32)
    flags = np.ones(256, np.bool_)
    flags[64:96] = False
    k[64:96] = 0.25 * q[0]  # would be the largest scores by far, but changes no range beyond its own span
    index = build_index(k, 20)
    c = scale_bits(None, 32)
    result = group_choice(q, index, 32, 7, c, packed(flags))
    assert 2 not in chosen(result, 8)
    assert result.unread.tolist() == [0, 0]
    other = k.copy()
    other[64:96] = v[64:96]
    again = group_choice(q, build_index(other, 20), 32, 7, c, packed(flags))
    assert again.sum.tolist() == result.sum.tolist()
    assert chosen(again, 8) == chosen(result, 8)
    assert 2 in chosen(group_choice(q, index, 32, 8, c, packed(flags)), 8)


@pytest.mark.parametrize("limit", [1, 2000, 20000, 65535])
def test_a_limit_takes_the_first_step_that_leaves_little_enough(limit):
    for seed in range(4):
        q, k, _, x, _ = make([seed, limit], 3, 640, 32, inline=2)
        index, c = build_index(k), scale_bits(None, 32)
        steps = [2, 3, 5, 8, 12, 18, 27, 40]  # k + ceil(k / 2), at most the 40 units
        found = [group_choice(q, index, 16, step, c, None, x) for step in steps]
        fits = [all(int(r) * 65536 <= limit * int(z) for r, z in zip(f.unread, f.sum, strict=True)) for f in found]
        want = found[fits.index(True)]
        got = limited_choice(q, index, 16, 2, limit, c, None, x)
        assert got.selected == want.selected
        np.testing.assert_array_equal(got.bitmap, want.bitmap)
        np.testing.assert_array_equal(got.unread, want.unread)
        members = [set(chosen(f, 40)) for f in found]
        assert all(less < more for less, more in itertools.pairwise(members))


def test_without_a_limit_the_number_of_units_is_kept():
    q, k, _, x, _ = make(3, 2, 640, 32, inline=1)
    assert limited_choice(q, build_index(k), 16, 2, 0, scale_bits(None, 32), None, x).selected == 2


def test_ties_go_to_the_lower_index():
    k = np.tile(normal(np.random.default_rng(9), 32, 32), (10, 1))
    q = normal(np.random.default_rng(10), 2, 32)
    assert chosen(group_choice(q, build_index(k), 32, 4, scale_bits(None, 32)), 10) == [0, 1, 2, 9]
    assert chosen(group_choice(q, build_index(k), 32, 1, scale_bits(None, 32)), 10) == [0]


@given(st.integers(0, 1 << 32), st.integers(1, 40), st.integers(1, 16))
@settings(deadline=None, max_examples=40)
def test_keys_follow_the_formula(seed, units, g):
    rng = np.random.default_rng(seed)
    mass = rng.integers(0, 1 << 38, (g, units)) >> rng.integers(0, 38, (g, units))
    sums = rng.integers(1 << 31, 1 << 49, g).astype(np.uint64)
    keys = unit_keys(mass, sums)
    exact = [
        sum(int(m) * (int(sums.min()) * 2**24 // int(z)) for m, z in zip(column, sums, strict=True))
        for column in mass.T
    ]
    # Round to nearest even of integers beyond 2^53 with Python's own float, then to binary32 by hand.
    for key, total in list(zip(keys.tolist(), exact, strict=True))[1:-1]:
        shift = max(total.bit_length() - 24, 0)
        low, rest = total >> shift, total & ((1 << shift) - 1)
        low += shift > 0 and (rest > 1 << (shift - 1) or (rest == 1 << (shift - 1) and low & 1))
        assert np.uint32(key).view(np.float32) == np.ldexp(float(low), shift)
    assert keys[0] == keys[-1] == FORCED_KEY


def test_no_indexed_token():
    """Fewer than 32 tokens, or none: attention as it is."""
    q, k, v, x, inline_v = make(11, 2, 31, 32, 3)
    result = groups(q, k, v, unit=16, k_top=5, inline_scores=x, inline_v=inline_v)
    exact = golden.attention(q, k, v, inline_scores=x, inline_v=inline_v)
    np.testing.assert_array_equal(result.out, exact.out)
    assert result.left.tolist() == [0, 0]
    only_inline = groups(q, k[:0], v[:0], unit=16, k_top=5, inline_scores=x, inline_v=inline_v)
    assert only_inline.status == 0


def test_all_indexed_tokens_masked():
    q, k, v, _, _ = make(12, 2, 70, 32)
    flags = np.arange(70) >= 66
    result = groups(q, k, v, unit=32, k_top=2, valid=packed(flags))
    assert (result.status, result.choice.status) == (0, Status.EMPTY)
    np.testing.assert_array_equal(result.out, golden.attention(q, k[66:], v[66:]).out)
    nothing = groups(q, k, v, unit=32, k_top=2, valid=packed(flags & False))
    assert nothing.status == Status.EMPTY


def test_status_bits():
    q, k, _, _, _ = make(13, 2, 64, 32)
    index, c = build_index(k), scale_bits(None, 32)

    def status(unit=32, k_top=1, index=index, c=c, q=q):
        return group_choice(q, index, unit, k_top, c).status

    assert status() == 0
    assert status(k_top=2) == 0
    assert status(k_top=3) == status(k_top=0) == Status.BAD_K
    assert status(unit=24) == Status.BAD_UNIT
    assert status(unit=16, k_top=4) == 0
    assert status(unit=128, k_top=2) == Status.BAD_K
    assert status(index=build_index(k[:31])) == Status.BAD_LENGTH | Status.BAD_K
    assert status(index=build_index(k, 1)) == status(index=build_index(k, 35)) == Status.BAD_EXPONENT
    assert status(c=0x7F800000) == Status.BAD_SCALE
    bad = q.copy()
    bad[1, 3] = np.nan
    assert status(q=bad) == Status.NON_FINITE
    failed = groups(bad, k, k, unit=32, k_top=1)
    assert failed.status == Status.NON_FINITE
    assert not failed.read.any()
    # An Inf in a row that is read is found by the attention, one in another row by nobody.
    v = k.copy()
    v[0, 0] = np.inf
    assert groups(q, k, v, unit=32, k_top=1).status == Status.NON_FINITE


def test_the_left_out_share_of_far_apart_maxima():
    choice = golden.ChoiceResult(
        Status(0),
        bitmap.zeros(4),
        1,
        np.array([2047, -2048, 0], np.int32),
        np.array([1 << 40] * 3, np.uint64),
        np.array([1 << 31, 1 << 31, 1 << 31], np.uint64),
    )
    maxima, sums = np.array([-2048, 2047, 0], np.int32), np.array([1 << 31, 1 << 31, 3 << 31], np.uint64)
    assert left_out(choice, maxima, sums).tolist() == [1.0, 0.0, 0.25]
