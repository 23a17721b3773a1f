"""Slow, silent and greedy hosts, keep-alive, and faults of the network."""

import random
import re
import select
import struct
import time
from pathlib import Path

import pytest
from tcp.initiator import COMMAND, R2T, TerminatedError

FLUSH, WRITE, READ, KEEP_ALIVE, BLOCK = 0x00, 0x01, 0x02, 0x18, 4096


def test_silence_before_connect(make_target):
    target = make_target(connect_timeout=0.1)
    for initialize in (False, True):
        before = target.counters["timeouts"]
        target.patiently(lambda initialize=initialize: target.open(initialize=initialize)).expect_end()
        assert target.counters["timeouts"] > before


def test_half_a_pdu(make_target):
    target = make_target(progress_timeout=0.2)
    _, controller = target.admin()
    queue = target.io(controller)
    before = target.counters["timeouts"]
    queue.send_raw(queue.pdu(COMMAND, queue.entry(FLUSH, 1))[:50])
    queue.expect_end()
    assert target.counters["timeouts"] == before + 1
    assert target.io(controller, 2).plain(FLUSH).status == 0


def test_data_that_never_come(make_target):
    target = make_target(progress_timeout=0.2)
    _, controller = target.admin()
    queue = target.io(controller)
    before = target.counters["timeouts"]
    queue.send_command(queue.entry(WRITE, 1, length=BLOCK))
    assert queue.receive_pdu()[0] == R2T
    queue.expect_end()
    assert target.counters["timeouts"] == before + 1


def test_an_idle_queue_stays(make_target):
    target = make_target(progress_timeout=0.5, connect_timeout=0.5)
    _, controller = target.admin()
    queue = target.io(controller)
    before = target.counters["timeouts"]
    for _ in range(2):  # each one is younger than the queue and silent: the drive ends it when its time is over
        target.open(initialize=False).expect_end()
    assert queue.plain(FLUSH).status == 0
    assert target.counters["timeouts"] == before + 2


def test_a_host_that_does_not_read(make_target):
    """The host requests 60 MiB and reads nothing. The drive stops taking commands, then closes the connection."""
    target = make_target(progress_timeout=0.3)
    admin, controller = target.admin()
    queue = target.io(controller, entries=127)
    before, timeouts = target.counters["commands"], target.counters["timeouts"]
    entries = [queue.entry(READ, 1, length=256 * BLOCK, dwords=(0, 0, 255)) for _ in range(60)]
    queue.send_raw(b"".join(queue.pdu(COMMAND, entry) for entry in entries))
    while target.counters["timeouts"] == timeouts:
        time.sleep(0.05)
    assert target.counters["commands"] - before < 30
    assert admin.get_property(0x1C).result & 1 == 1


MIB = 1 << 20


def open_writes(queue, commands: int) -> list[int]:
    entries = [queue.entry(WRITE, 1, length=MIB, dwords=(0, 0, 255)) for _ in range(commands)]
    queue.send_raw(b"".join(queue.pdu(COMMAND, entry) for entry in entries))
    return [struct.unpack_from("<H", entry, 2)[0] for entry in entries]


def resident_bytes() -> int:
    return int(re.search(r"VmRSS:\s+(\d+)", Path("/proc/self/status").read_text())[1]) << 10


def test_headers_alone_take_no_memory_and_no_more_room_than_the_pool_has(make_target):
    """240 writes of 1 MiB are announced by eight connections of a host; none sends data. A host has half of the common
    half of the pool at most, and here nobody is asked for more than that.
    """
    target = make_target(buffer_bytes=16 * MIB)
    _, controller = target.admin()
    queues = [target.io(controller, number) for number in range(1, 9)]
    before = resident_bytes()
    for queue in queues:
        open_writes(queue, 30)
    while target.counters["commands"] < 240:
        time.sleep(0.01)
    assert target.counters["buffer_peak_bytes"] <= 16 * MIB + (64 << 10)  # completions count as well
    assert target.counters["ready_to_transfer"] == 4
    assert resident_bytes() - before < 16 * MIB
    for queue in queues:
        queue.close()
    while target.counters["buffer_bytes"]:
        time.sleep(0.01)


