"""Jobs of a secondary tier: rows of memory go to the store and come back checked, and every job ends."""

from __future__ import annotations

import resource
import threading
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import pytest

from kvdrive.plugins.vllm.options import Options
from kvdrive.plugins.vllm.tier_jobs import TierJob, TierJobs
from kvdrive.prefix.blocks.file import blocks_in_file
from kvdrive.prefix.blocks.store import BlockOptions

ROW, ROWS = 8192, 24
SLOT = 12_288  # header, row, padding to 4096


def keys(*numbers: int) -> list[bytes]:
    return [number.to_bytes(32, "little") for number in numbers]


class Tier:
    """A store of `slots` blocks, and memory whose row `number` begins with the bytes `number`."""

    def __init__(self, path: Path, slots: int, **options) -> None:
        self.blocks = blocks_in_file(path, ROW, BlockOptions(slots * SLOT, b"model"))
        self.rows = np.repeat(np.arange(ROWS, dtype=np.uint8), ROW).reshape(ROWS, ROW)
        self.jobs = TierJobs(self.blocks, self.rows, Options(path, **options))
        self.numbers = 0

    def do(self, way: str, names: list[bytes], rows: list[int]) -> TierJob:
        self.numbers += 1
        getattr(self.jobs, way)(self.numbers, names, rows)
        self.jobs.drain()
        (job,) = self.jobs.finished()
        assert job.number == self.numbers
        return job


@contextmanager
def opened(path: Path, slots: int = 30, **options):
    tier = Tier(path, slots, **options)
    try:
        yield tier
    finally:
        tier.jobs.close()
        tier.blocks.close()


@pytest.fixture
def path(tmp_path):
    return tmp_path / "blocks"


@pytest.mark.parametrize("memory", [1, 6 * SLOT, 1 << 30])
def test_rows_come_back_in_a_later_process(path, memory):
    names = keys(*range(12))
    with opened(path, buffer_bytes=memory) as tier:
        assert tier.do("store", names, list(range(12))).whole == [True] * 12
        assert tier.do("store", names[:3], [20, 21, 22]).whole == [True] * 3
        assert tier.blocks.stats.written == 12, "what is there is not written again"
    with opened(path, buffer_bytes=memory) as tier:
        tier.rows[:] = 99
        job = tier.do("load", names[::-1] + keys(77), [*range(12, 24), 0])
        assert job.whole == [True] * 12 + [False]
        assert (tier.rows[12:] == np.arange(12, dtype=np.uint8)[::-1, None]).all()
        assert (tier.rows[:12] == 99).all(), "rows of other blocks stay as they are"


def test_a_damaged_block_is_no_row(path):
    with opened(path) as tier:
        tier.do("store", keys(1, 2, 3), [1, 2, 3])
    with path.open("r+b") as file:
        file.seek(SLOT + 5000)
        file.write(b"damage")
    with opened(path) as tier:
        assert tier.do("load", keys(1, 2, 3), [11, 12, 13]).whole == [True, False, True]
        assert [int(tier.rows[number, 0]) for number in (11, 12, 13)] == [1, 12, 3]
        assert not tier.blocks.holds(*keys(2))
        assert tier.do("store", keys(2), [2]).whole == [True]
        assert tier.do("load", keys(2), [12]).whole == [True]


def test_a_full_disk_fails_stores_and_keeps_what_is_there(path):
    names, rows = keys(*range(60)), [number % ROWS for number in range(60)]
    with opened(path, slots=100) as tier:
        limits = resource.getrlimit(resource.RLIMIT_FSIZE)
        resource.setrlimit(resource.RLIMIT_FSIZE, (40 * SLOT, limits[1]))
        try:
            assert tier.do("store", names, rows).whole == [True] * 40 + [False] * 20
        finally:
            resource.setrlimit(resource.RLIMIT_FSIZE, limits)
        assert tier.blocks.stats.failed_writes == 20
        assert tier.do("load", names, rows).whole == [True] * 40 + [False] * 20


def test_blocks_that_are_read_are_not_evicted(path):
    with opened(path, slots=2) as tier:
        tier.do("store", keys(1, 2), [1, 2])
        read, seen = tier.blocks._medium.read, []

        def meanwhile(slots, wanted, given):
            tier.jobs.store(50, keys(3, 4), [3, 4])
            with tier.jobs._changed:
                tier.jobs._changed.wait_for(lambda: 50 not in tier.jobs._running)
            seen.extend(tier.jobs.finished())
            return read(slots, wanted, given)

        tier.blocks._medium.read = meanwhile
        assert tier.do("load", keys(1), [10]).whole == [True]
        assert (tier.rows[10] == 1).all()
        assert [job.whole for job in seen] == [[True, False]], "block 2 made room, block 1 was being read"


def test_every_job_ends(path, caplog):
    with opened(path) as tier:
        assert tier.do("load", [], []).whole == []
        assert tier.do("store", [], []).whole == []
        tier.blocks.read = tier.blocks.reserve = None  # whatever goes wrong in a thread
        assert tier.do("load", keys(1), [1]).whole == [False]
        assert tier.do("store", keys(1, 2), [1, 2]).whole == [False, False]
    assert "a transfer of blocks failed" in caplog.text


def test_drain_waits_for_what_is_moving(path):
    with opened(path) as tier:
        going = threading.Event()
        write = tier.blocks.write

        def slow(key, buffer):
            going.wait(60)
            return write(key, buffer)

        tier.blocks.write = slow
        tier.jobs.store(1, keys(1), [1])
        waiting = threading.Thread(target=tier.jobs.drain)
        waiting.start()
        waiting.join(0.2)  # long enough to end if nothing held it
        assert waiting.is_alive()
        assert tier.jobs.finished() == []
        going.set()
        waiting.join(60)
        assert [job.whole for job in tier.jobs.finished()] == [[True]]
