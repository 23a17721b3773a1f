# SPDX-License-Identifier: Apache-2.0
"""Queue pairs: many commands in flight, full rings, faults, other processes."""

import os
import signal
import socket
import struct
import subprocess
import sys
import threading
import time

import numpy as np
import pytest

from kvdrive import abi
from kvdrive._native import Drive, QueuePairs, RingError, RingServer, Subsystem
from kvdrive.errors import TargetError
from kvdrive.nvme import admin, commands, namespaces, wire
from kvdrive.nvme.completions import decode
from kvdrive.targets.emulator import Emulator

SC = wire.StatusCode


def block(number):
    return np.full(wire.LBA_BYTES, number, np.uint8)


@pytest.mark.parametrize("threaded", [True, False])
def test_completions_may_be_taken_in_any_order(make_nvme, threaded):
    nvme = make_nvme(threaded=threaded, entries=64)
    tickets = []
    for i in range(40):
        command = namespaces.write_blocks(i, block(i))
        tickets.append(nvme.pairs.submit(1, command.entry, command.data))
    for ticket in np.random.default_rng(1).permutation(tickets):
        assert decode(*nvme.pairs.wait(int(ticket))).status == 0
    found = nvme.ok(namespaces.read_blocks(0, 40)).data.reshape(40, -1)
    assert (found == np.arange(40, dtype=np.uint8)[:, None]).all()
    with pytest.raises(IndexError, match="waited for already"):
        nvme.pairs.wait(tickets[0])


def test_rings_turn_over_many_times(make_nvme):
    nvme = make_nvme(entries=5)
    before = nvme.drive.stats()["commands"]
    nvme.pairs.repeat(1, commands.flush().entry, 10_000)
    assert nvme.drive.stats()["commands"] - before == 10_000


