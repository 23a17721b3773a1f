# SPDX-License-Identifier: Apache-2.0
"""SESSION_REMOVE: whole groups behind the first one leave, and nothing is written again."""

import numpy as np
import pytest
from random_halves import halves

from kvdrive import abi

S = abi.NvmeStatus
GROUP = 32  # tokens of 64 dimensions in a group


def without(rows, first, tokens):
    return np.concatenate([rows[:, :first], rows[:, first + tokens :]], axis=1)


def live_groups(host):
    return host.drive.flash_stats()["groups_live"]


@pytest.mark.parametrize("sparse", [False, True], ids=["exact", "sparse"])
@pytest.mark.parametrize("gathered", [1, 64], ids=["flash", "staged"])
def test_what_remains_is_attended_to_bit_for_bit(make_drive, check, sparse, gathered):
    rng = np.random.default_rng(1)
    host = make_drive(run_groups=gathered)
    options = abi.AppendOption.APPEND_SPARSE if sparse else 0
    k, v, q = halves(rng, 2, 700, 64), halves(rng, 2, 700, 64), halves(rng, 2, 2, 64)
    host.store(k, v, options=options)
    for tokens, added in ((GROUP, 0), (9 * GROUP, 50), (2 * GROUP, 40)):
        assert host.remove(tokens, before=k.shape[1]).status == S.SUCCESS
        k, v = without(k, GROUP, tokens), without(v, GROUP, tokens)
        if added:
            more = halves(rng, 2, added, 64), halves(rng, 2, added, 64)
            host.store(*more, first_token=k.shape[1], options=options)
            k, v = np.concatenate([k, more[0]], axis=1), np.concatenate([v, more[1]], axis=1)
        left = k.shape[1]
        for _ in range(2):
            check(host.attend(q, left), q, k, v)
            valid = rng.random(left) < 0.5
            check(host.attend(q, left, valid), q, k, v, valid)
            if sparse:
                host.store(k, v, session=2, options=options)  # the same rows without a removal
                how = {"mode": abi.Mode.SPARF_ATTEND, "r": 8, "k_top": 40, "local": 8}
                for some in (None, valid):
                    answers = [host.attend(q, left, some, session=session, **how) for session in (1, 2)]
                    assert answers[0].status == S.SUCCESS
                    assert answers[0].data.tobytes() == answers[1].data.tobytes()
                assert host.trim(2).status == S.SUCCESS
            for head in range(2):
                assert host.drive.rows(1, 0, head, 0).tobytes() == k[head].tobytes()
            assert host.drive.check() == []
            host.reopen(run_groups=gathered)


def test_no_group_is_written_and_all_removed_ones_are_free(make_drive):
    rows = halves(np.random.default_rng(2), 2, 640, 64)
    host = make_drive(run_groups=1)
    host.store(rows, rows)
    before, live = host.drive.flash_stats(), live_groups(host)
    assert host.remove(10 * GROUP, before=640).status == S.SUCCESS
    assert live_groups(host) == live - 4 * 10
    assert host.drive.flash_stats()["groups_written"] == before["groups_written"]


def test_a_fork_keeps_what_it_shares_and_the_other_way_round(make_drive, check):
    rng = np.random.default_rng(3)
    host = make_drive(run_groups=1)
    k, v, q = halves(rng, 1, 320, 64), halves(rng, 1, 320, 64), halves(rng, 1, 2, 64)
    host.store(k, v)
    live = live_groups(host)
    assert host.fork(1, 2, 320).status == S.SUCCESS
    assert host.remove(5 * GROUP, before=320).status == S.SUCCESS
    assert live_groups(host) == live  # session 2 still has them
    assert host.fork(1, 3, 4 * GROUP).status == S.SUCCESS
    for session, rows in ((1, without(k, GROUP, 160)), (2, k), (3, without(k, GROUP, 160)[:, :128])):
        same_v = {1: without(v, GROUP, 160), 2: v, 3: without(v, GROUP, 160)[:, :128]}[session]
        check(host.attend(q, rows.shape[1], session=session), q, rows, same_v)
    assert host.trim(2).status == S.SUCCESS
    assert live_groups(host) == live - 2 * 5
    assert host.remove(2 * GROUP, session=3, before=128).status == S.SUCCESS
    check(host.attend(q, 160), q, without(k, GROUP, 160), without(v, GROUP, 160))
    host.reopen()
    assert host.drive.check() == []
    assert host.erase(1).status == S.SUCCESS
    assert host.trim(3).status == S.SUCCESS
    assert live_groups(host) == 0


