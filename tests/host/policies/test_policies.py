"""What each policy asks of the drive, and that the drive's answer equals the golden model's."""

from fractions import Fraction

import numpy as np
import pytest

import golden
from kvdrive import abi
from kvdrive.errors import InputError, UnsupportedError
from kvdrive.kernels.native import scale_bits
from kvdrive.policies import POLICIES, make_policy, parse_ratio
from kvdrive.policies.base import Parameters

D = 64
EIGHTH = Fraction(1, 8)


@pytest.mark.parametrize("text", ["1/8", "0.125", " 1/8 "])
def test_ratios_are_read_as_people_write_them(text):
    assert parse_ratio(text) == EIGHTH


@pytest.mark.parametrize("text", ["", "x", "0", "-1/2", "9/8", "1/0", "nan", "inf"])
def test_bad_ratios_are_named(text):
    with pytest.raises(InputError, match=r"1/8 or 0\.125"):
        parse_ratio(text)


def test_unknown_policies_are_named():
    with pytest.raises(InputError, match="exact, sparf, sparq, h2o, local"):
        make_policy("dense")


def test_exact_attention_takes_no_ratio():
    with pytest.raises(InputError, match="no compression ratio"):
        make_policy("exact", EIGHTH)


@pytest.mark.parametrize("name", ["sparf", "sparq", "local"])
def test_ratio_one_is_exact_attention(name):
    assert make_policy(name).parameters(1000, D) == Parameters()
    assert make_policy(name).bytes_needed(1000, D) == make_policy("exact").bytes_needed(1000, D)


def test_sparf_chooses_an_eighth_of_rows_and_tokens():
    assert make_policy("sparf", EIGHTH).parameters(4096, 128) == Parameters(abi.Mode.SPARF_ATTEND, 16, 512, 128)


def test_sparq_spends_an_eighth_of_the_bytes():
    policy = make_policy("sparq", EIGHTH)
    assert policy.parameters(4096, 128) == Parameters(abi.Mode.SPARF_ATTEND, 16, 256, 64)
    assert policy.bytes_needed(4096, 128) * 8 == make_policy("exact").bytes_needed(4096, 128)


def test_tokens_that_come_with_the_query_are_part_of_the_budget():
    asked = make_policy("sparf", EIGHTH).parameters(4080, 128, tail_tokens=16)
    assert (asked.k_top, asked.local) == (512 - 16, 128 - 16)
    recent = make_policy("local", EIGHTH).parameters(4080, 128, tail_tokens=16).valid
    assert recent.sum() == 512 - 16
    assert recent[-(512 - 16) :].all()


def test_a_tail_larger_than_the_budget_leaves_the_least_choice():
    asked = make_policy("sparf", EIGHTH).parameters(32, D, tail_tokens=33)
    assert (asked.k_top, asked.local) == (1, 0)
    assert not make_policy("local", EIGHTH).parameters(32, D, tail_tokens=33).valid.any()


def test_padding_stays_masked():
    valid = np.arange(100) >= 40
    for name in ("exact", "sparf", "sparq"):
        assert make_policy(name).parameters(100, D, valid).valid is valid
    local = make_policy("local", Fraction(3, 4)).parameters(100, D, valid).valid
    np.testing.assert_array_equal(local, valid)


def test_h2o_is_not_asked_of_a_drive():
    assert [name for name, kind in POLICIES.items() if not kind.in_drive] == ["h2o"]
    with pytest.raises(UnsupportedError, match="runs on the host"):
        make_policy("h2o", EIGHTH).parameters(100, D)


@pytest.mark.parametrize("name", ["sparf", "sparq", "local"])
@pytest.mark.parametrize("ratio", [Fraction(1), Fraction(1, 2), EIGHTH, Fraction(1, 16)])
def test_choices_are_ones_that_the_kernels_take(name, ratio):
    rng = np.random.default_rng(7)
    for tokens in (1, 2, 31, 100):
        asked = make_policy(name, ratio).parameters(tokens, D)
        q, k, v = (rng.standard_normal((n, D)).astype(np.float16) for n in (2, tokens, tokens))
        common = {"scale_log2e": scale_bits(None, D)}
        if asked.valid is not None:
            common["valid"] = np.packbits(asked.valid, bitorder="little")
        if asked.mode == abi.Mode.EXACT:
            assert golden.attention(q, k, v, **common).status == 0
        else:
            assert golden.sparf(q, k, v, r=asked.r, k_top=asked.k_top, local=asked.local, **common).status == 0
