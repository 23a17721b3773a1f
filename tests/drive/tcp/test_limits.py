"""Slow, silent and greedy hosts, keep-alive, and faults of the way."""

import struct
import time

import pytest
from tcp.initiator import COMMAND, R2T, TerminatedError

FLUSH, WRITE, READ, KEEP_ALIVE, BLOCK = 0x00, 0x01, 0x02, 0x18, 4096


def test_silence_before_connect(make_target):
    target = make_target(connect_timeout=0.1)
    target.open(initialize=False).expect_end()
    target.open().expect_end()
    assert target.counters["timeouts"] == 2


def test_half_a_pdu(make_target):
    target = make_target(progress_timeout=0.2)
    _, controller = target.admin()
    queue = target.io(controller)
    queue.send_raw(queue.pdu(COMMAND, queue.entry(FLUSH, 1))[:50])
    queue.expect_end()
    assert target.counters["timeouts"] == 1
    assert target.io(controller, 2).plain(FLUSH).status == 0


def test_data_that_never_come(make_target):
    target = make_target(progress_timeout=0.2)
    _, controller = target.admin()
    queue = target.io(controller)
    queue.send_command(queue.entry(WRITE, 1, length=BLOCK))
    assert queue.receive_pdu()[0] == R2T
    queue.expect_end()
    assert target.counters["timeouts"] == 1


def test_an_idle_queue_stays(make_target):
    target = make_target(progress_timeout=0.1, connect_timeout=0.1)
    _, controller = target.admin()
    queue = target.io(controller)
    time.sleep(0.4)
    assert queue.plain(FLUSH).status == 0
    assert target.counters["timeouts"] == 0


def test_a_host_that_does_not_read(make_target):
    """Answers of 60 MiB are wanted and none is read: the drive stops taking commands, then gives up."""
    target = make_target(progress_timeout=0.3)
    admin, controller = target.admin()
    queue = target.io(controller, entries=127)
    before = target.counters["commands"]
    entries = [queue.entry(READ, 1, length=256 * BLOCK, dwords=(0, 0, 255)) for _ in range(60)]
    queue.send_raw(b"".join(queue.pdu(COMMAND, entry) for entry in entries))
    while target.counters["timeouts"] == 0:
        time.sleep(0.05)
    assert target.counters["commands"] - before < 30
    assert admin.get_property(0x1C).result & 1 == 1


def test_keep_alive(target):
    silent, controller = target.admin(kato=300)
    queue = target.io(controller)
    lively, _ = target.admin(kato=300, host="nqn.2026-01.org.kvdrive:lively")
    for _ in range(12):
        time.sleep(0.05)
        assert lively.plain(KEEP_ALIVE, 0).status == 0
    silent.expect_end()
    queue.expect_end()
    assert target.counters["keep_alive_expired"] == 1


def test_no_more_connections_than_allowed(make_target):
    target = make_target(max_connections=2)
    admin, controller = target.admin()
    queue = target.io(controller)
    with pytest.raises((EOFError, ConnectionError)):
        target.open()
    queue.close()
    while True:  # until the drive has seen it
        try:
            assert target.io(controller).plain(FLUSH).status == 0
            break
        except (EOFError, ConnectionError):
            time.sleep(0.02)
    assert admin.get_property(0x1C).result & 1 == 1


def test_a_connection_that_ends_amid_its_data(target):
    _, controller = target.admin()
    queue = target.io(controller)
    cid = queue.send_command(queue.entry(WRITE, 1, length=2 * BLOCK, dwords=(0, 0, 1)))
    _, body = queue.receive_pdu()
    _, tag, _, _ = struct.unpack_from("<HHII", body)
    queue.send_data(cid, tag, 0, b"\xff" * BLOCK, last=False)
    queue.close()
    other = target.io(controller, 2)
    assert other.read(READ, 2 * BLOCK, dwords=(0, 0, 1)).data == bytes(2 * BLOCK)  # nothing was written


def test_a_fault_of_one_connection_leaves_the_others(target):
    admin, controller = target.admin()
    good, bad = target.io(controller, 1), target.io(controller, 2)
    bad.send_raw(b"\x08" * 8)
    with pytest.raises(TerminatedError):
        bad.receive_pdu()
    assert good.plain(FLUSH).status == 0
    assert admin.get_property(0x1C).result & 1 == 1


def test_injected_faults(target):
    _, controller = target.admin(digests=2)
    queue = target.io(controller, digests=2)
    target.server.inject("not_ready", 2)
    assert [(r.status, r.retry) for r in (queue.plain(FLUSH) for _ in range(3))] == [
        (0x082, True),
        (0x082, True),
        (0x000, True),
    ]
    target.server.inject("lose_completion")
    queue.send_command(queue.entry(FLUSH, 1))
    assert queue.plain(FLUSH).status == 0  # the first completion that comes
    target.server.inject("corrupt_digest")
    queue.send_command(queue.entry(READ, 1, length=BLOCK))
    with pytest.raises(AssertionError):
        queue.receive_pdu()
    other = target.io(controller, 2)
    target.server.inject("drop_connection")
    other.send_command(other.entry(FLUSH, 1))
    other.expect_end()
    with pytest.raises(ValueError, match="unknown transport fault"):
        target.server.inject("rain")
