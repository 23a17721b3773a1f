# SPDX-License-Identifier: Apache-2.0
"""Failing flash: acknowledged data are not lost, and lost data are never used."""

import numpy as np
import pytest
from random_halves import halves

from kvdrive import abi

S = abi.NvmeStatus
# One flash page of four groups per program, 64 dies: few rows are staged in memory.
OPTIONS = {"preset": "mqsim-default", "pages_per_block": 2, "capacity_bytes": 4096 * 2000}


@pytest.fixture
def stored(make_drive):
    """A drive with a session of 32 * 512 tokens, which fill two programs of every die."""
    host = make_drive(**OPTIONS)
    rng = np.random.default_rng(1)
    host.k, host.v, host.q = (halves(rng, 1, n, 64) for n in (32 * 512, 32 * 512, 2))
    host.store(host.k, host.v)
    return host


@pytest.mark.parametrize("after", [0, 1, 100, 511, 1023])
def test_an_uncorrectable_page_is_reported_and_not_used(stored, check, after):
    tokens = stored.k.shape[1]
    stored.drive.inject("read_uncorrectable", after=after)
    reply = stored.attend(stored.q, tokens)
    assert (reply.status, reply.data.size) == (S.UNRECOVERED_READ, 0)
    assert stored.drive.flash_stats()["lost_groups"] == 1
    check(stored.attend(stored.q, tokens), stored.q, stored.k, stored.v)  # the fault affects one read only


def test_trimming_to_a_lost_page_changes_nothing(stored, check):
    stored.drive.inject("read_uncorrectable")
    assert stored.trim(from_token=1000).status == S.UNRECOVERED_READ
    tokens = stored.k.shape[1]
    check(stored.attend(stored.q, tokens), stored.q, stored.k, stored.v)
    assert stored.trim(from_token=1000).status == S.SUCCESS


@pytest.mark.parametrize("failures", [1, 3, 40])
def test_programs_that_fail_go_to_another_block(make_drive, check, failures):
    host = make_drive(**OPTIONS)
    rng = np.random.default_rng(failures)
    k, v, q = (halves(rng, 1, n, 64) for n in (32 * 512, 32 * 512, 2))
    host.drive.inject("program_fail", after=7, count=failures)
    host.store(k[:, :8000], v[:, :8000])
    host.store(k[:, 8000:], v[:, 8000:], first_token=8000)
    stats = host.drive.flash_stats()
    assert stats["program_failures"] == failures
    assert stats["bad_blocks"] > 0
    check(host.attend(q, 32 * 512), q, k, v)
    host.reopen()  # bad blocks stay known after mounting
    assert host.drive.flash_stats()["bad_blocks"] == stats["bad_blocks"]
    check(host.attend(q, 32 * 512), q, k, v)
    assert host.drive.check() == []


def test_blocks_that_cannot_be_erased_are_left_out(make_drive):
    host = make_drive(**OPTIONS)
    host.drive.inject("erase_fail", after=50, count=20)
    rows = halves(np.random.default_rng(2), 1, 32 * 600, 64)
    for _ in range(4):
        host.store(rows, rows)
        assert host.drive.rows(1, 0, 0, 1).tobytes() == rows.tobytes()
        assert host.trim().status == S.SUCCESS
    stats = host.drive.flash_stats()
    assert (stats["erase_failures"], stats["bad_blocks"]) == (20, 20)
    assert host.drive.check() == []


def test_flash_that_wears_out_becomes_a_full_drive_and_keeps_its_data(stored, check):
    tokens = stored.k.shape[1]
    stored.drive.inject("program_fail", count=10**6)
    reply = stored.append(halves(np.random.default_rng(3), 1, 32 * 300, 64), session=2)
    assert (reply.status, reply.retry) == (S.CAPACITY_EXCEEDED, False)
    assert stored.drive.sessions() == [1]
    check(stored.attend(stored.q, tokens), stored.q, stored.k, stored.v)
    assert stored.flush().status == S.SUCCESS
    stored.reopen()
    check(stored.attend(stored.q, tokens), stored.q, stored.k, stored.v)
    assert stored.drive.check() == []


def test_a_full_drive_refuses_and_goes_on(stored, check):
    rows = halves(np.random.default_rng(4), 1, 64, 64)
    stored.drive.inject("full", after=1)
    assert stored.append(rows, session=2).status == S.CAPACITY_EXCEEDED  # after its first group
    assert stored.append(rows, session=2).status == S.SUCCESS
    check(stored.attend(stored.q, 1000), stored.q, stored.k[:, :1000], stored.v[:, :1000])
    assert stored.drive.check() == []


def test_a_slow_die_costs_time_only(make_drive, check):
    times = []
    for percent in (100, 1000):
        host = make_drive(**OPTIONS)
        rng = np.random.default_rng(5)
        k, v, q = (halves(rng, 1, n, 64) for n in (32 * 512, 32 * 512, 2))
        host.drive.inject("slow_die", argument=3, count=percent)
        host.store(k, v)
        assert host.flush().status == S.SUCCESS
        start = host.drive.flash_stats()["device_ns"]
        check(host.attend(q, 32 * 512), q, k, v)
        times.append(host.drive.flash_stats()["device_ns"] - start)
    assert times[1] > 1.3 * times[0]


def test_after_a_power_cut_nothing_works_until_the_next_mount(stored, check):
    assert stored.flush().status == S.SUCCESS
    stored.drive.inject("power_cut")
    assert stored.append(np.ones((1, 32, 64), np.float16), session=2, options=1).status == S.INTERNAL_ERROR
    assert stored.flush().status == S.INTERNAL_ERROR
    stored.reopen()
    assert stored.drive.sessions() == [1]
    check(stored.attend(stored.q, 500), stored.q, stored.k[:, :500], stored.v[:, :500])


def test_an_unknown_fault_is_refused(host):
    with pytest.raises(ValueError, match="unknown fault"):
        host.drive.inject("gremlins")
