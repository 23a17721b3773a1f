# SPDX-License-Identifier: Apache-2.0
"""Commands that the calling thread executes for the drive, beside the drive's own thread and other callers."""

import threading

import numpy as np
import pytest

from kvdrive import abi
from kvdrive._native import QueuePairs, RingServer
from kvdrive.nvme import commands
from kvdrive.nvme.completions import decode


@pytest.mark.parametrize("threaded", [True, False])
def test_callers_share_a_drive_and_its_queue(nvme, threaded):
    """Four threads append to their sessions and read back what they wrote, some with `execute`, some with tickets."""
    pairs = QueuePairs(nvme.subsystem, 1 << 24, threaded=threaded)
    right = []

    def exchange(command, by_ticket):
        if by_ticket:
            ticket = pairs.submit(1, command.entry, command.data, command.room)
            return decode(*pairs.wait(ticket))
        return decode(*pairs.execute(1, command.entry, command.data, command.room))

    def work(session):
        for turn in range(60):
            rows = np.full((1, 1, 64), session * 100 + turn, np.float16)
            stored = exchange(commands.kv_append(session, 0, 0, abi.KvKind.KEYS, turn, turn, rows), turn % 3 == 0)
            found = exchange(commands.kv_read(session, 0, 0, abi.KvKind.KEYS, turn, (1, 1, 64)), turn % 2 == 0)
            assert (stored.status, found.status) == (0, 0)
            right.append((found.data.view(np.float16) == rows.ravel()).all())

    threads = [threading.Thread(target=work, args=(session,)) for session in range(1, 5)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert right == [True] * 240


def test_two_hosts_of_one_drive(nvme):
    """Each host has a queue and a thread of the drive of its own; the second append follows on the first."""
    hosts = [QueuePairs(nvme.subsystem, 1 << 22) for _ in range(2)]
    rows = np.ones((1, 3, 64), np.float16)
    for sequence, pairs in enumerate(hosts):
        append = commands.kv_append(1, 0, 0, abi.KvKind.KEYS, 3 * sequence, sequence, rows)
        assert decode(*pairs.execute(1, append.entry, append.data)).status == abi.NvmeStatus.SUCCESS


def test_a_host_behind_a_socket(nvme, tmp_path):
    """It cannot work for the drive, and waits for the drive's own thread."""
    server = RingServer(nvme.subsystem, tmp_path / "drive")
    thread = threading.Thread(target=server.run)
    thread.start()
    try:
        pairs = QueuePairs.connect(tmp_path / "drive", 1 << 22)
        append = commands.kv_append(1, 0, 0, abi.KvKind.KEYS, 0, 0, np.ones((1, 3, 64), np.float16))
        assert decode(*pairs.execute(1, append.entry, append.data)).status == abi.NvmeStatus.SUCCESS
        del pairs
    finally:
        server.stop()
        thread.join()
