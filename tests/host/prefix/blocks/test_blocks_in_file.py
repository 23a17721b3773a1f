"""Blocks in a file: found again, checked, bounded, and never taken away while they are used."""

from __future__ import annotations

import os
import resource
import shutil
import signal
import sqlite3
import subprocess
import sys
from contextlib import closing
from pathlib import Path

import killed
import numpy as np
import pytest
from block_checks import BLOCK, SLOT, fill, found, key

from kvdrive.errors import InputError
from kvdrive.prefix.blocks.buffers import Buffers
from kvdrive.prefix.blocks.file import blocks_in_file
from kvdrive.prefix.blocks.seal import HEADER_BYTES
from kvdrive.prefix.blocks.store import BlockOptions, BlockStore


@pytest.fixture
def buffers() -> Buffers:
    return Buffers(2, SLOT)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "blocks.kv"


def opened(path: Path, slots: int = 8) -> BlockStore:
    return blocks_in_file(path, BLOCK, BlockOptions(slots * SLOT, b"model"))


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

    monkeypatch.setattr("kvdrive.prefix.blocks.file.os.preadv", damaged)
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


def test_the_least_recently_used_block_is_evicted(path, buffers):
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


def test_blocks_that_are_read_or_written_are_not_evicted(path, buffers):
    store = opened(path, 2)
    fill(store, buffers, [1, 2])
    read = store._medium.read
    seen = []

    def meanwhile(blocks, wanted, given):
        seen.append((store.uses(key(1)), store.reserve([key(3)]), store.reserve([key(4)]), store.uses(key(3))))
        return read(blocks, wanted, given)

    store._medium.read = meanwhile
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
from kvdrive.prefix.blocks.buffers import Buffers
from kvdrive.prefix.blocks.file import blocks_in_file
from kvdrive.prefix.blocks.store import BlockOptions
store, buffers = blocks_in_file(Path(sys.argv[1]), 10_000, BlockOptions(2 * 12_288, b"model")), Buffers(1, 12_288)
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
def test_a_kill_while_an_index_is_made_again_loses_no_block(tmp_path, buffers, caplog, state, most):
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
            assert all(found(store, buffers, number) for number in (1, 2, 3))
            assert fill(store, buffers, [4, 3, 2, 1]) == [4]
            store.close()
            store = opened(path)
            assert all(found(store, buffers, number) for number in (1, 2, 3, 4))
            store.close()
            assert all(
                "is made from 3 blocks" in one or ("is damaged" in one and state is half) for one in caplog.messages
            )
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
    one, other = (blocks_in_file(path, BLOCK, BlockOptions(8 * SLOT, model)) for model in (b"one", b"other"))
    fill(one, buffers, [1])
    fill(other, buffers, [2])
    one.forget_model()
    assert not one.holds(key(1))
    assert one.holds(key(2))


def test_what_cannot_be_used_is_refused_in_a_sentence(path, tmp_path):
    opened(path).close()
    with pytest.raises(InputError, match=r"is for blocks of 10000 bytes, and this engine's have 5000: choose another"):
        blocks_in_file(path, 5000, BlockOptions(1 << 20))
    with pytest.raises(InputError, match=r"a block takes 12288 bytes and the bound is 1000: raise it"):
        blocks_in_file(tmp_path / "small", BLOCK, BlockOptions(1000))
    with pytest.raises(InputError, match="cannot be opened"):
        blocks_in_file(tmp_path, BLOCK, BlockOptions(1 << 20))


def test_buffers_are_bounded():
    buffers = Buffers(2, 4096)
    assert {buffers.take(), buffers.take()} == {0, 1}
    assert buffers.take() is None
    buffers.give(1)
    assert buffers.wait() == 1
    assert all(np.asarray(buffers[number]).ctypes.data % 4096 == 0 for number in (0, 1))


VERSION_1 = """
CREATE TABLE file(block_bytes INTEGER, tick INTEGER, slots INTEGER);
CREATE TABLE free(slot INTEGER PRIMARY KEY);
CREATE TABLE blocks(id INTEGER PRIMARY KEY AUTOINCREMENT, key BLOB UNIQUE, slot INTEGER UNIQUE, model BLOB, owner TEXT,
    used REAL, tick INTEGER, uses INTEGER);
CREATE INDEX block_uses ON blocks(tick);
CREATE INDEX block_models ON blocks(model);
CREATE INDEX block_owners ON blocks(owner) WHERE owner != '';
CREATE TRIGGER freed AFTER DELETE ON blocks BEGIN INSERT OR IGNORE INTO free VALUES (old.slot); END;
PRAGMA user_version=1;
"""


def test_an_index_of_the_earlier_version_is_converted_once(path, buffers, caplog):
    store = opened(path, 3)
    fill(store, buffers, [1, 2, 3])
    store.close()
    place = path.with_name("blocks.kv.index")
    place.unlink()
    with closing(sqlite3.connect(place)) as db:
        db.executescript(VERSION_1)
        rows = [(key(number), number - 1, b"model", tick) for number, tick in ((1, 9), (2, 7), (3, 8))]
        db.executemany("INSERT INTO blocks VALUES (NULL, ?, ?, ?, '', 1.0, ?, 0)", rows)
        db.execute("INSERT INTO file VALUES (?, 9, 3)", (BLOCK,))
        db.commit()
    store = opened(path, 3)
    assert "is converted" in caplog.text
    assert store.count() == 3
    assert fill(store, buffers, [4]) == [4]
    assert [number for number in (1, 2, 3, 4) if found(store, buffers, number)] == [1, 3, 4], "2 was used first"
    store.forget_model()
    assert store.count() == 0
    store.close()
    caplog.clear()
    opened(path, 3).close()
    assert "converted" not in caplog.text


def test_a_tenant_evicts_its_own_blocks_within_its_quota(path, buffers):
    one = blocks_in_file(path, BLOCK, BlockOptions(8 * SLOT, b"model", tenant="one", tenant_bytes=2 * SLOT))
    other = blocks_in_file(path, BLOCK, BlockOptions(8 * SLOT, b"model", tenant="other"))
    fill(other, buffers, [1, 2])
    fill(one, buffers, [3, 4, 5])
    assert [number for number in range(1, 6) if other.holds(key(number))] == [1, 2, 3, 4], (
        "none of its blocks may leave"
    )
    fill(one, buffers, [6])
    assert [number for number in range(1, 7) if other.holds(key(number))] == [1, 2, 3, 6]


def test_beyond_the_budget_of_a_day_only_what_is_wanted_again_is_stored(path, buffers):
    store = blocks_in_file(path, BLOCK, BlockOptions(8 * SLOT, b"model", daily_bytes=2 * SLOT))
    assert fill(store, buffers, [1, 2]) == [1, 2]
    assert fill(store, buffers, [3, 4]) == []
    assert store.governor.wear().refused == 1
    assert fill(store, buffers, [3, 4, 5]) == [3, 4, 5]
    assert store.governor.wear().bytes_today == 5 * SLOT