def test_connections_that_wait_for_room_are_served_in_turn(make_target):
    """Three connections share room for one transfer. All writes succeed, and so do reads in the meantime. Which
    connection is the first one depends on the machine; none is served much more often than another.
    """
    target = make_target(buffer_bytes=2 * MIB)
    _, controller = target.admin()
    queues = [target.io(controller, number) for number in (1, 2, 3)]
    writes = {queue.socket: (queue, iter(open_writes(queue, 3))) for queue in queues}
    small = target.io(controller, 4)
    assert small.plain(FLUSH).status == 0
    data = bytes(range(256)) * (MIB // 256)
    done = dict.fromkeys(writes, 0)
    while min(done.values()) < 3:
        asked, _, _ = select.select([one for one in done if done[one] < 3], [], [], 20)
        assert asked  # some connection is asked for its data
        queue, cids = writes[asked[0]]
        cid = next(cids)
        assert queue.finish(cid, dict.fromkeys([cid], data)).status == 0
        done[asked[0]] += 1
        assert max(done.values()) - min(done.values()) <= 2
    assert small.read(READ, MIB, dwords=(0, 0, 255)).data == data
    counters = target.counters
    assert counters["buffer_waits"] > 0
    assert counters["buffer_peak_bytes"] <= 2 * MIB + 4 * (128 << 10)  # plus half a PDU for each host


def test_answers_that_nobody_reads_stay_in_the_pool(make_target):
    """Four hosts request 60 MiB each and read nothing. The waiting answers never exceed the pool."""
    target = make_target(buffer_bytes=4 * MIB, progress_timeout=0.5)
    _, controller = target.admin()
    queues = [target.io(controller, number, entries=127) for number in range(1, 5)]
    timeouts = target.counters["timeouts"]
    for queue in queues:
        entries = [queue.entry(READ, 1, length=MIB, dwords=(0, 0, 255)) for _ in range(60)]
        queue.send_raw(b"".join(queue.pdu(COMMAND, entry) for entry in entries))
    while target.counters["timeouts"] == timeouts:
        time.sleep(0.02)
    assert MIB < target.counters["buffer_peak_bytes"] <= 4 * MIB + (64 << 10)


def other_host(target, number: int = 0):
    """An I/O queue of a host that the others know nothing of."""
    name = f"nqn.2026-01.org.kvdrive:host-{number}"
    _, controller = target.admin(host=name)
    return target.io(controller, host=name)


def test_hosts_that_withhold_data_keep_nobody_waiting(make_target):
    """Four hosts ask for as much as they get and send nothing. Another one reads and writes a MiB meanwhile, and
    waits for neither: room that is taken never comes back, so that a command that waited would not end.
    """
    target = make_target(data_timeout=1000)
    held = [other_host(target, number) for number in range(4)]
    for queue in held:
        open_writes(queue, 30)
        assert queue.receive_pdu()[0] == R2T
    while target.counters["commands"] < 4 * 30:
        time.sleep(0.01)
    queue, data = other_host(target, 9), bytes(range(256)) * (MIB // 256)
    counters = target.counters  # the target has answered a later PDU, so it has done with those before
    assert queue.write(WRITE, data, in_capsule=False, dwords=(0, 0, 255)).status == 0
    assert queue.read(READ, MIB, dwords=(0, 0, 255)).data == data
    assert target.counters["buffer_waits"] == counters["buffer_waits"]
    assert target.counters["timeouts"] == 0


def test_many_hosts_that_withhold_data_leave_each_connection_its_share(make_target):
    """Forty hosts take all of the common part. Another one reads and writes what its share has room for, without a
    wait; what is larger waits. Room that is taken comes back only when a host closes its connection.
    """
    target = make_target(data_timeout=1000)
    held = [other_host(target, number) for number in range(40)]
    for queue in held:
        open_writes(queue, 16)
    while target.counters["commands"] < 40 * 16:
        time.sleep(0.01)
    share = (64 * MIB // 2) // 256
    queue, data = other_host(target, 99), bytes(share)
    assert target.counters["buffer_bytes"] >= 32 * MIB
    waits = target.counters["buffer_waits"]  # the target has answered a later PDU, so it has done with those before
    dwords = (0, 0, share // BLOCK - 1)
    assert queue.write(WRITE, data, in_capsule=False, dwords=dwords).status == 0
    assert queue.read(READ, share, dwords=dwords).data == data
    assert target.counters["timeouts"] == 0
    assert target.counters["buffer_waits"] == waits
    queue.send_command(queue.entry(READ, 1, length=MIB, dwords=(0, 0, 255)))
    while target.counters["buffer_waits"] == waits:
        time.sleep(0.01)
    for queue_of_other in held[:8]:  # with room again, it is served before what hosts ask for that have some already
        queue_of_other.close()
    assert len(queue.receive_pdu()[1]) > 0


def withhold(queue, rng: random.Random) -> None:
    """Random writes: without data, with some of what was asked for, or with half of a PDU behind them."""
    sizes = [1, *(rng.choice((1, 4, 64, 255)) for _ in range(rng.randrange(24)))]  # the first one has room for certain
    entries = [queue.entry(WRITE, 1, length=(n + 1) * BLOCK, dwords=(0, 0, n)) for n in sizes]
    queue.send_raw(b"".join(queue.pdu(COMMAND, entry) for entry in entries))
    if rng.random() < 0.5:
        kind, body = queue.receive_pdu()
        assert kind == R2T
        cid, tag, offset, length = struct.unpack_from("<HHII", body)
        queue.send_data(cid, tag, offset, bytes(4 * rng.randrange(1, min(length, queue.limit) // 4)), last=False)
    if rng.random() < 0.3:
        queue.send_raw(queue.pdu(COMMAND, queue.entry(FLUSH, 1))[: rng.randrange(1, 72)])


@pytest.mark.parametrize("count", [10, pytest.param(4000, marks=pytest.mark.slow)])
def test_random_hosts_that_withhold_data_leave_another_one_its_share(make_target, count):
    target = make_target(buffer_bytes=16 * MIB)
    share = (16 * MIB // 2) // 256
    dwords = (0, 0, share // BLOCK - 1)
    for seed in range(count):
        rng = random.Random(seed)
        opened = []
        for number in range(rng.randrange(1, 7)):
            name = f"nqn.2026-01.org.kvdrive:host-{number}"
            admin, controller = target.admin(host=name)
            opened += [admin, target.io(controller, host=name)]
            withhold(opened[-1], rng)
        admin, controller = target.admin(host="nqn.2026-01.org.kvdrive:other")
        queue, data = target.io(controller, host="nqn.2026-01.org.kvdrive:other"), rng.randbytes(share)
        assert queue.write(WRITE, data, in_capsule=False, dwords=dwords).status == 0, seed
        assert queue.read(READ, share, dwords=dwords).data == data, seed
        for one in [*opened, admin, queue]:
            one.close()
    while target.counters["buffer_bytes"]:
        time.sleep(0.01)


def test_data_that_come_too_slowly_end_the_connection(make_target):
    """The host sends a little of its data all the time: it never stalls, and is over its time nevertheless."""
    target = make_target(data_timeout=0.2)
    _, controller = target.admin()
    queue = target.io(controller)
    cid = queue.send_command(queue.entry(WRITE, 1, length=16 * BLOCK, dwords=(0, 0, 15)))
    _, body = queue.receive_pdu()
    _, tag, _, _ = struct.unpack_from("<HHII", body)
    sent = 0
    try:
        while sent < 15 * BLOCK and target.counters["timeouts"] == 0:
            queue.send_data(cid, tag, sent, bytes(4), last=False)
            sent += 4
            time.sleep(0.01)
        queue.expect_end()
    except ConnectionError:
        pass
    assert target.counters["timeouts"] == 1
    assert sent < 15 * BLOCK
    assert target.counters["buffer_bytes"] < BLOCK


def test_connections_of_one_host_share_its_part(make_target):
    """A host with eight queues gets no more of the common part than one with a queue: as much as it leaves free."""
    target = make_target(buffer_bytes=16 * MIB)
    _, controller = target.admin()
    for number in range(1, 9):
        open_writes(target.io(controller, number), 4)
    while target.counters["commands"] < 8 * 4:
        time.sleep(0.01)
    asked = target.counters["ready_to_transfer"]
    assert asked == 4
    open_writes(other_host(target), 4)
    while target.counters["ready_to_transfer"] < asked + 2:  # half of the 4 MiB that are left
        time.sleep(0.01)


def test_a_pool_smaller_than_one_transfer_is_refused(make_target):
    with pytest.raises(ValueError, match="1048576 bytes at least"):
        make_target(buffer_bytes=MIB - 1)


def test_keep_alive(target):
    """A host that is heard of more often than it promised stays for longer than its time. It has 1.5 s, so that a busy
    machine does not make it silent."""
    silent, controller = target.admin(kato=1000)
    queue = target.io(controller)
    lively, _ = target.admin(kato=1500, host="nqn.2026-01.org.kvdrive:lively")
    end = time.monotonic() + 2
    while time.monotonic() < end:
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
    reply = target.io(controller, 2).read(READ, 2 * BLOCK, dwords=(0, 0, 1))
    assert reply.status == 0
    assert reply.data == bytes(2 * BLOCK)  # nothing was written


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
    assert queue.plain(FLUSH).status == 0  # the first completion that arrives
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