def test_threads_share_queues(make_nvme):
    nvme = make_nvme(io_queues=3, entries=8)
    failures = []

    def work(number):
        for i in range(100):
            queue = 1 + (number + i) % 3
            nvme.ok(namespaces.write_blocks(number, block(i)), queue)
            if not (nvme.ok(namespaces.read_blocks(number, 1), queue).data == i).all():
                failures.append((number, i))

    threads = [threading.Thread(target=work, args=(number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert failures == []


def test_lost_completions_and_stuck_commands_end_with_an_abort(make_nvme):
    nvme = make_nvme(timeout=1.0)
    for kind, executed in (("lost_completion", True), ("command_timeout", False)):
        nvme.ok(namespaces.write_blocks(0, block(0)))
        nvme.drive.inject(kind)
        command = namespaces.write_blocks(0, block(7))
        ticket = nvme.pairs.submit(1, command.entry, command.data)
        with pytest.raises(RingError, match="in time"):
            nvme.pairs.wait(ticket)
        aborted = nvme.admin(admin.command(wire.AdminOpcode.ABORT, cdw10=1 | (ticket & 0xFFFF) << 16))
        assert aborted.result & 1 == 0
        assert decode(*nvme.pairs.wait(ticket)).status == SC.SC_ABORTED
        assert (nvme.ok(namespaces.read_blocks(0, 1)).data == (7 if executed else 0)).all()


def test_an_engine_that_hangs_fails_the_job_only(nvme):
    rows, q = np.ones((1, 40, 64), np.float16), np.ones((1, 2, 64), np.float16)
    for sequence, kind in enumerate(abi.KvKind):
        nvme.ok(commands.kv_append(1, 0, 0, kind, 0, sequence, rows))
    nvme.drive.inject("engine_hang")
    before = nvme.drive.flash_stats()["device_ns"]
    submit = commands.attn_submit(1, 0, 0, q, 40, 0x3E800000)
    assert nvme.send(submit).status == abi.NvmeStatus.INTERNAL_ERROR
    assert nvme.drive.flash_stats()["device_ns"] - before >= 1_000_000_000  # the firmware's time limit, in device time
    nvme.ok(submit)


def test_refused_queues(nvme):
    def create(opcode, queue, entries, cdw11, address=1 << 20):
        return nvme.admin(admin.command(opcode, cdw10=queue | entries - 1 << 16, cdw11=cdw11, prp1=address)).status

    cq, sq = wire.AdminOpcode.CREATE_CQ, wire.AdminOpcode.CREATE_SQ
    assert create(cq, 1, 16, 1) == SC.SC_BAD_QUEUE_ID
    assert create(cq, 65, 16, 1) == SC.SC_BAD_QUEUE_ID
    assert create(cq, 2, 1, 1) == SC.SC_BAD_QUEUE_SIZE
    assert create(cq, 2, 1025, 1) == SC.SC_BAD_QUEUE_SIZE
    assert create(cq, 2, 16, 0) == abi.NvmeStatus.INVALID_FIELD
    assert create(cq, 2, 16, 1, address=1 << 40) == SC.SC_BAD_PRP_OFFSET
    assert create(cq, 2, 16, 1, address=0) == SC.SC_BAD_PRP_OFFSET
    assert create(sq, 2, 16, 2 << 16 | 1) == SC.SC_BAD_COMPLETION_QUEUE
    assert create(cq, 2, 16, 1) == 0
    assert create(sq, 2, 16, 2 << 16 | 1, address=1 << 21) == 0
    delete_cq, delete_sq = wire.AdminOpcode.DELETE_CQ, wire.AdminOpcode.DELETE_SQ
    assert nvme.admin(admin.command(delete_cq, cdw10=2)).status == SC.SC_BAD_QUEUE_DELETION
    assert nvme.admin(admin.command(delete_sq, cdw10=2)).status == 0
    assert nvme.admin(admin.command(delete_cq, cdw10=2)).status == 0
    assert nvme.admin(admin.command(delete_sq, cdw10=0)).status == SC.SC_BAD_QUEUE_ID


def test_data_that_cannot_fit_the_segment(nvme):
    with pytest.raises(ValueError, match="ring segment"):
        nvme.send(namespaces.read_blocks(0, 4096))


def test_the_emulator_keeps_many_commands_in_flight(tmp_path):
    with Emulator(tmp_path / "drive.kv", "fast", capacity_bytes=1 << 26) as target:
        writes = [namespaces.write_blocks(i, block(i % 256)) for i in range(300)]
        assert [done.status for done in target.submit_many(writes)] == [0] * 300
        reads = target.submit_many([namespaces.read_blocks(i, 1) for i in range(300)])
        assert all((done.data == i % 256).all() for i, done in enumerate(reads))
    with pytest.raises(TargetError, match="closed"):
        target.submit_many(writes)


@pytest.fixture
def serve(tmp_path):
    """Serve a drive at a socket, by a thread of this process, until the test ends."""
    running = []

    def start(**options):
        server = RingServer(Subsystem(Drive(tmp_path / "drive.kv", "fast", 1, 1 << 26)), tmp_path / "socket", **options)
        running.append((server, threading.Thread(target=server.run)))
        running[-1][1].start()
        return server, tmp_path / "socket"

    yield start
    for server, thread in running:
        server.stop()
        thread.join()


@pytest.fixture
def served(serve):
    return serve()


HOST = """
import sys, time
import numpy as np
from kvdrive._native import QueuePairs
from kvdrive.nvme import namespaces
pairs = QueuePairs.connect(sys.argv[1], 1 << 22)
command = namespaces.write_blocks(int(sys.argv[2]), np.full(4096, int(sys.argv[3]), np.uint8))
print(pairs.execute(1, command.entry, command.data)[0].hex(), flush=True)
if len(sys.argv) > 4:
    pairs.repeat(1, namespaces.fill_memory(0, 0).entry, 1 << 40)
"""


def wait_for(condition):
    deadline = time.monotonic() + 20
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.01)


def test_several_processes_use_one_drive_and_may_be_killed(served):
    server, place = served
    for number in (1, 2):
        subprocess.run([sys.executable, "-c", HOST, place, str(number), str(number)], check=True, timeout=60)
    with subprocess.Popen([sys.executable, "-c", HOST, place, "3", "3", "go on"], stdout=subprocess.PIPE) as victim:
        victim.stdout.readline()
        assert server.hosts == 1
        os.kill(victim.pid, signal.SIGKILL)
    wait_for(lambda: server.hosts == 0)
    pairs = QueuePairs.connect(place, 1 << 22)
    command = namespaces.read_blocks(1, 3)
    found = decode(*pairs.execute(1, command.entry, None, command.room)).data.reshape(3, -1)
    assert (found == np.array([[1], [2], [3]])).all()


def test_a_host_notices_that_the_drive_has_ended(tmp_path):
    drive = Drive(tmp_path / "drive.kv", "fast", 1, 1 << 26)
    server = RingServer(Subsystem(drive), tmp_path / "socket")
    thread = threading.Thread(target=server.run)
    thread.start()
    pairs = QueuePairs.connect(tmp_path / "socket", 1 << 22)
    server.stop()
    thread.join()
    del server
    with pytest.raises(RingError, match="has ended"):
        pairs.execute(1, commands.flush().entry)


def test_a_socket_serves_one_drive(served, tmp_path):
    _, place = served
    other = Drive(tmp_path / "other.kv", "fast", 1, 1 << 26)
    with pytest.raises(RuntimeError, match="in use by another drive"):
        RingServer(Subsystem(other), place)
    with pytest.raises(RuntimeError, match="no drive is served"):
        QueuePairs.connect(tmp_path / "nowhere")
    with pytest.raises(RuntimeError, match=f"serves no segment of {1 << 50} bytes: {1 << 36} are the most"):
        QueuePairs.connect(place, 1 << 50)


def silent_connection(place):
    connection = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    connection.connect(str(place))
    return connection


def test_connections_that_ask_for_nothing_shut_nobody_out(served):
    """There are more of them than hosts allowed. A host that sends a request replaces the oldest of them."""
    server, place = served
    silent = [silent_connection(place) for _ in range(70)]
    pairs = QueuePairs.connect(place, 1 << 22)
    assert decode(*pairs.execute(1, commands.flush().entry)).status == 0
    assert silent[0].recv(1) == b""
    assert server.hosts == 64
    for connection in silent:
        connection.close()
    wait_for(lambda: server.hosts == 1)


def test_a_connection_that_asks_for_nothing_ends(serve):
    server, place = serve(greeting_timeout=0.5)
    pairs = QueuePairs.connect(place, 1 << 22)
    with silent_connection(place) as connection:
        connection.settimeout(20)
        assert connection.recv(1) == b""
    wait_for(lambda: server.hosts == 1)
    assert decode(*pairs.execute(1, commands.flush().entry)).status == 0  # a host may be silent for any time


def test_a_host_too_many_hears_why(served):
    server, place = served
    hosts = [QueuePairs.connect(place, 1 << 22) for _ in range(64)]
    with pytest.raises(RuntimeError, match="has all the hosts that it takes"):
        QueuePairs.connect(place, 1 << 22)
    assert server.hosts == len(hosts)


def test_a_host_of_another_version_hears_it(served):
    _, place = served
    with silent_connection(place) as connection:
        connection.send(struct.pack("<IIQQ", wire.RING_MAGIC, wire.RING_VERSION + 1, 1 << 22, 0))
        answer = struct.unpack("<IIQQ", connection.recv(100))
    assert answer == (wire.RING_MAGIC, wire.RING_VERSION, 0, 1)
