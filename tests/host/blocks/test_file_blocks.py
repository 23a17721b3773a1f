"""Blocks in a file: found again, checked, bounded, and never taken away while they are used."""

from __future__ import annotations

import os
import resource
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import killed
import numpy as np
import pytest

from kvdrive.blocks.buffers import Buffers
from kvdrive.blocks.file_blocks import FileBlocks
from kvdrive.blocks.slots import HEADER_BYTES
from kvdrive.errors import InputError

BLOCK = 10_000
SLOT = 12_288  # header, block, padding to 4096


def key(number: int) -> bytes:
    return number.to_bytes(32, "little")


def fill(store: FileBlocks, buffers: Buffers, numbers: list[int]) -> list[int]:
    """Store blocks whose bytes are their number. Returns those that were written."""
    reserved = store.reserve([key(number) for number in numbers])
    written = []
    for one in reserved:
        buffers[0][HEADER_BYTES:] = one[0]
        if store.write(one, buffers[0]):
            written.append(one)
    store.finish(written, [one for one in reserved if one not in written])
    return [one[0] for one in written]


def found(store: FileBlocks, buffers: Buffers, number: int) -> bool:
    """True if the block is read, and its bytes are right."""
    if store.read([key(number)], [buffers[1]]) != [True]:
        return False
    assert (buffers[1][HEADER_BYTES : HEADER_BYTES + BLOCK] == number).all()
    return True


@pytest.fixture
def buffers() -> Buffers:
    return Buffers(2, SLOT)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "blocks.kv"


def opened(path: Path, slots: int = 8) -> FileBlocks:
    return FileBlocks(path, BLOCK, slots * SLOT, b"model")


def test_blocks_are_found_by_a_later_process(path, buffers):
    store = opened(path)
    assert fill(store, buffers, [1, 2, 3]) == [1, 2, 3]
    assert fill(store, buffers, [2, 4]) == [4]
    store.close()
    store = opened(path)
    assert all(found(store, buffers, number) for number in (1, 2, 3, 4))
    assert not found(store, buffers, 5)
    assert (store.stats.read, store.stats.bytes_read) == (4, 4 * SLOT)
    store.close()


@pytest.mark.parametrize("place", [0, 4, 9, 17, HEADER_BYTES, HEADER_BYTES + BLOCK - 1])
def test_a_damaged_block_is_not_there_and_is_written_again(path, buffers, place):
    store = opened(path)
    fill(store, buffers, [1])
    with path.open("r+b") as file:
        file.seek(place)
        old = file.read(1)
        file.seek(place)
        file.write(bytes([old[0] ^ 1]))
        file.flush()
        os.fsync(file.fileno())
    assert store.holds(key(1))
    assert not found(store, buffers, 1)
    assert not store.holds(key(1))
    assert store.stats.damaged == 1
    assert fill(store, buffers, [1]) == [1]
    assert found(store, buffers, 1)


