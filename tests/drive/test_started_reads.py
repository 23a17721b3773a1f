# SPDX-License-Identifier: Apache-2.0
"""Reads that go beside other commands in device time: the same data, and nobody waits for ever."""

import json

import numpy as np
import pytest
from answers import result_bytes
from random_halves import halves
from stored_values import put

from kvdrive import abi
from kvdrive.nvme import values

OK = abi.NvmeStatus.SUCCESS
HEADS, TOKENS, D = 4, 4096, 128
VALUE_BYTES, PART = 4 << 20, 1 << 19
PROGRAM_NS = 185_000  # of 970pro


@pytest.fixture
def filled(make_drive):
    """A drive with K and V and two values, the queries, and the first value's bytes."""
    return fill(make_drive(preset="instcsd"))


def fill(host):
    rng = np.random.default_rng(5)
    host.store(halves(rng, HEADS, TOKENS, D), halves(rng, HEADS, TOKENS, D))
    value = rng.integers(0, 256, VALUE_BYTES, np.uint8).tobytes()
    assert put(host, b"expert", value) == OK
    assert put(host, b"next", value) == OK
    assert host.flush().status == OK
    return host, halves(rng, HEADS, 2, D), value


def device(host, work):
    """Device time that `work` takes, and its result."""
    before = host.drive.flash_stats()["device_ns"]
    result = work()
    return host.drive.flash_stats()["device_ns"] - before, result


def retrieve(host, ahead=True, urgent=False, key=b"expert"):
    parts = []
    for offset in range(0, VALUE_BYTES, PART):
        reply = host.raw(values.retrieve(key, PART, offset, ahead=ahead, urgent=urgent).entry)
        assert reply.status == OK
        parts.append(reply.data.tobytes())
    return b"".join(parts)


def join(host, key=b"expert"):
    for offset in range(0, VALUE_BYTES, PART):
        assert host.raw(values.retrieve(key, 0, offset, ahead=True).entry).status == OK


def attend(host, q):
    reply = host.attend(q, TOKENS)
    assert reply.status == OK
    return reply.data.tobytes()


def test_reads_ahead_give_the_same_bytes_and_cost_nothing_until_somebody_waits(filled):
    host, _, value = filled
    alone, data = device(host, lambda: retrieve(host, ahead=False))
    assert data == value
    sent, data = device(host, lambda: retrieve(host, ahead=True))
    assert data == value
    assert sent < alone / 2
    waited, _ = device(host, lambda: join(host))
    assert sent + waited <= alone
    again, _ = device(host, lambda: join(host))  # there is nothing to wait for any more
    assert again < waited
    assert host.drive.flash_stats()["pages_started"] > 0


def test_what_was_read_while_nobody_waited_is_there_at_once(filled):
    host, _, _ = filled
    retrieve(host, ahead=True)
    waited, _ = device(host, lambda: join(host))
    retrieve(host, ahead=True)
    page = np.zeros(4096, np.uint8)
    while waited > 0:  # commands that read no flash
        spent, status = device(host, lambda: host.raw(values.store(b"x", page).entry, page).status)
        assert status == OK
        waited -= min(spent, waited)
    late, _ = device(host, lambda: join(host))
    nothing, _ = device(host, lambda: join(host))
    assert late <= 2 * nothing


@pytest.mark.parametrize("urgent", [False, True], ids=["for the next layer", "for this layer"])
def test_attention_and_started_reads_overlap_and_neither_starves(filled, urgent):
    host, q, value = filled
    kv_alone, bits = device(host, lambda: attend(host, q))
    experts_alone, _ = device(host, lambda: (retrieve(host, urgent=urgent), join(host)))

    def together():
        assert retrieve(host, urgent=urgent) == value
        beside, data = device(host, lambda: attend(host, q))
        assert data == bits
        join(host)
        return beside

    both, kv_beside = device(host, together)
    slower = max(kv_alone, experts_alone)
    assert slower <= both < 1.2 * slower
    assert kv_alone <= kv_beside < 1.6 * kv_alone


def test_results_do_not_wait_behind_all_started_reads(filled):
    host, q, _ = filled
    ticket = host.submit(q, TOKENS)
    alone, reply = device(host, lambda: host.fetch(ticket.result, result_bytes(q)))
    assert reply.status == OK
    reads, _ = device(host, lambda: (retrieve(host, urgent=True), join(host)))
    ticket = host.submit(q, TOKENS)
    retrieve(host, urgent=True)
    beside, reply = device(host, lambda: host.fetch(ticket.result, result_bytes(q)))
    assert reply.status == OK
    assert beside - alone < 300_000 < reads


