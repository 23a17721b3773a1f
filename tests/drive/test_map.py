# SPDX-License-Identifier: Apache-2.0
"""The drive's map: few bytes for long runs, staged rows, drives without contents."""

import numpy as np
import pytest
from random_halves import halves

from kvdrive import abi

S = abi.NvmeStatus


def seeded(seed, *shape):
    return halves(np.random.default_rng(seed), *shape)


def test_a_long_append_is_a_few_runs(make_drive):
    host = make_drive(capacity_bytes=1 << 28)
    rows = seeded(1, 4, 8192, 128)
    host.store(rows, rows)
    stats = host.drive.flash_stats()
    assert stats["groups_live"] == 2 * 4 * 512
    assert stats["metadata_bytes"] < 3000


def test_rows_wait_for_their_run_and_survive(make_drive, check):
    k, v, q = (
        seeded(2, 2, 1000, 64),
        seeded(3, 2, 1000, 64),
        seeded(4, 2, 2, 64),
    )
    host = make_drive(run_groups=8, capacity_bytes=1 << 24)
    for token in range(0, 1000, 10):
        host.store(k[:, token : token + 10], v[:, token : token + 10], first_token=token)
    assert host.drive.flash_stats()["groups_live"] == 2 * 2 * 24  # three runs of eight
    check(host.attend(q, 1000), q, k, v)
    host.flush()
    host.reopen(run_groups=8)
    check(host.attend(q, 1000), q, k, v)
    assert host.trim(from_token=700).status == S.SUCCESS
    check(host.attend(q, 700), q, k[:, :700], v[:, :700])
    assert host.drive.check() == []


def test_without_contents_times_are_the_same(make_drive):
    k, q = seeded(5, 2, 4096, 128), seeded(6, 2, 1, 128)
    times = []
    for payload in (True, False):
        host = make_drive(preset="instcsd", payload=payload)
        host.store(k, k)
        assert host.flush().status == S.SUCCESS
        host.attend(q, 4096)
        stats = host.drive.flash_stats()
        times.append((stats["device_ns"] - 0, stats["channel_bytes"], stats["groups_live"]))
        host.reopen()
        assert host.drive.check() == []
    assert times[0][1:] == times[1][1:]
    assert times[1][0] == pytest.approx(times[0][0], rel=0.1)  # the journal does not hold staged rows


@pytest.mark.parametrize("seed", [1, 2])
def test_pages_are_lost_with_a_probability(make_drive, seed):
    lost = []
    for _ in range(2):
        host = make_drive(capacity_bytes=1 << 26)
        rows = seeded(7, 1, 32768, 128)
        host.store(rows, rows)
        host.drive.inject("read_uncorrectable", after=seed, count=10**6, argument=10_000_000)  # one in 100 reads
        assert host.attend(seeded(8, 1, 1, 128), 32768).status == S.UNRECOVERED_READ
        lost.append(host.drive.flash_stats()["lost_groups"])
    assert lost[0] == lost[1]
    assert 20 < lost[0] < 70  # of 4096 tokens


def decode(host, heads, steps, d=128, first=0, **fields):
    """Append tokens one by one. Returns the first status other than success."""
    row = np.ones((heads, 1, d), np.float16)
    for token in range(first, first + steps):
        for kind in abi.KvKind:
            status = host.append(row, kind=kind, first_token=token, **fields).status
            if status != S.SUCCESS:
                return status
    return S.SUCCESS


def test_runs_grow_as_the_budget_of_the_map_shrinks(make_drive):
    """A byte for each group of the drive, and what 64 lists take: single groups of 12 bytes each would use it up."""
    host = make_drive(capacity_bytes=1 << 26, metadata_bytes=(1 << 14) + 24_000, preset="instcsd", payload=False)
    assert 5 < host.drive.flash_stats()["run_groups"] < 40
    rows = np.ones((2, 16, 128), np.float16)  # one group for each head
    for token in range(0, 16 * 240, 16):
        for session in range(1, 17):
            host.store(rows, rows, session=session, first_token=token)
    stats = host.drive.flash_stats()
    assert stats["groups_live"] + stats["staged_bytes"] // 4096 == 240 * 64  # of 256 * 64
    assert stats["metadata_bytes"] <= stats["metadata_budget"]
    assert host.drive.check() == []