def test_a_slot_that_cannot_be_read_takes_no_other_with_it(path, buffers, monkeypatch):
    """Slots that follow each other are read at once; a disk returns what comes before the bad place, then an error."""
    store = opened(path)
    fill(store, buffers, [1, 2, 3, 4])
    keys, several, read, bad = [key(number) for number in (1, 2, 3, 4)], Buffers(4, SLOT), os.preadv, 2 * SLOT

    def damaged(file, run, offset):
        if offset == bad:
            raise OSError(5, os.strerror(5))
        return read(file, run[: (bad - offset) // SLOT] if offset < bad else run, offset)

    monkeypatch.setattr("kvdrive.blocks.slots.os.preadv", damaged)
    assert store.read(keys, list(several)) == [True, True, False, True]
    assert store.stats.damaged == 1
    monkeypatch.undo()
    assert [found(store, buffers, number) for number in (1, 2, 3, 4)] == [True, True, False, True]
    store.close()


def test_a_file_that_was_cut_short_has_no_blocks(path, buffers):
    store = opened(path)
    fill(store, buffers, [1, 2])
    os.truncate(path, SLOT + 100)
    assert found(store, buffers, 1)
    assert not found(store, buffers, 2)


def test_a_slot_that_has_another_block_by_now_is_a_miss(path, buffers):
    one, other = opened(path, 1), opened(path, 1)
    fill(one, buffers, [1])
    index = other._index.whole
    stale = index([key(1)])
    fill(one, buffers, [2])
    other._index.whole = lambda wanted: stale
    assert not found(other, buffers, 1)
    other._index.whole = index
    assert found(other, buffers, 2)


def test_the_least_recently_used_block_leaves(path, buffers):
    store = opened(path, 3)
    fill(store, buffers, [1, 2, 3])
    store.touch([key(1), key(2)])
    fill(store, buffers, [4])
    assert [number for number in (1, 2, 3, 4) if store.holds(key(number))] == [1, 2, 4]
    fill(store, buffers, [5])
    assert [number for number in (1, 2, 4, 5) if store.holds(key(number))] == [1, 4, 5], (
        "a prefix outlives what follows"
    )
    assert store.stats.evictions == 2
    assert path.stat().st_size == 3 * SLOT


def test_a_lower_bound_holds_at_once(path, buffers):
    store = opened(path, 8)
    fill(store, buffers, list(range(1, 9)))
    store.close()
    store = opened(path, 3)
    assert store.count() <= 3
    fill(store, buffers, [20, 21, 22, 23])
    assert store.count() <= 3


def test_blocks_that_are_read_or_written_do_not_leave(path, buffers):
    store = opened(path, 2)
    fill(store, buffers, [1, 2])
    read = store._file.read
    seen = []

    def meanwhile(slots, wanted, given):
        seen.append((store.uses(key(1)), store.reserve([key(3)]), store.reserve([key(4)]), store.uses(key(3))))
        return read(slots, wanted, given)

    store._file.read = meanwhile
    assert found(store, buffers, 1)
    assert seen == [(1, [key(3)], [], -1)], "block 2 made room for block 3, and nothing could make room for block 4"
    assert store.uses(key(1)) == 0
    assert not store.holds(key(3)), "it is being written"
    store.finish([], [key(3)])
    assert store.reserve([key(4)]) == [key(4)]


def test_a_full_disk_keeps_what_is_there_and_reuses_its_room(path, buffers):
    store = opened(path, 8)
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (40 * SLOT, limits[1]))
    try:
        store.slots = 100
        assert fill(store, buffers, list(range(1, 61))) == list(range(1, 41))
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    assert store.stats.failed_writes == 20
    assert store.slots == 40
    assert found(store, buffers, 1)
    assert found(store, buffers, 40)
    assert not found(store, buffers, 41)
    assert fill(store, buffers, [70]) == [70]
    assert path.stat().st_size <= 40 * SLOT


def test_a_disk_without_room_for_the_index_stops_nothing(path, buffers):
    store = opened(path)
    fill(store, buffers, [1, 2])
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (4096, limits[1]))
    try:
        assert fill(store, buffers, [3]) == []
        store.touch([key(1)])
        store.finish([], [key(9)])
        assert found(store, buffers, 1)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    assert store.uses(key(3)) == 0
    assert fill(store, buffers, [3]) == [3]
    assert found(store, buffers, 3)


KILLED = """
import os, signal, sys
from pathlib import Path
import numpy as np
from kvdrive.blocks.buffers import Buffers
from kvdrive.blocks.file_blocks import FileBlocks
store, buffers = FileBlocks(Path(sys.argv[1]), 10_000, 2 * 12_288, b"model"), Buffers(1, 12_288)
keys = [number.to_bytes(32, "little") for number in (1, 2)]
assert store.reserve(keys) == keys
store.write(keys[0], buffers[0])
if sys.argv[2] == "finished":
    store.finish(keys[:1], [])
os.kill(os.getpid(), signal.SIGKILL)
"""


