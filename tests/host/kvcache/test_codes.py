"""Rows that torch encodes where they are: all bits are those of the native encoder."""

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from kvdrive.kvcache import codes
from kvdrive.nvme import rows
from kvdrive.nvme.wire import RowFormat

CODED = [kind for kind in RowFormat if kind != RowFormat.BINARY16]
DIMENSIONS = [8, 24, 32, 64, 80, 128, 256]
LARGEST = 65504
MAGNITUDES = np.arange(0x7C00, dtype=np.uint16).view(np.float16)


def agree(halves, kind):
    found = codes.encoded_there(torch.from_numpy(halves), kind)
    assert found.is_contiguous()
    np.testing.assert_array_equal(found.numpy(), rows.encoded(halves, kind))


def any_bits(random, count, d):
    patterns = random.integers(0, 0x10000, (count, d), dtype=np.uint16)
    return np.where(patterns & 0x7C00 == 0x7C00, patterns & 0x83FF, patterns).astype(np.uint16).view(np.float16)


def near(random, count, d, exponents=24):
    """Numbers of similar size in each row, some of them far from zero."""
    scale = 2.0 ** random.uniform(-exponents, 15, (count, 1))
    numbers = (random.standard_normal((count, d)) + random.choice([0, 0, 3, -3, 30], (count, 1))) * scale
    return np.clip(numbers, -LARGEST, LARGEST).astype(np.float16)


def halfway(random, count, d):
    """Small multiples of half a step of 4 significant bits: ties."""
    step = random.integers(8, 16, (count, 1)) * 2.0 ** random.integers(-21, 3, (count, 1))
    numbers = (random.integers(-15, 16, (count, d)) + random.integers(-64, 64, (count, 1))) * step / 2
    return np.clip(numbers, -LARGEST, LARGEST).astype(np.float16)


def large(random, count, d):
    """Both ends of the range, and what lies just inside them."""
    return (LARGEST - 32 * random.integers(0, 200, (count, d))).astype(np.float16) * random.choice([-1, 1], (count, 1))


def two_values(random, count, d):
    """Each row has two values of any size, with both signs of zero among them."""
    pair = np.where(random.random((count, 2)) < 0.2, np.float16(-0.0), any_bits(random, count, 2))
    return np.take_along_axis(pair, random.integers(0, 2, (count, d)), 1)


def subnormal(random, count, d):
    patterns = random.integers(0, 0x400 >> 6, (count, d), dtype=np.uint16) << random.integers(0, 6, (count, 1))
    return (patterns.astype(np.uint16) | random.integers(0, 2, (count, d), dtype=np.uint16) << 15).view(np.float16)


@pytest.mark.parametrize("kind", CODED)
@pytest.mark.parametrize("d", DIMENSIONS)
@pytest.mark.parametrize("numbers", [any_bits, near, halfway, large, two_values, subnormal])
def test_torch_has_the_native_bytes(kind, d, numbers):
    """10^5 rows of each format in all."""
    halves = np.ascontiguousarray(numbers(np.random.default_rng(d), 2400, d).astype(np.float16))
    assert np.isfinite(halves).all()
    agree(halves, kind)


@pytest.mark.parametrize("kind", CODED)
@settings(max_examples=25, deadline=None)
@given(data=st.data())
def test_torch_has_the_native_bytes_of_drawn_rows(kind, data):
    d = data.draw(st.sampled_from(DIMENSIONS[:5]))
    spread = data.draw(st.sampled_from([0, 0, 8]))  # clear bits of the exponent, so that numbers are closer
    finite = st.integers(0, 0xFFFF).filter(lambda code: code & 0x7C00 != 0x7C00)
    patterns = data.draw(arrays(np.uint16, (3, d), elements=finite)) & np.uint16(0xFFFF ^ (spread << 10))
    agree(patterns.view(np.float16), kind)


@pytest.mark.parametrize("kind", CODED)
@pytest.mark.parametrize("sign", [1, -1])
def test_every_number_has_its_native_code(kind, sign):
    """Alone in its part, where it chooses the step, and beside others."""
    alone = np.zeros((len(MAGNITUDES), 8), np.float16)
    alone[:, 3] = sign * MAGNITUDES
    agree(alone, kind)
    agree(sign * MAGNITUDES.reshape(-1, 8), kind)
    agree(np.full((3, 40), np.float16(0) * sign), kind)


def test_quotients_of_every_number_and_step_are_exact():
    numbers = np.ldexp(MAGNITUDES.astype(np.float64), 24).astype(np.int64)
    for byte in range(256):
        step = int(codes._int4_step(byte) * 2**24)
        within = numbers <= 256 * step
        low, rest = np.divmod(numbers, step)
        exact = low + ((2 * rest > step) | ((2 * rest == step) & (low % 2 == 1)))
        exact = np.minimum(exact, (LARGEST << 24) // step)
        found = codes._in_steps(torch.from_numpy(MAGNITUDES.astype(np.float32)), torch.tensor(byte)).numpy()
        np.testing.assert_array_equal(found[within], exact[within])
        assert (found[~within] > 128).all()


@pytest.mark.parametrize("kind", RowFormat)
def test_tensors_of_any_shape_and_stride_are_encoded_in_pieces(kind, monkeypatch):
    monkeypatch.setattr(codes, "_AT_ONCE", 5 * 64)
    halves = near(np.random.default_rng(1), 2 * 3 * 7, 64).reshape(2, 7, 3, 64)
    found = codes.encoded_there(torch.from_numpy(halves).transpose(1, 2), kind)
    np.testing.assert_array_equal(found.numpy(), rows.encoded(halves.transpose(0, 2, 1, 3), kind))


@pytest.mark.parametrize("kind", CODED)
@pytest.mark.parametrize("bad", [np.inf, -np.inf, np.nan])
def test_numbers_that_are_not_finite_end_nothing(kind, bad):
    halves = np.full((4, 64), np.float16(bad))
    halves[1:, 5:] = 1
    halves[2, 7] = -np.inf
    assert codes.encoded_there(torch.from_numpy(halves), kind).shape == (4, rows.bytes_of_row(kind, 64))
