"""exp2 over its whole domain."""

from decimal import ROUND_HALF_EVEN, Decimal, getcontext

import numpy as np
import pytest

from golden import abi, exp2

FRACTIONS = np.arange(1 << 20, dtype=np.int64)
TABLES = (abi.EXP2_C0, abi.EXP2_C1, abi.EXP2_C2)


@pytest.fixture(scope="module")
def mantissas():
    return exp2.exp2_mantissa(FRACTIONS)


def test_tables_are_what_the_contract_says():
    getcontext().prec = 60
    ln2 = Decimal(2).ln()
    for i in range(64):
        power = (ln2 * i / 64).exp()
        for table, factor in zip(TABLES, (2**22, ln2 * 2**17, ln2 * ln2 / 2 * 2**11), strict=True):
            assert table[i] == int((power * factor).to_integral_value(rounding=ROUND_HALF_EVEN))


def test_every_fraction_is_within_the_stated_bound(mantissas):
    exact = np.exp2(FRACTIONS / 2.0**20) * 2.0**19
    assert np.abs(mantissas - exact).max() < 0.699
    assert (mantissas.min(), mantissas.max()) == (1 << 19, (1 << 20) - 1)


def test_every_fraction_follows_the_literal_formula(mantissas, literal):
    step = 97  # a prime: every table entry and every kind of remainder
    for f in range(0, 1 << 20, step):
        assert mantissas[f] == literal.mantissa(f, TABLES)


def test_mantissa_never_falls(mantissas):
    assert (np.diff(mantissas) >= 0).all()


@pytest.mark.parametrize("n", [0, -1, -2, -11, -12, -13, -14, -31, -32, -33, -34, -35, -64, -4096])
def test_all_fractions_at_one_shift(n, mantissas):
    """p = m * 2^(12 + n), rounded half up below 2^-31."""
    fractions = FRACTIONS[:1] if n == 0 else FRACTIONS
    m = mantissas[: fractions.size]
    p = exp2.probability((n << 20) + fractions)
    assert p.dtype == np.uint32
    exact = m * 2.0 ** (12 + n)
    np.testing.assert_array_equal(p, np.floor(exact + 0.5))


def test_all_shifts_at_corner_fractions(literal):
    corners = [0, 1, (1 << 14) - 1, 1 << 14, (1 << 19) - 1, 1 << 19, (1 << 20) - 1]
    ys = [(n << 20) + f for n in range(-1, -4097, -1) for f in corners] + [0]
    p = exp2.probability(np.array(ys))
    expected = [literal.probability(y, 0, TABLES) for y in ys]
    np.testing.assert_array_equal(p, expected)


def test_probability_never_falls_and_has_20_significant_bits():
    ends = [(n << 20) + f for n in range(-36, 0) for f in (0, 1, (1 << 20) - 1)] + [0]
    inner = np.random.default_rng(3).integers(-36 << 20, 0, 1_000_000)
    p = exp2.probability(np.sort(np.concatenate([ends, inner]))).astype(np.int64)
    assert (np.diff(p) >= 0).all()
    assert p[-1] == 1 << 31
    lowest = p & -p
    assert (p < (lowest << 20) + (p == 0)).all()


def test_full_33_bit_range():
    y = np.array([-(2**31) - (2048 << 20), -(2**32), -1, 0])
    assert exp2.probability(y).tolist() == [0, 0, (1 << 31) - (1 << 11), 1 << 31]
