"""Blocks are found only when they are in memory and whole; requests share this memory and never block each other."""

from __future__ import annotations

import os
from concurrent.futures import Future
from pathlib import Path

import pytest

from kvdrive.plugins.vllm.staging import Found, Staging
from kvdrive.prefix.blocks.buffers import Buffers
from kvdrive.prefix.blocks.file import blocks_in_file
from kvdrive.prefix.blocks.store import BlockOptions

BLOCK = 4000


class Later:
    """A pool whose work is done when the test says so."""

    def __init__(self) -> None:
        self.work = []

    def submit(self, function, *arguments):
        self.work.append((function, arguments))
        return Future()

    def run(self, count: int = 1000) -> None:
        for function, arguments in self.work[:count]:
            function(*arguments)
        del self.work[:count]


def key(number: int) -> bytes:
    return number.to_bytes(32, "little")


class Bench:
    """A store with blocks 0 to 9, and memory for 4."""

    def __init__(self, path, threads: int = 4) -> None:
        self.store = blocks_in_file(path, BLOCK, BlockOptions(1 << 20))
        self.buffers = Buffers(4, self.store.slot_bytes)
        self.staging = Staging(self.store, self.buffers, threads)
        self.pool = self.staging._pool = Later()
        keys = [key(number) for number in range(10)]
        self.store.reserve(keys)
        for one in keys:
            self.store.write(one, Buffers(1, self.store.slot_bytes)[0])
        self.store.finish(keys, [])

    def look(self, request: str, *numbers: int) -> str:
        """The first letters of what the look-ups say."""
        said = "".join(self.staging.look(key(number), request).name[0] for number in numbers)
        self.staging.submit()
        return said

    def use(self, request: str, *numbers: int):
        return self.staging.use([key(number) for number in numbers], request)


@pytest.fixture
def bench(tmp_path):
    return Bench(tmp_path / "blocks")


def test_a_block_is_found_when_it_is_in_memory(bench):
    assert bench.look("a", 0, 1, 50) == "RRM"
    assert bench.look("a", 0) == "R"
    bench.pool.run()
    assert bench.look("a", 0, 1) == "HH"
    assert bench.look("b", 0) == "H", "requests share what is there"
    used = bench.use("a", 0, 1)
    assert bench.buffers.free == 2
    bench.staging.release(used)
    assert bench.buffers.free == 4
    assert bench.look("b", 0) == "R"


def test_a_block_that_is_being_written_is_pending(bench):
    bench.store.reserve([key(20)])
    assert bench.staging.look(key(20), "a") is Found.PENDING
    bench.store.finish([], [key(20)])
    assert bench.staging.look(key(20), "a") is Found.MISS


def test_a_damaged_block_is_a_miss_and_what_follows_it_is_dropped(bench):
    with Path(bench.store._medium.place).open("r+b") as file:
        file.seek(1 * bench.store.slot_bytes + 100)
        file.write(b"x")
    assert bench.look("a", 0, 1, 2, 3) == "RRRR"
    bench.pool.run()
    assert bench.look("a", 0, 1) == "HM"
    assert bench.buffers.free == 3
    assert bench.look("a", 0, 1) == "HM"
    bench.staging.release(bench.use("a", 0))
    assert bench.buffers.free == 4


def test_a_prefix_longer_than_the_memory_is_found_as_far_as_it_fits(bench):
    assert bench.look("a", 0, 1, 2, 3, 4, 5) == "RRRRMM"
    bench.pool.run()
    assert bench.look("a", 0, 1, 2, 3, 4, 5) == "HHHHMM"


def test_the_oldest_request_gets_what_it_needs(bench):
    assert bench.look("a", 0, 1) == "RR"
    assert bench.look("b", 5, 6, 7) == "RRR"
    bench.pool.run()
    assert bench.look("a", 0, 1, 2, 3) == "HHRR", "at the cost of b"
    assert bench.look("b", 5, 6) == "RR"
    bench.pool.run()
    assert bench.look("b", 5, 6) == "RR", "b waits"
    used = bench.use("a", 0, 1, 2, 3)
    assert bench.look("b", 5, 6) == "RR"
    bench.staging.release(used)
    assert bench.look("b", 5, 6) == "RR"
    bench.pool.run()
    assert bench.look("b", 5, 6) == "HH"


def test_blocks_that_a_load_copies_are_not_taken(bench):
    bench.look("a", 0, 1, 2, 3)
    bench.pool.run()
    used = bench.use("a", 0, 1, 2, 3)
    assert bench.look("b", 5) == "R"
    bench.staging.finish("a")
    bench.staging.reset()
    assert bench.buffers.free == 0
    bench.staging.release(used)
    assert bench.buffers.free == 4


def test_a_request_that_ends_gives_everything_back(bench):
    bench.look("a", 0, 1, 2)
    bench.pool.run(1)
    bench.staging.finish("a")
    assert bench.buffers.free == 2, "two are still being read"
    bench.pool.run()
    assert bench.buffers.free == 4
    assert bench.store.stats.read == 1, "what nobody wants any more is not read"


def test_only_what_is_loaded_stays(bench):
    bench.look("a", 0, 1, 2)
    bench.pool.run()
    used = bench.use("a", 0)
    assert bench.buffers.free == 3
    bench.staging.release(used)
    assert bench.buffers.free == 4


def test_blocks_of_a_request_are_read_together(tmp_path, monkeypatch):
    """Two threads: each gets half of what was looked for, and reads slots that follow each other at once."""
    bench = Bench(tmp_path / "blocks", threads=2)
    reads = []
    preadv = os.preadv
    monkeypatch.setattr(os, "preadv", lambda file, parts, place: reads.append(len(parts)) or preadv(file, parts, place))
    assert bench.look("a", 0, 1, 2, 3) == "RRRR"
    bench.pool.run()
    assert reads == [2, 2]
    assert bench.look("a", 0, 1, 2, 3) == "HHHH"


def test_a_request_that_ends_before_its_reads_begin_reads_nothing(bench):
    for number in range(3):
        assert bench.staging.look(key(number), "a") is Found.RETRY
    bench.staging.finish("a")
    assert bench.buffers.free == 4
    bench.staging.submit()
    bench.pool.run()
    assert bench.store.stats.read == 0
    assert bench.buffers.free == 4