@pytest.mark.parametrize("when", ["finished", "writing"])
def test_a_process_that_is_killed_in_a_store_leaves_whole_blocks_only(path, buffers, when):
    done = subprocess.run([sys.executable, "-c", KILLED, path, when], timeout=120, check=False)
    assert done.returncode == -signal.SIGKILL
    store = opened(path, 2)
    assert store.holds(key(1)) == (when == "finished")
    assert not store.holds(key(2))
    assert fill(store, buffers, [2, 3]) == [2, 3], "no slot is lost"


def half(path: Path) -> None:
    path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])


@pytest.mark.parametrize("most", [6, pytest.param(1 << 30, marks=pytest.mark.slow)])
@pytest.mark.parametrize("state", [half, Path.unlink])
def test_a_kill_while_an_index_is_made_again_leaves_whole_blocks_or_none(tmp_path, buffers, caplog, state, most):
    kept, folder = tmp_path / "kept", tmp_path / "work"
    path = folder / "blocks.kv"
    store = opened(kept / "blocks.kv")
    assert fill(store, buffers, [1, 2, 3]) == [1, 2, 3]
    store.close()

    def begin() -> None:
        shutil.rmtree(folder, ignore_errors=True)
        shutil.copytree(kept, folder)
        state(folder / "blocks.kv.index")

    try:
        for _ in killed.at_every_call(lambda: opened(path).close(), begin, most):
            caplog.clear()
            store = opened(path)
            assert (store.count(), found(store, buffers, 1)) == (0, False)
            assert fill(store, buffers, [4, 3, 2, 1]) == [4, 3, 2, 1]
            store.close()
            store = opened(path)
            assert all(found(store, buffers, number) for number in (1, 2, 3, 4))
            store.close()
            assert all("is damaged" in one and state is half for one in caplog.messages)
    except killed.NoTracingError:
        pytest.skip("this machine lets no process trace its child")


def test_two_stores_share_a_file(path, buffers):
    one, other = opened(path, 3), opened(path, 3)
    fill(one, buffers, [1])
    assert found(other, buffers, 1)
    assert other.reserve([key(1)]) == []
    assert one.reserve([key(2), key(3)]) == [key(2), key(3)]
    assert not other.holds(key(2))
    assert other.uses(key(2)) == 0
    assert other.reserve([key(2), key(4), key(5)]) == [key(4)], "2 is being written, 1 leaves, nothing else may"
    one.finish([key(2)], [key(3)])
    assert other.holds(key(2))


def test_models_are_forgotten_one_by_one(path, buffers):
    one, other = FileBlocks(path, BLOCK, 8 * SLOT, b"one"), FileBlocks(path, BLOCK, 8 * SLOT, b"other")
    fill(one, buffers, [1])
    fill(other, buffers, [2])
    one.forget_model()
    assert not one.holds(key(1))
    assert one.holds(key(2))


def test_what_cannot_be_used_is_refused_in_a_sentence(path, tmp_path):
    opened(path).close()
    with pytest.raises(InputError, match=r"is for blocks of 10000 bytes, and this engine's have 5000: choose another"):
        FileBlocks(path, 5000, 1 << 20)
    with pytest.raises(InputError, match=r"a block takes 12288 bytes and the bound is 1000: raise it"):
        FileBlocks(tmp_path / "small", BLOCK, 1000)
    with pytest.raises(InputError, match="cannot be opened"):
        FileBlocks(tmp_path, BLOCK, 1 << 20)


def test_buffers_are_bounded():
    buffers = Buffers(2, 4096)
    assert {buffers.take(), buffers.take()} == {0, 1}
    assert buffers.take() is None
    buffers.give(1)
    assert buffers.wait() == 1
    assert all(np.asarray(buffers[number]).ctypes.data % 4096 == 0 for number in (0, 1))
