# SPDX-License-Identifier: Apache-2.0
"""Reads ahead in device time: the same data, beside other commands, and nobody waits for ever."""

import json

import numpy as np
import pytest
from random_halves import halves
from stored_values import put

from kvdrive import abi
from kvdrive.nvme import values

OK = abi.NvmeStatus.SUCCESS
HEADS, TOKENS, D = 4, 4096, 128
VALUE_BYTES, PART = 4 << 20, 1 << 19


@pytest.fixture
def filled(make_drive):
    """A drive with K and V and a value, the queries, and the value's bytes."""
    rng = np.random.default_rng(5)
    host = make_drive(preset="instcsd")
    host.store(halves(rng, HEADS, TOKENS, D), halves(rng, HEADS, TOKENS, D))
    value = rng.integers(0, 256, VALUE_BYTES, np.uint8).tobytes()
    assert put(host, b"expert", value) == OK
    assert host.flush().status == OK
    return host, halves(rng, HEADS, 2, D), value


def device(host, work):
    """Device time that `work` takes, and its result."""
    before = host.drive.flash_stats()["device_ns"]
    result = work()
    return host.drive.flash_stats()["device_ns"] - before, result


def retrieve(host, ahead):
    parts = []
    for offset in range(0, VALUE_BYTES, PART):
        reply = host.raw(values.retrieve(b"expert", PART, offset, ahead=ahead).entry)
        assert reply.status == OK
        parts.append(reply.data.tobytes())
    return b"".join(parts)


def join(host):
    for offset in range(0, VALUE_BYTES, PART):
        assert host.raw(values.retrieve(b"expert", 0, offset, ahead=True).entry).status == OK


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
    assert host.drive.flash_stats()["pages_ahead"] > 0


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


def test_attention_and_reads_ahead_overlap_and_neither_starves(filled):
    host, q, _ = filled
    kv_alone, bits = device(host, lambda: attend(host, q))
    experts_alone, _ = device(host, lambda: (retrieve(host, ahead=True), join(host)))

    def together():
        retrieve(host, ahead=True)
        beside, data = device(host, lambda: attend(host, q))
        assert data == bits
        join(host)
        return beside

    both, kv_beside = device(host, together)
    assert max(kv_alone, experts_alone) <= both < kv_alone + experts_alone
    assert kv_alone <= kv_beside < kv_alone + experts_alone


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


def test_the_timeline_shows_both(filled):
    host, q, _ = filled
    host.drive.keep_trace(1 << 20)
    retrieve(host, ahead=True)
    attend(host, q)
    join(host)
    events = [event for event in json.loads(host.drive.trace())["traceEvents"] if event["ph"] == "X"]
    sensed = {name: [event for event in events if event["name"] == name] for name in ("sense", "sense ahead")}
    assert sum(event["args"]["bytes"] for event in sensed["sense ahead"]) >= VALUE_BYTES
    assert sum(event["args"]["bytes"] for event in sensed["sense"]) == 2 * HEADS * TOKENS * D * 2
    starts = {name: (min(e["ts"] for e in found), max(e["ts"] for e in found)) for name, found in sensed.items()}
    assert starts["sense ahead"][0] < starts["sense"][1]  # they overlap
    assert starts["sense"][0] < starts["sense ahead"][1]


def test_a_plain_file_ignores_the_option(make_drive):
    host = make_drive(preset="plain")
    value = np.random.default_rng(6).integers(0, 256, 3 * 4096, np.uint8).tobytes()
    assert put(host, b"expert", value) == OK
    reply = host.raw(values.retrieve(b"expert", len(value), ahead=True).entry)
    assert (reply.status, reply.data.tobytes()) == (OK, value)
    assert host.raw(values.retrieve(b"expert", 0, 4096, ahead=True).entry).status == OK