def test_a_read_for_this_layer_passes_those_for_the_next_one(filled):
    host, _, _ = filled
    alone, _ = device(host, lambda: (retrieve(host, urgent=True), join(host)))

    def both():
        retrieve(host, key=b"next")
        retrieve(host, urgent=True)
        join(host)

    passing, _ = device(host, both)
    later, _ = device(host, lambda: join(host, b"next"))
    assert passing < 1.3 * alone
    assert later > alone / 2


def test_programs_wait_for_started_reads_and_end_all_the_same(make_drive):
    """On flash that cannot suspend a program, in the order of the commands the reads would wait for it."""
    host, _, value = fill(make_drive(preset="970pro"))
    rng = np.random.default_rng(6)
    rows = halves(rng, HEADS, 2048, D)  # one row of programs and more
    alone, _ = device(host, lambda: (retrieve(host, urgent=True), join(host)))
    assert host.append(rows, session=2).status == OK
    writes, _ = device(host, lambda: host.flush())

    def both():
        assert retrieve(host, urgent=True) == value
        accepted, _ = device(host, lambda: host.append(rows, session=3))
        join(host)
        return accepted

    together, accepted = device(host, both)
    programmed = host.drive.flash_stats()["units_programmed"]
    assert together - accepted < alone + PROGRAM_NS
    flushed, reply = device(host, lambda: host.flush())
    assert reply.status == OK
    assert host.drive.flash_stats()["units_programmed"] >= programmed
    assert flushed <= writes + PROGRAM_NS


def test_the_same_commands_take_the_same_time(make_drive):
    def times():
        host, q, _ = fill(make_drive(preset="instcsd"))
        found = []
        for urgent in (False, True, True):
            retrieve(host, urgent=urgent)
            found.append(device(host, lambda: attend(host, q))[0])
            retrieve(host, urgent=True, key=b"next")
            found.append(device(host, lambda: attend(host, q))[0])
            found.append(device(host, lambda: (join(host), join(host, b"next")))[0])
        return found

    assert times() == times()


def test_urgent_is_for_started_reads_only(filled):
    host, _, _ = filled
    assert host.raw(values.retrieve(b"expert", PART, urgent=True).entry).status == abi.NvmeStatus.INVALID_FIELD


def test_times_without_reads_ahead_stay_as_they_were(filled):
    host, q, _ = filled
    first, _ = device(host, lambda: attend(host, q))
    retrieve(host, ahead=True)
    join(host)
    second, _ = device(host, lambda: attend(host, q))
    assert first == second


def test_guesses_that_nobody_uses_do_not_pile_up(filled):
    host, q, _ = filled
    for _ in range(1100):
        assert host.raw(values.retrieve(b"expert", 4096, ahead=True).entry).status == OK
    attend(host, q)
    join(host)


@pytest.mark.parametrize(("urgent", "beside"), [(False, "sense ahead"), (True, "sense weights")])
def test_the_timeline_shows_both(filled, urgent, beside):
    host, q, _ = filled
    host.drive.keep_trace(1 << 20)
    retrieve(host, urgent=urgent)
    attend(host, q)
    join(host)
    events = [event for event in json.loads(host.drive.trace())["traceEvents"] if event["ph"] == "X"]
    sensed = {name: [event for event in events if event["name"] == name] for name in ("sense", beside)}
    assert sum(event["args"]["bytes"] for event in sensed[beside]) >= VALUE_BYTES
    assert sum(event["args"]["bytes"] for event in sensed["sense"]) == 2 * HEADS * TOKENS * D * 2
    starts = {name: (min(e["ts"] for e in found), max(e["ts"] for e in found)) for name, found in sensed.items()}
    assert starts[beside][0] < starts["sense"][1]  # they overlap
    assert starts["sense"][0] < starts[beside][1]


def test_a_plain_file_ignores_the_option(make_drive):
    host = make_drive(preset="plain")
    value = np.random.default_rng(6).integers(0, 256, 3 * 4096, np.uint8).tobytes()
    assert put(host, b"expert", value) == OK
    reply = host.raw(values.retrieve(b"expert", len(value), ahead=True).entry)
    assert (reply.status, reply.data.tobytes()) == (OK, value)
    assert host.raw(values.retrieve(b"expert", 0, 4096, ahead=True).entry).status == OK
