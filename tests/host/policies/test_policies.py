"""The parameters that each policy sends to the drive, and answers that equal the golden model's."""

import ast
import subprocess
import sys
from fractions import Fraction
from pathlib import Path

import numpy as np
import pytest

import golden
from kvdrive import abi, policies
from kvdrive.errors import InputError
from kvdrive.kernels.native import scale_bits
from kvdrive.policies import POLICIES, Entry, make_policy, parse_ratio, register
from kvdrive.policies.local import Local
from kvdrive.policies.parameters import Parameters

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
    with pytest.raises(InputError, match="exact, groups, auto, sparf, sparq, h2o, local"):
        make_policy("dense")


def test_exact_attention_takes_no_ratio():
    with pytest.raises(InputError, match="no compression ratio"):
        make_policy("exact", EIGHTH)


@pytest.mark.parametrize("name", ["groups", "sparf", "sparq", "local"])
def test_ratio_one_is_exact_attention(name):
    assert make_policy(name).parameters(1000, D) == Parameters()
    assert make_policy(name).bytes_needed(1000, D, 2 * D) == make_policy("exact").bytes_needed(1000, D, 2 * D)


def test_sparf_chooses_an_eighth_of_rows_and_tokens():
    assert make_policy("sparf", EIGHTH).parameters(4096, 128) == Parameters(abi.Mode.SPARF_ATTEND, 16, 512, 128)


def test_sparq_spends_an_eighth_of_the_bytes():
    policy = make_policy("sparq", EIGHTH)
    assert policy.parameters(4096, 128) == Parameters(abi.Mode.SPARF_ATTEND, 16, 256, 64)
    assert policy.bytes_needed(4096, 128, 256) * 8 == make_policy("exact").bytes_needed(4096, 128, 256)


def test_groups_with_a_limit_of_what_is_left_unread():
    policy = make_policy("groups", EIGHTH, unread=0.01)
    assert policy.parameters(4095, 128) == Parameters(abi.Mode.GROUPS, 32, 16, 655)
    assert policy.label == "1/8, 0.01 unread"
    assert make_policy("groups", EIGHTH, unread=1e-9).parameters(4095, 128).local == 1
    assert make_policy("groups", EIGHTH, unread=1 - 1e-9).parameters(4095, 128).local == 65535
    for unread in (-0.1, 1.0):
        with pytest.raises(InputError, match=r"write it as 0\.01"):
            make_policy("groups", EIGHTH, unread=unread)


def test_groups_chooses_an_eighth_of_the_units():
    policy = make_policy("groups", EIGHTH)
    assert policy.parameters(4096, 128) == Parameters(abi.Mode.GROUPS, 32, 16)
    assert make_policy("groups", EIGHTH, unit=128).parameters(4095, 128) == Parameters(abi.Mode.GROUPS, 128, 4)
    assert policy.parameters(90, 128) == Parameters()  # two units: both are always chosen
    assert policy.parameters(100, 128) == Parameters(abi.Mode.GROUPS, 32, 2)
    assert policy.parameters(20, 128) == Parameters()
    rows = 16 * 32 + 5  # and the tokens without an index
    assert policy.bytes_needed(4101, 128, 256) == 128 * 1280 + 2 * rows * 256
    assert policy.bytes_needed(4101, 128, 132) == 128 * 1280 + 2 * rows * 132  # the index is that of binary16


def test_parameters_that_a_policy_does_not_have_are_refused():
    with pytest.raises(InputError, match="no unit of 48 tokens"):
        make_policy("groups", EIGHTH, unit=48)
    with pytest.raises(InputError, match="no parameter unit"):
        make_policy("sparf", EIGHTH, unit=32)


def test_tokens_that_come_with_the_query_are_part_of_the_budget():
    asked = make_policy("sparf", EIGHTH).parameters(4080, 128, pending=16)
    assert (asked.k_top, asked.local) == (512 - 16, 128 - 16)
    recent = make_policy("local", EIGHTH).parameters(4080, 128, pending=16).valid
    assert recent.sum() == 512 - 16
    assert recent[-(512 - 16) :].all()


def test_a_tail_larger_than_the_budget_leaves_the_least_choice():
    asked = make_policy("sparf", EIGHTH).parameters(32, D, pending=33)
    assert (asked.k_top, asked.local) == (1, 0)
    assert not make_policy("local", EIGHTH).parameters(32, D, pending=33).valid.any()


def test_padding_stays_masked():
    valid = np.arange(100) >= 40
    for name in ("exact", "sparf", "sparq"):
        assert make_policy(name).parameters(100, D, valid).valid is valid
    local = make_policy("local", Fraction(3, 4)).parameters(100, D, valid).valid
    np.testing.assert_array_equal(local, valid)


def test_the_table_names_every_policy_of_the_package():
    files = {path.stem for path in Path(policies.__file__).parent.glob("*.py")}
    assert set(POLICIES) <= files  # one file each
    for name in POLICIES:
        policy = make_policy(name)
        assert policy.name == name
        assert type(policy).__module__ == f"kvdrive.policies.{name}"
    assert [name for name in POLICIES if not make_policy(name).in_drive] == ["h2o"]


def test_listing_policies_imports_no_torch():
    program = "import sys; from kvdrive.policies import POLICIES; print(len(POLICIES), 'torch' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout.split() == [str(len(POLICIES)), "False"]


def test_nobody_asks_a_policy_for_its_class():
    """Callers use the interface only: outside of policies/, no policy is imported or tested with isinstance."""
    kinds = {type(make_policy(name)).__name__ for name in POLICIES} | {"Policy", "DrivePolicy", "HostPolicy"}
    package = Path(policies.__file__).parents[1]
    for path in package.rglob("*.py"):
        text = path.read_text()
        if not any(kind in text for kind in kinds):
            continue
        for node in ast.walk(ast.parse(text)):
            if isinstance(node, ast.Call) and getattr(node.func, "id", "") in ("isinstance", "issubclass"):
                if path.name == "registry.py":
                    continue  # where a class by name comes from
                asked = {one.id for one in ast.walk(node.args[1]) if isinstance(one, ast.Name)}
                assert not asked & kinds, f"{path}:{node.lineno}"


def test_a_policy_of_ones_own_has_a_name():
    register("mine", Entry(Local, "as local"))
    try:
        assert type(make_policy("mine", EIGHTH)) is Local
        with pytest.raises(InputError, match="choose another name"):
            register("mine", Entry(Local, "again"))
    finally:
        del POLICIES["mine"]


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
