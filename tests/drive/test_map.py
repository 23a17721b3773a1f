# SPDX-License-Identifier: Apache-2.0
"""What the drive remembers: few bytes for long runs, rows that wait for theirs, drives without contents."""

import numpy as np
import pytest

from kvdrive import abi

S = abi.NvmeStatus


def halves(seed, *shape):
    return np.random.default_rng(seed).standard_normal(shape).astype(np.float16)


def test_a_long_append_is_a_few_runs(make_drive):
    host = make_drive(capacity_bytes=1 << 28)
    rows = halves(1, 4, 8192, 128)
    host.store(rows, rows)
    stats = host.drive.flash_stats()
    assert stats["groups_live"] == 2 * 4 * 512
    assert stats["metadata_bytes"] < 3000


def test_rows_wait_for_their_run_and_survive(make_drive, check):
    k, v, q = halves(2, 2, 1000, 64), halves(3, 2, 1000, 64), halves(4, 2, 2, 64)
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
    k, q = halves(5, 2, 4096, 128), halves(6, 2, 1, 128)
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
    assert times[1][0] == pytest.approx(times[0][0], rel=0.1)  # the journal does not hold what waits


@pytest.mark.parametrize("seed", [1, 2])
def test_pages_are_lost_with_a_probability(make_drive, seed):
    lost = []
    for _ in range(2):
        host = make_drive(capacity_bytes=1 << 26)
        rows = halves(7, 1, 32768, 128)
        host.store(rows, rows)
        host.drive.inject("read_uncorrectable", after=seed, count=10**6, argument=10_000_000)  # one in a hundred
        assert host.attend(halves(8, 1, 1, 128), 32768).status == S.UNRECOVERED_READ
        lost.append(host.drive.flash_stats()["lost_groups"])
    assert lost[0] == lost[1]
    assert 20 < lost[0] < 70  # of 4096