def test_a_full_map_is_a_clean_error_with_nothing_lost(make_drive, check):
    host = make_drive(capacity_bytes=1 << 26, metadata_bytes=30_000, run_groups=1)
    k, v, q = (
        seeded(9, 2, 512, 128),
        seeded(10, 2, 512, 128),
        seeded(11, 2, 1, 128),
    )
    host.store(k, v, session=1000)
    session = 0
    while (status := decode(host, 4, 16 * 8, session=session + 1)) == S.SUCCESS:
        session += 1
    assert status == S.CAPACITY_EXCEEDED
    stats = host.drive.flash_stats()
    assert stats["metadata_bytes"] <= stats["metadata_budget"] == 30_000
    assert stats["groups_available"] > 10_000  # the flash is not full
    check(host.attend(q, 512, session=1000), q, k, v)
    host.reopen()
    assert host.drive.check() == []
    check(host.attend(q, 512, session=1000), q, k, v)
    assert host.trim(session=1).status == S.SUCCESS
    host.store(k, v, session=2000)  # room is free again
    check(host.attend(q, 512, session=2000), q, k, v)


def test_memory_that_is_reported_is_the_same_after_a_mount(make_drive):
    host = make_drive(capacity_bytes=1 << 26, payload=False)
    for session in range(1, 9):
        decode(host, 4, 100, session=session)
        host.fork(session, session + 100, 50)
    for session in range(1, 9, 2):
        host.trim(session=session)
    before = host.drive.flash_stats()
    host.reopen()
    after = host.drive.flash_stats()
    assert after["metadata_bytes"] == pytest.approx(before["metadata_bytes"], rel=0.25)  # vectors have fewer to spare
    for name in ("staged_bytes", "groups_live", "groups_available"):
        assert after[name] == before[name]
    for session in host.drive.sessions():
        assert host.trim(session=session).status == S.SUCCESS
    assert host.drive.flash_stats()["metadata_bytes"] < before["metadata_bytes"] / 2


def test_gathered_rows_leave_the_tails_when_these_are_full(make_drive, check):
    """The budget holds a third of 16 staged groups per head."""
    tail = 16 * 4096 * 4 * 8 // 3
    host = make_drive(capacity_bytes=1 << 26, run_groups=16, staged_bytes=tail)
    k, v, q = (
        seeded(12, 4, 300, 128),
        seeded(13, 4, 300, 128),
        seeded(14, 4, 1, 128),
    )
    for token in range(0, 300, 5):
        for session in range(1, 5):
            host.store(k[:, token : token + 5], v[:, token : token + 5], session=session, first_token=token)
            assert host.drive.flash_stats()["staged_bytes"] <= tail
    for session in range(1, 5):
        check(host.attend(q, 300, session=session), q, k, v)
    assert host.drive.flash_stats()["groups_live"] > 0
    assert host.flush().status == S.SUCCESS
    host.reopen()
    check(host.attend(q, 300, session=3), q, k, v)
    assert host.drive.check() == []


def test_a_fork_shares_what_waited(make_drive, check):
    host = make_drive(run_groups=16)
    k, v, q = (
        seeded(15, 2, 100, 128),
        seeded(16, 2, 100, 128),
        seeded(17, 2, 1, 128),
    )
    host.store(k, v)
    assert host.fork(1, 2, 100).status == S.SUCCESS
    stats = host.drive.flash_stats()
    assert stats["groups_live"] == 2 * 2 * 6
    assert stats["staged_bytes"] == 2 * 2 * 2 * 4 * 256
    for session in (1, 2):
        check(host.attend(q, 100, session=session), q, k, v)


@pytest.mark.slow
def test_numbers_of_groups_that_wait_start_anew(make_drive):
    """There are 2^24 of them, no multiple of a row of this drive; the groups at the seam are found in both lists."""
    host = make_drive(preset="zn540", payload=False, capacity_bytes=1 << 30, pages_per_block=96)
    tokens, heads = 16384, 8
    rows = np.ones((heads, tokens, 256), np.float16)  # 8 tokens in a group
    per_command, session = heads * tokens // 8, 0
    for number in range((1 << 24) // per_command + 2):
        session = 1 + number % 6
        assert host.trim(session=session).status in (S.SUCCESS, S.UNKNOWN_SESSION)
        assert host.append(rows, session=session).status == S.SUCCESS
        if number >= (1 << 24) // per_command - 1:
            host.flush()
            assert host.drive.check() == []
    stats = host.drive.flash_stats()
    assert stats["groups_written"] > 1 << 24
    assert host.fork(session, 100, tokens).status == S.SUCCESS
    host.reopen()
    assert host.drive.check() == []
