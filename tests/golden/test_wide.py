"""128-bit integers against Python's."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from golden import wide

INT128 = st.integers(-(2**127), 2**127 - 1)
CORNERS = [0, 1, -1, 2**63 - 1, 2**63, 2**64 - 1, 2**64, -(2**63), -(2**64), -(2**64) - 1, 2**127 - 1, -(2**127)]


def test_corners_survive_every_form():
    value = wide.from_ints(CORNERS)
    assert list(wide.to_ints(value)) == CORNERS
    words = wide.pack(value)
    assert words.dtype == np.int64
    assert words.shape == (len(CORNERS), 2)
    assert list(wide.to_ints(wide.unpack(words))) == CORNERS


@given(st.lists(st.tuples(INT128, INT128), min_size=1, max_size=20))
def test_add_is_modulo_2_to_128(pairs):
    a, b = (wide.from_ints(list(side)) for side in zip(*pairs, strict=True))
    expected = [(x + y + 2**127) % 2**128 - 2**127 for x, y in pairs]
    assert list(wide.to_ints(wide.add(a, b))) == expected


@pytest.mark.parametrize("shift", [0, 1, 20, 40, 63])
def test_shifted_int64(shift):
    values = [0, 1, -1, 2**63 - 1, -(2**63), 12345678901234567, -12345678901234567]
    assert list(wide.to_ints(wide.from_int64(np.array(values), shift))) == [v << shift for v in values]


def test_bit_length_of_every_power_of_two():
    values = [0] + [x for n in range(64) for x in (1 << n, (1 << n) + ((1 << n) >> 1), (2 << n) - 1)]
    assert list(wide.bit_length(np.array(values, np.uint64))) == [v.bit_length() for v in values]


@given(st.lists(INT128, min_size=1, max_size=20))
def test_sticky_keeps_62_bits_and_says_what_is_lost(values):
    negative, m, shift = wide.to_sticky(wide.from_ints(values))
    for value, sign, word, right in zip(values, negative, m, shift, strict=True):
        magnitude = abs(value)
        expected_shift = max(magnitude.bit_length() - 63, 0)
        lost = magnitude & ((1 << expected_shift) - 1) != 0
        assert (bool(sign), int(word), int(right)) == (
            value < 0,
            (magnitude >> expected_shift) | lost,
            expected_shift,
        )


@pytest.mark.parametrize("bits", [63, 64, 65, 88, 89, 127])
def test_sticky_sees_a_single_lost_bit_wherever_it_is(bits):
    for position in range(max(bits - 63, 0)):
        value = (1 << (bits - 1)) | 1 << position
        _, m, shift = wide.to_sticky(wide.from_ints([value]))
        assert int(shift[0]) == bits - 63
        assert int(m[0]) == (1 << 62) | 1
