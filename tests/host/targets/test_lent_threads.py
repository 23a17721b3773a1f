"""A drive in this process computes with the threads that torch has for the caller, if they are as many as its own."""

import time
from pathlib import Path

import numpy as np
import pytest
import torch

from kvdrive import abi
from kvdrive._native import lend_threads
from kvdrive.kernels.native import scale_bits
from kvdrive.kvcache.session import Query, Session, attend
from kvdrive.nvme.errors import CommandError
from kvdrive.targets.emulator import Emulator

TOKENS, HEADS, DIM = 2048, 2, 64


@pytest.fixture
def two_threads():
    before = torch.get_num_threads()
    torch.set_num_threads(2)
    yield
    torch.set_num_threads(before)


def stored(drive):
    rng = np.random.default_rng(1)
    session = Session(drive)
    for kind in abi.KvKind:
        session.append(0, kind, 0, rng.standard_normal((HEADS, TOKENS, DIM)).astype(np.float16))
    q = rng.standard_normal((HEADS, 4, DIM)).astype(np.float16)
    return Query(session, 0, q, TOKENS, scale_bits(None, DIM))


def lent(drive, query):
    lend_threads(True)
    try:
        return attend(drive, [query])[0].out.tobytes()
    finally:
        lend_threads(False)


def sleeps() -> dict[str, int]:
    """How often each thread of this process has gone to sleep."""
    found = {}
    for status in Path("/proc/self/task").glob("*/status"):
        fields = dict(line.split(":", 1) for line in status.read_text().splitlines())
        found[status.parent.name] = int(fields["voluntary_ctxt_switches"])
    return found


@pytest.mark.parametrize("threads", [1, 2, 3])
def test_results_do_not_depend_on_whose_threads_compute(tmp_path, two_threads, threads):
    with Emulator(tmp_path / "drive.kv", "fast", threads, 1 << 26) as drive:
        query = stored(drive)
        expected = attend(drive, [query])[0].out.tobytes()
        assert [lent(drive, query) for _ in range(20)] == [expected] * 20


def test_the_engines_own_threads_sleep_meanwhile(tmp_path, two_threads):
    before = sleeps()
    with Emulator(tmp_path / "drive.kv", "fast", 2, 1 << 26) as drive:
        query = stored(drive)
        own = set(sleeps()) - set(before)

        def awake(ask) -> set[str]:
            time.sleep(0.05)  # until threads that polled for more work sleep
            start = sleeps()
            for _ in range(20):
                ask()
            time.sleep(0.05)
            return {thread for thread, count in sleeps().items() if thread in own and count > start[thread]}

        alone = awake(lambda: attend(drive, [query]))
        assert alone - awake(lambda: lent(drive, query))


def test_an_error_leaves_threads_and_drive_usable(tmp_path, two_threads):
    with Emulator(tmp_path / "drive.kv", "fast", 2, 1 << 26) as drive:
        query = stored(drive)
        expected = attend(drive, [query])[0].out.tobytes()
        drive._drive.inject("read_uncorrectable", count=1)
        with pytest.raises(CommandError, match="UNRECOVERED_READ"):
            lent(drive, query)
        assert lent(drive, query) == expected
        assert torch.ones(1 << 16).sum() == 1 << 16
