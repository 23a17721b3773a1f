"""Sessions and the emulator target behind them."""

from fractions import Fraction

import numpy as np
import pytest
from random_halves import halves

import golden
from kvdrive import abi
from kvdrive.errors import TargetError
from kvdrive.kvcache.session import LABEL_LAYER, Query, Session, attend
from kvdrive.nvme.errors import CommandError
from kvdrive.policies.parameters import Parameters
from kvdrive.policies.sparf import SparF
from kvdrive.targets.emulator import Emulator


def store(session, layer, k, v, first_token=0):
    session.append(layer, abi.KvKind.KEYS, first_token, k)
    session.append(layer, abi.KvKind.VALUES, first_token, v)


def test_attend_returns_out_max_and_sum(target):
    rng = np.random.default_rng(1)
    k, v, q = halves(rng, 3, 50, 64), halves(rng, 3, 50, 64), halves(rng, 3, 4, 64)
    session, scale = Session(target), golden.scale_bits(None, 64)
    store(session, 2, k[:, :20], v[:, :20])
    store(session, 2, k[:, 20:], v[:, 20:], first_token=20)
    valid = rng.random(50) < 0.7
    result = session.attend(2, q, 50, scale, Parameters(valid=valid))
    packed = np.packbits(valid, bitorder="little")
    for head in range(3):
        want = golden.attention(q[head], k[head], v[head], scale_log2e=scale, valid=packed)
        np.testing.assert_array_equal(result.out[head].view(np.uint16), want.out.view(np.uint16))
        np.testing.assert_array_equal(result.max[head], want.max)
        np.testing.assert_array_equal(result.sum[head], want.sum)


def test_long_appends_are_split(target):
    rng = np.random.default_rng(2)
    tokens = 70_000
    k, v, q = halves(rng, 1, tokens, 32), halves(rng, 1, tokens, 32), halves(rng, 1, 1, 32)
    session, scale = Session(target), golden.scale_bits(None, 32)
    store(session, 0, k, v)
    assert target.stats().commands == 4
    valid = np.zeros(tokens, bool)
    valid[65_500:65_600] = True  # around the end of the first command
    out = session.attend(0, q, tokens, scale, Parameters(valid=valid)).out
    want = golden.attention(q[0], k[0, valid], v[0, valid], scale_log2e=scale)
    np.testing.assert_array_equal(out[0].view(np.uint16), want.out.view(np.uint16))


def test_a_trimmed_session_starts_again(target):
    rng = np.random.default_rng(3)
    k = halves(rng, 1, 40, 64)
    session = Session(target)
    session.trim(0)  # nothing there yet: no command
    assert target.stats().commands == 0
    for _ in range(2):
        store(session, 0, k, k)
        session.trim(0)
    with pytest.raises(CommandError, match="UNKNOWN_SESSION"):
        session.attend(0, k[:, :1], 40, 0)


def test_sessions_of_one_target_differ(target):
    assert Session(target).number != Session(target).number


def test_a_full_drive_is_an_error_that_says_so(tmp_path):
    rows = halves(np.random.default_rng(4), 1, 300, 64)
    with Emulator(tmp_path / "small.kv", "fast", capacity_bytes=8 * 4096) as small:
        with pytest.raises(CommandError, match="the drive is full"):
            Session(small).append(0, abi.KvKind.KEYS, 0, rows)
        assert small.stats().failed_commands == 1


def test_closed_target_refuses_commands(tmp_path):
    target = Emulator(tmp_path / "folder" / "drive.kv", "fast")
    target.close()
    target.close()
    with pytest.raises(TargetError, match="closed"):
        target.stats()
    Emulator(tmp_path / "folder" / "drive.kv", "fast").close()  # the file is free again


def test_unusable_file_is_a_target_error(tmp_path):
    (tmp_path / "notes.txt").write_text("mine")
    with pytest.raises(TargetError, match="holds something else"):
        Emulator(tmp_path / "notes.txt", "fast")
    with pytest.raises(TargetError, match="notes"):
        Emulator(tmp_path / "notes.txt" / "drive.kv", "fast")


def test_sparf_in_a_session_equals_golden(target):
    rng = np.random.default_rng(11)
    k, v, q = (rng.standard_normal((2, n, 64)).astype(np.float16) for n in (600, 600, 2))
    session = Session(target, append_options=abi.AppendOption.APPEND_SPARSE)
    session.append(0, abi.KvKind.KEYS, 0, k)
    session.append(0, abi.KvKind.VALUES, 0, v)
    asked = SparF(Fraction(1, 8)).parameters(600, 64)
    got = session.attend(0, q, 600, golden.scale_bits(None, 64), asked)
    for head in range(2):
        want = golden.sparf(q[head], k[head], v[head], r=8, k_top=75, local=18)
        np.testing.assert_array_equal(got.out[head].view(np.uint16), want.out.view(np.uint16))
        np.testing.assert_array_equal(got.alpha[head].view(np.uint32), want.alpha)
    assert got.selected.tolist() == [75, 75]


def test_a_label_stays_with_its_session(target):
    """All byte values, through a fork and after trimming."""
    label = bytes(range(0, 256, 8))
    session = Session(target)
    session.put_label(label)
    k = halves(np.random.default_rng(6), 2, 40, 64)
    store(session, 0, k, k)
    fork = session.fork(30)
    fork.trim(1)
    assert session.label() == fork.label() == label
    with pytest.raises(CommandError, match="TOKENS_MISSING"):
        fork.attend(0, k[:, :1], 2, 0)


def test_a_label_is_read_by_one_command_also_where_it_was_stored_with_a_key(target):
    """Earlier versions stored a row of K with it, and read it by attention."""
    label = bytes(range(255, 0, -8))
    session = Session(target)
    for kind, values in ((abi.KvKind.KEYS, bytes(32)), (abi.KvKind.VALUES, label)):
        session.append(LABEL_LAYER, kind, 0, np.array(list(values), np.float16).reshape(1, 1, 32))
    before = target.stats().commands
    assert session.label() == label
    assert target.stats().commands == before + 1


def test_a_failed_query_leaves_no_result_behind(target):
    """The results of the other queries are fetched, because a drive keeps a limited number of results."""
    k, session = halves(np.random.default_rng(7), 1, 40, 64), Session(target)
    store(session, 0, k, k)
    good, bad = Query(session, 0, k[:, :1], 40, 0), Query(session, 0, k[:, :1], 41, 0)
    for _ in range(20):
        with pytest.raises(CommandError, match="TOKENS_MISSING"):
            attend(target, [good] * 50 + [bad])
    assert len(attend(target, [good] * 300)) == 300
