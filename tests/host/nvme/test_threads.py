# SPDX-License-Identifier: Apache-2.0
"""One drive used from several threads at once: every thread gets the completions of its own commands."""

from concurrent.futures import ThreadPoolExecutor

import numpy as np

from kvdrive import abi
from kvdrive.nvme import commands, namespaces

THREADS, ROUNDS = 8, 60


def test_completions_belong_to_their_commands(target):
    def work(thread):
        """Write and read a thread's own blocks, new contents each round, several commands in flight, one that fails."""
        first = thread * 16
        for number in range(ROUNDS):
            block = np.full(4096, (thread * ROUNDS + number) % 251, np.uint8)
            writes = [namespaces.write_blocks(first + i, block + np.uint8(i)) for i in range(4)]
            assert all(done.status == abi.NvmeStatus.SUCCESS for done in target.submit_many(writes))
            reads = target.submit_many([namespaces.read_blocks(first + i, 1) for i in range(4)])
            for i, done in enumerate(reads):
                assert np.array_equal(done.data, block + np.uint8(i))
            missing = 1 << 20 | thread << 8 | number
            assert target.submit(commands.session_trim(missing, 0)).status == abi.NvmeStatus.UNKNOWN_SESSION
        return True

    with ThreadPoolExecutor(THREADS) as pool:
        assert list(pool.map(work, range(THREADS))) == [True] * THREADS
    stats = target.stats()
    assert stats.commands == THREADS * ROUNDS * 9
    assert stats.failed_commands == THREADS * ROUNDS


def test_session_numbers_are_given_once(target):
    with ThreadPoolExecutor(THREADS) as pool:
        numbers = list(pool.map(lambda _: target.new_session(), range(400)))
    assert len(set(numbers)) == 400
