# SPDX-License-Identifier: Apache-2.0
"""Results that hosts never fetch: those of dead hosts make room for others, those of living hosts stay."""

import numpy as np
import pytest

from kvdrive import abi
from kvdrive._native import QueuePairs
from kvdrive.nvme import admin, commands, namespaces, wire
from kvdrive.nvme.completions import decode
from kvdrive.nvme.rows_command import attn_submit_rows, rows_bytes, rows_result

MOST = 256
S = abi.NvmeStatus


@pytest.fixture
def stored(nvme):
    rows = np.ones((1, 3, 64), np.float16)
    for sequence, kind in enumerate(abi.KvKind):
        nvme.ok(commands.kv_append(1, 0, 0, kind, 0, sequence, rows))
    return nvme


QUERY = commands.attention_query(1, 0, 0, np.ones((1, 1, 64), np.float16), 3, 0x3E000000)
SUBMIT = QUERY.command()


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


ROWS = attn_submit_rows([QUERY] * 60)


def submit_rows(pairs):
    return decode(*pairs.execute(1, ROWS.entry, ROWS.data))


def test_each_row_counts_as_a_result(stored):
    """4 x 60 of 256 places: 16 single results fit beside them, and no fifth command of 60 rows."""
    tickets = [submit_rows(stored.pairs).result for _ in range(4)]
    assert submit_rows(stored.pairs).status == S.TICKETS_EXHAUSTED
    single = [submit(stored.pairs).result for _ in range(16)]
    assert submit(stored.pairs).status == S.TICKETS_EXHAUSTED
    command = commands.fetch_bytes(tickets[0], 1 << 16)
    assert decode(*stored.pairs.execute(1, command.entry, None, command.room)).status == S.SUCCESS
    assert submit_rows(stored.pairs).status == S.SUCCESS
    assert {fetch(stored.pairs, ticket) for ticket in single} == {0}


def test_rows_of_dead_hosts_make_room_for_as_many_results(stored):
    dying = host(stored)
    lost = [submit_rows(dying).result for _ in range(4)]
    del dying
    for _ in range(16 + 60):  # the places that are free, and those of the oldest command
        assert submit(stored.pairs).status == S.SUCCESS
    assert fetch(stored.pairs, lost[0]) == S.UNKNOWN_TICKET
    assert fetch(stored.pairs, lost[1]) == S.DATA_LENGTH  # still there: the buffer is too small
    for _ in range(3):
        assert submit_rows(stored.pairs).status == S.SUCCESS
    assert submit_rows(stored.pairs).status == S.TICKETS_EXHAUSTED


def test_a_lost_group_of_a_row_is_an_event_as_that_of_a_single_command(stored):
    """The command succeeds and its row does not."""
    rows = np.ones((1, 64, 64), np.float16)
    for sequence, kind in enumerate(abi.KvKind):
        stored.ok(commands.kv_append(2, 0, 0, kind, 0, sequence, rows))
    stored.ok(namespaces.write_blocks(0, np.ones(1000 * abi.PAGE_BYTES, np.uint8)))  # behind them in the write queue
    query = commands.attention_query(2, 0, 0, np.ones((1, 1, 64), np.float16), 64, 0x3E000000)
    stored.admin(admin.set_feature(wire.Feature.FEATURE_ASYNC_EVENTS, 0x4))
    event = stored.pairs.submit(0, admin.command(wire.AdminOpcode.ASYNC_EVENT_REQUEST).entry)
    stored.drive.inject("read_uncorrectable")
    ticket = stored.ok(attn_submit_rows([query, query])).result
    sizes = [commands.result_bytes(1, 1, 64)] * 2
    first, second = rows_result(stored.ok(commands.fetch_bytes(ticket, rows_bytes(sizes))).data, sizes)
    assert (first.status, second.status) == (S.UNRECOVERED_READ, S.SUCCESS)
    assert stored.pairs.done(event)
