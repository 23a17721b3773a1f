# SPDX-License-Identifier: Apache-2.0
"""Quotas and budgets are stored on the drive. They stay valid over a mount until others are given."""

import numpy as np
import pytest

from kvdrive import abi

OK, FULL = abi.NvmeStatus.SUCCESS, abi.NvmeStatus.CAPACITY_EXCEEDED
NAMES = ("staged_budget", "session_groups", "metadata_budget")


def limits(host):
    stats = host.drive.flash_stats()
    return tuple(stats[name] for name in NAMES)


def rows(tokens):
    return np.ones((1, tokens, 64), np.float16)


def test_defaults(make_drive):
    host = make_drive(capacity_bytes=1 << 30)
    assert limits(host) == (256 << 20, 0, (16 << 20) + (1 << 18))


@pytest.mark.parametrize("flush", [False, True])
def test_limits_hold_over_a_mount(make_drive, flush):
    given = {"staged_bytes": 31 * 128, "session_bytes": 2 * 4096, "metadata_bytes": 1 << 20, "run_groups": 1}
    host = make_drive(**given)
    if flush:
        host.flush()
    for _ in range(2):
        host.reopen()
        assert limits(host) == (31 * 128, 2, 1 << 20)
    assert host.append(rows(64), session=1).status == OK
    assert host.append(rows(32), session=1, first_token=64).status == FULL
    assert host.append(rows(31), session=2).status == OK
    assert host.append(rows(1), session=3).status == FULL
    host.reopen()
    assert host.append(rows(1), session=3).status == FULL
    assert host.append(rows(32), session=1, first_token=64).status == FULL
    assert host.append(rows(1), session=2, first_token=31).status == OK  # the complete group is no longer staged
    assert host.append(rows(1), session=3).status == OK
    assert host.drive.check() == []


def test_a_limit_that_is_given_replaces_the_stored_one_alone(make_drive):
    host = make_drive(staged_bytes=1 << 20, session_bytes=1 << 20)
    host.reopen(session_bytes=0)
    assert limits(host)[:2] == (1 << 20, 0)
    host.reopen()
    assert limits(host)[:2] == (1 << 20, 0)


def test_limits_are_in_snapshots(make_drive):
    host = make_drive(session_bytes=1 << 24, snapshot_bytes=1)
    for token in range(50):
        assert host.append(rows(1), first_token=token, options=1).status == OK
    host.reopen()
    assert limits(host)[1] == (1 << 24) / 4096


def test_rows_that_wait_count_for_the_quota(make_drive):
    host = make_drive(session_bytes=2 * 4096, run_groups=16)
    assert host.append(rows(64)).status == OK
    assert host.drive.flash_stats()["groups_live"] == 0
    assert host.append(rows(32), first_token=64).status == FULL
    host.reopen()
    assert host.append(rows(32), first_token=64).status == FULL
    assert host.append(rows(31), first_token=64).status == OK


def test_a_fork_beyond_the_quota_is_refused(make_drive):
    host = make_drive()
    assert host.append(rows(128)).status == OK
    host.reopen(session_bytes=2 * 4096)
    assert host.fork(1, 2, 128).status == FULL
    assert host.drive.sessions() == [1]
    assert host.fork(1, 2, 64).status == OK
    assert host.drive.check() == []


def test_rows_that_wait_have_their_place_on_a_full_drive(make_drive):
    """Room for 64 groups. The room of staged rows is not promised twice."""
    host = make_drive(capacity_bytes=64 * 4096, run_groups=64)
    for session in range(1, 33):
        assert host.append(rows(64), session=session).status == OK
    assert host.append(rows(32), session=100).status == FULL
    assert host.append(rows(31), session=100).status == OK
    host.reopen(run_groups=1)
    for session in range(1, 33):
        assert host.append(rows(1), session=session, first_token=64).status == OK
    assert host.drive.flash_stats()["groups_live"] == 64
    assert host.drive.rows(32, 0, 0, 0).tobytes() == rows(65).tobytes()
    assert host.drive.check() == []


def test_budgets_that_the_journal_cannot_hold_are_refused(make_drive):
    host = make_drive(staged_bytes=1 << 20)
    with pytest.raises(RuntimeError, match="no room for such budgets"):
        host.reopen(staged_bytes=1 << 40)
    host.reopen()
    assert limits(host)[0] == 1 << 20
