"""Rows in 8 and 4 bits: every value is the contract's, near the number that was stored, and stored again unchanged."""

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from golden import formats

INTEGERS = (8, 4)
BITS = (*INTEGERS, formats.FP8)
FINITE = st.integers(0, 0xFFFF).filter(lambda code: code & 0x7C00 != 0x7C00)


def stored(halves: np.ndarray, bits: formats.Coding) -> np.ndarray:
    """The values of rows after they were stored."""
    return formats.decode_rows(formats.encode_rows(halves, bits), bits, halves.shape[1])


def rows_of(kind: str, d: int, count: int = 40) -> np.ndarray:
    rng = np.random.default_rng(d)
    x = rng.standard_normal((count, d))
    if kind == "outliers":
        x[:, :: max(d // 3, 1)] *= 50
    if kind == "offset":
        x += 30
    if kind == "tiny":
        x *= 2.0**-20
    if kind == "large":
        x *= 20_000
    return np.clip(x, -65504, 65504).astype(np.float16)


@pytest.mark.parametrize("bits", BITS)
@pytest.mark.parametrize(
    ("d", "expected"),
    [(8, (9, 6, 8)), (64, (66, 36, 64)), (80, (83, 46, 80)), (128, (132, 72, 128)), (256, (264, 144, 256))],
)
def test_bytes_of_a_row(d, expected, bits):
    assert formats.row_bytes(bits, d) == expected[BITS.index(bits)]


@pytest.mark.parametrize("bits", INTEGERS)
@pytest.mark.parametrize("d", [8, 40, 64, 128])
@pytest.mark.parametrize("kind", ["normal", "outliers", "offset", "tiny", "large"])
def test_an_error_is_at_most_half_a_step_or_one_near_the_end_of_the_range(kind, d, bits):
    x = rows_of(kind, d)
    error = np.abs(stored(x, bits).astype(np.float64) - x.astype(np.float64))
    for first in range(0, d, 32):
        part, own = x[:, first : first + 32].astype(np.float64), error[:, first : first + 32].max(axis=1)
        if bits == 8:
            # 127 codes of a power of two reach the largest magnitude, and half that power does not.
            step = np.maximum(np.abs(part).max(axis=1) / 63.75, 2.0**-24)
        else:
            # The first step that fits is at most 9/8 of the exact one, and the last of its octave 15/8 of that.
            exact = np.maximum((part.max(axis=1) - part.min(axis=1)) / 15, np.abs(part).max(axis=1) / 127)
            step = np.maximum(exact * 9 / 8 * 15 / 8, 2.0**-18)
        whole = 1 if kind == "large" else 0.5  # multiples above 65504 are left out
        assert (own <= step * whole * 1.001).all()


def test_the_mean_error_of_normal_numbers():
    x = rows_of("normal", 128, 500).astype(np.float64)
    for bits, most in ((8, 0.0084), (4, 0.082), (formats.FP8, 0.027)):
        error = stored(x.astype(np.float16), bits) - x
        assert np.sqrt((error**2).mean()) < most


@pytest.mark.parametrize("bits", BITS)
@settings(max_examples=25, deadline=None)
@given(data=st.data())
def test_stored_values_are_stored_unchanged(bits, data):
    d = data.draw(st.sampled_from([8, 32, 40]))
    codes = data.draw(arrays(np.uint16, (2, d), elements=FINITE))
    once = stored(codes.view(np.float16), bits)
    np.testing.assert_array_equal(stored(once, bits).view(np.uint16), once.view(np.uint16))
    assert formats.is_valid(formats.encode_rows(once, bits), bits, d)


@pytest.mark.parametrize("bits", BITS)
@pytest.mark.parametrize("kind", ["normal", "outliers", "offset", "tiny", "large"])
def test_usual_rows_are_stored_unchanged(kind, bits):
    once = stored(rows_of(kind, 64, 500), bits)
    np.testing.assert_array_equal(stored(once, bits), once)


@pytest.mark.parametrize("bits", BITS)
def test_a_row_depends_on_itself_alone(bits):
    x = rows_of("normal", 64)
    whole = formats.encode_rows(x, bits)
    for i in (0, 7, 39):
        np.testing.assert_array_equal(formats.encode_rows(x[i : i + 1], bits)[0], whole[i])


@pytest.mark.parametrize("bits", BITS)
def test_zeros_are_positive_and_constants_exact_where_steps_reach(bits):
    x = np.array([[0.0, -0.0] * 16, [1.5] * 32, [-65504.0] * 32, [65504.0] * 32], np.float16)
    values = stored(x, bits)
    assert not values[0].view(np.uint16).any()
    np.testing.assert_array_equal(values[1], x[1])
    assert np.isfinite(values).all()


def test_fp8_is_the_e4m3_of_others():
    """Every finite binary16 number and every code, against torch's own float8_e4m3fn, which does not saturate."""
    halves = np.arange(1 << 16, dtype=np.uint16)
    halves = halves[halves & 0x7C00 != 0x7C00].view(np.float16)
    inside = torch.from_numpy(halves).float().clamp(-448, 448)
    want = inside.to(torch.float8_e4m3fn).view(torch.uint8).numpy()
    codes = formats.encode_rows(halves.reshape(-1, 8), formats.FP8).reshape(-1)
    np.testing.assert_array_equal(codes, np.where(want == 0x80, 0, want))  # zeros are +0
    every = np.arange(256, dtype=np.uint8)
    numbers = torch.from_numpy(every).view(torch.float8_e4m3fn).float().numpy()
    valid = formats.valid_rows(every[:, None], formats.FP8, 1)
    np.testing.assert_array_equal(valid, ~np.isnan(numbers))
    decoded = formats.decode_rows(every[valid][None], formats.FP8, 254)[0]
    np.testing.assert_array_equal(decoded, numbers[valid])
    assert decoded.view(np.uint16)[0x7F] == 0  # the code of -0


def test_codes_that_stand_for_no_number_are_told():
    eight = formats.encode_rows(rows_of("normal", 64), 8)
    assert formats.is_valid(eight, 8, 64)
    for byte, value in ((3, 0x80), (64, 34), (64, 33 + 1), (65, 255)):
        wrong = eight.copy()
        wrong[5, byte] = value
        assert not formats.is_valid(wrong, 8, 64)
    four = formats.encode_rows(rows_of("normal", 64), 4)
    assert formats.is_valid(four, 4, 64)
    wrong = four.copy()
    wrong[5, :32], wrong[5, 33] = 0xFF, 127
    assert not formats.is_valid(wrong, 4, 64)
    wrong = four.copy()
    wrong[5, 32], wrong[5, 33] = 255, 100
    assert not formats.is_valid(wrong, 4, 64)