def test_a_trim_into_the_first_groups_and_new_rows(make_drive, check):
    rng = np.random.default_rng(4)
    host = make_drive(run_groups=1)
    k, v, q = halves(rng, 1, 320, 64), halves(rng, 1, 320, 64), halves(rng, 1, 1, 64)
    host.store(k, v)
    assert host.remove(3 * GROUP, before=320).status == S.SUCCESS
    k, v = without(k, GROUP, 96), without(v, GROUP, 96)
    for left in (40, 10):
        assert host.trim(from_token=left).status == S.SUCCESS
        more = halves(rng, 1, 100, 64), halves(rng, 1, 100, 64)
        host.store(*more, first_token=left)
        k, v = (np.concatenate([old[:, :left], new], axis=1) for old, new in ((k, more[0]), (v, more[1])))
        check(host.attend(q, left + 100), q, k, v)
        host.reopen(run_groups=1)
        check(host.attend(q, left + 100), q, k, v)
        assert host.drive.check() == []


def test_only_the_layers_below_the_limit_lose_tokens(make_drive):
    rows = halves(np.random.default_rng(5), 1, 320, 64)
    host = make_drive()
    for layer in (0, 1, 7):
        host.store(rows, rows, layer=layer)
    assert host.remove(GROUP, before=320, layers=2).status == S.SUCCESS
    for layer, want in ((0, without(rows, GROUP, GROUP)), (1, without(rows, GROUP, GROUP)), (7, rows)):
        assert host.drive.rows(1, layer, 0, 1).tobytes() == want[0].tobytes()
    assert host.remove(GROUP, before=288).status == S.TOKEN_GAP  # layer 7 has 320


REFUSED = {
    "no session": ({"session": 9}, S.UNKNOWN_SESSION),
    "no tokens": ({"tokens": 0}, S.INVALID_FIELD),
    "group 0": ({"first_token": 0}, S.INVALID_FIELD),
    "inside group 0": ({"first_token": 16}, S.INVALID_FIELD),
    "a later group": ({"first_token": 64}, S.INVALID_FIELD),
    "no whole group": ({"tokens": 33}, S.INVALID_FIELD),
    "the incomplete group": ({"tokens": 96}, S.TOKENS_MISSING),
    "beyond the end": ({"tokens": 320}, S.TOKENS_MISSING),
    "a repetition": ({"before": 132}, S.TOKEN_GAP),
    "reserved": ({"reserved0": 1}, S.INVALID_FIELD),
    "reserved at the end": ({"reserved1": (0, 1)}, S.INVALID_FIELD),
}


@pytest.mark.parametrize("case", REFUSED)
def test_wrong_ranges_are_refused_and_change_nothing(host, case):
    fields, status = REFUSED[case]
    rows = halves(np.random.default_rng(6), 2, 100, 64)
    host.store(rows, rows)
    values = {"session": 1, "first_token": GROUP, "tokens": GROUP, "before": 100} | fields
    assert host.raw(host.entry("remove", **values)).status == status
    assert host.drive.rows(1, 0, 1, 0).tobytes() == rows[1].tobytes()


def test_a_lost_group_fails_the_command_where_its_rows_are_needed(make_drive):
    rows = halves(np.random.default_rng(7), 1, 100 * GROUP, 64)
    host = make_drive(preset="mqsim-default", pages_per_block=2, run_groups=1)  # few groups wait in drive memory
    host.store(rows, rows, options=abi.AppendOption.APPEND_SPARSE)
    host.drive.inject("read_uncorrectable")
    assert host.remove(GROUP, before=100 * GROUP).status == S.UNRECOVERED_READ
    assert host.drive.rows(1, 0, 0, 1).tobytes() == rows[0].tobytes()
