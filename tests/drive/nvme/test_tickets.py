# SPDX-License-Identifier: Apache-2.0
"""Results that hosts never fetch: those of dead hosts make room for others, those of living hosts stay."""

import numpy as np
import pytest

from kvdrive import abi
from kvdrive._native import QueuePairs
from kvdrive.nvme import commands
from kvdrive.nvme.completions import decode

MOST = 256
S = abi.NvmeStatus


@pytest.fixture
def stored(nvme):
    rows = np.ones((1, 3, 64), np.float16)
    for sequence, kind in enumerate(abi.KvKind):
        nvme.ok(commands.kv_append(1, 0, 0, kind, 0, sequence, rows))
    return nvme


SUBMIT = commands.attn_submit(1, 0, 0, np.ones((1, 1, 64), np.float16), 3, 0x3E000000)


def submit(pairs):
    return decode(*pairs.execute(1, SUBMIT.entry, SUBMIT.data))


def fetch(pairs, ticket):
    command = commands.attn_fetch(ticket, 1, 1, 64)
    return decode(*pairs.execute(1, command.entry, None, command.room)).status


def host(nvme):
    return QueuePairs(nvme.subsystem, 1 << 22)


def test_dead_hosts_leave_no_tickets_behind(stored):
    """Each of 90 hosts leaves 3 results behind: more than the drive keeps."""
    mine = [submit(stored.pairs).result for _ in range(5)]
    for _ in range(90):
        dying = host(stored)
        assert [submit(dying).status for _ in range(3)] == [0, 0, 0]
        del dying
    assert submit(stored.pairs).status == S.SUCCESS
    assert [fetch(stored.pairs, ticket) for ticket in mine] == [0] * 5


def test_a_living_hosts_results_are_never_dropped(stored):
    alive = host(stored)
    tickets = [submit(alive).result for _ in range(MOST - 1)]
    dying = host(stored)
    lost = submit(dying).result
    full = submit(stored.pairs)
    assert (full.status, full.retry) == (S.TICKETS_EXHAUSTED, True)
    del dying
    assert submit(stored.pairs).status == S.SUCCESS  # in place of the dead host's
    assert fetch(stored.pairs, lost) == S.UNKNOWN_TICKET
    assert submit(stored.pairs).status == S.TICKETS_EXHAUSTED
    assert {fetch(alive, ticket) for ticket in tickets} == {0}


def test_a_host_that_comes_back_finds_its_result_while_there_is_room(stored):
    before = host(stored)
    tickets = [submit(before).result for _ in range(2)]
    del before
    after = host(stored)
    assert fetch(after, tickets[0]) == S.SUCCESS
    assert fetch(after, tickets[0]) == S.UNKNOWN_TICKET
    for _ in range(MOST - 1):  # the drive is full: only the other abandoned result can go
        assert submit(after).status == S.SUCCESS
    assert fetch(after, tickets[1]) == S.SUCCESS
    assert submit(after).status == S.SUCCESS
    assert submit(after).status == S.TICKETS_EXHAUSTED


def test_the_oldest_abandoned_result_goes_first(stored):
    old, young = host(stored), host(stored)
    first, second = submit(old).result, submit(young).result
    del young, old
    for _ in range(MOST - 1):
        assert submit(stored.pairs).status == S.SUCCESS
    assert fetch(stored.pairs, first) == S.UNKNOWN_TICKET
    assert fetch(stored.pairs, second) == S.SUCCESS
