# SPDX-License-Identifier: Apache-2.0
"""The order in which transfers with one disk or flash go: deadlines, shares, and nobody waits for ever."""

import math
from collections import defaultdict
from fractions import Fraction

from hypothesis import given
from hypothesis import strategies as st

from kvdrive._native import TransferSchedule, transfer_shares

SHARES = {kind: Fraction(share) for kind, share in transfer_shares().items()}
KINDS = list(SHARES)
MOST_BYTES = 1 << 20

transfers = st.tuples(st.sampled_from(KINDS), st.integers(0, 50), st.integers(1, MOST_BYTES))


def drain(schedule):
    return list(iter(schedule.next, None))


def test_the_shares_leave_room_for_deadlines():
    assert sum(SHARES.values()) < 1
    assert min(SHARES.values()) > 0


@given(st.lists(transfers, max_size=60))
def test_all_are_served_once_and_each_kind_in_the_order_of_its_deadlines(wanted):
    schedule = TransferSchedule()
    by_kind = defaultdict(list)
    for number, (kind, deadline, size) in enumerate(wanted):
        schedule.add(kind, deadline, size, number)
        by_kind[kind].append((deadline, number))
    granted = drain(schedule)
    assert len(granted) == len(wanted)
    for kind in KINDS:
        assert [number for other, number in granted if other == kind] == [number for _, number in sorted(by_kind[kind])]


@given(st.lists(transfers, min_size=1, max_size=60))
def test_the_earliest_deadline_goes_first_when_nothing_is_owed(wanted):
    schedule = TransferSchedule()
    for number, (kind, deadline, size) in enumerate(wanted):
        schedule.add(kind, deadline, size, number)
    _, first = schedule.next()
    assert wanted[first][1] == min(deadline for _, deadline, _ in wanted)


@given(st.sampled_from(KINDS), st.integers(0, 10**9))
def test_of_one_kind_and_deadline_the_first_comes_first(kind, deadline):
    schedule = TransferSchedule()
    for number in range(5):
        schedule.add(kind, deadline, 4096, number)
    assert [number for _, number in drain(schedule)] == list(range(5))


@given(st.sampled_from(KINDS), st.lists(st.lists(transfers, min_size=1, max_size=4), max_size=100))
def test_a_transfer_waits_for_a_bounded_number_of_bytes_whatever_comes_meanwhile(kind, arrivals):
    schedule, sizes = TransferSchedule(), {}
    schedule.add(kind, 10**9, MOST_BYTES, 0)  # its deadline is behind all others
    others = [other for other in KINDS if other != kind]
    passed = 0
    for wanted in [*arrivals, *[[(other, 0, MOST_BYTES) for other in others]] * 40]:
        for other, deadline, size in wanted:
            if other != kind:
                sizes[len(sizes) + 1] = size
                schedule.add(other, deadline, size, len(sizes))
        granted, number = schedule.next()
        if granted == kind:
            break
        passed += sizes[number]
    assert granted == kind
    assert passed <= MOST_BYTES * (math.ceil(1 / SHARES[kind]) + len(KINDS))


def test_of_equal_transfers_each_kind_gets_its_share_against_earlier_deadlines():
    for slow in KINDS:
        schedule, number, got = TransferSchedule(), 0, 0
        for kind in KINDS:
            for _ in range(2000):
                number += 1
                schedule.add(kind, 10**9 if kind == slow else 0, 4096, number)
        rounds = 1000
        for _ in range(rounds):
            kind, _ = schedule.next()
            got += kind == slow
        assert got >= math.floor(SHARES[slow] * rounds) - len(KINDS)
