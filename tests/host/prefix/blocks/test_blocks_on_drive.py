"""Blocks as values on a drive: found again, checked, bounded, and shared by hosts of one drive."""

from __future__ import annotations

import threading
from contextlib import contextmanager

import pytest
from block_checks import BLOCK, SLOT, fill, found, key

from kvdrive._native import Drive, RingServer, Subsystem
from kvdrive.errors import InputError
from kvdrive.prefix.blocks.buffers import Buffers
from kvdrive.prefix.blocks.drive import blocks_on_drive
from kvdrive.prefix.blocks.seal import HEADER_BYTES
from kvdrive.prefix.blocks.store import BlockOptions
from kvdrive.targets.cpu import CpuDrive
from kvdrive.targets.key_value import KeyValueNamespace

MODEL = bytes(range(32))


@pytest.fixture
def buffers() -> Buffers:
    return Buffers(2, SLOT)


@pytest.fixture
def path(tmp_path):
    with CpuDrive(tmp_path / "drive.kv", 1, 1 << 26):
        pass
    return tmp_path / "drive.kv"


@contextmanager
def opened(drive, slots: int = 8, model: bytes = MODEL):
    blocks = blocks_on_drive(str(drive), BLOCK, BlockOptions(slots * SLOT, model))
    try:
        yield blocks
    finally:
        blocks.close()


def test_blocks_are_found_by_a_later_process(path, buffers):
    with opened(path) as blocks:
        assert fill(blocks, buffers, [1, 2, 3]) == [1, 2, 3]
        assert fill(blocks, buffers, [2, 4]) == [4]
    with opened(path) as blocks:
        assert blocks.count() == 4
        assert all(found(blocks, buffers, number) for number in (1, 2, 3, 4))
        assert not found(blocks, buffers, 5)
        assert (blocks.stats.read, blocks.stats.bytes_read) == (4, 4 * SLOT)


def test_other_models_find_nothing(path, buffers):
    with opened(path) as blocks:
        fill(blocks, buffers, [1])
    with opened(path, model=bytes(32)) as other:
        assert other.count() == 0
        fill(other, buffers, [2])
        other.forget_model()
        assert other.count() == 0
    with opened(path) as blocks:
        assert found(blocks, buffers, 1)
        assert not blocks.holds(key(2))


def test_a_value_that_is_another_block_is_a_miss_and_is_written_again(path, buffers):
    with opened(path) as blocks:
        fill(blocks, buffers, [1])
        values = KeyValueNamespace(blocks._medium.values._target)
        (short,) = values.keys()
        values.store(short, bytes(buffers[0][: HEADER_BYTES + BLOCK - 1]) + b"x", "exist")
        assert blocks.holds(key(1))
        assert not found(blocks, buffers, 1)
        assert not blocks.holds(key(1))
        assert blocks.stats.damaged == 1
        assert fill(blocks, buffers, [1]) == [1]
        assert found(blocks, buffers, 1)


def test_the_least_recently_used_block_is_evicted(path, buffers):
    with opened(path, 3) as blocks:
        fill(blocks, buffers, [1, 2, 3])
        blocks.touch([key(1), key(2)])
        fill(blocks, buffers, [4])
        assert [number for number in (1, 2, 3, 4) if blocks.holds(key(number))] == [1, 2, 4]
        assert len(list(KeyValueNamespace(blocks._medium.values._target).keys())) == 3
        assert blocks.reserve([key(5)]) == [key(5)]
        assert blocks.uses(key(5)) == -1
        assert not blocks.holds(key(5))
        assert blocks.reserve([key(6), key(7), key(8)]) == [key(6), key(7)], "5 is being written and does not leave"


def test_a_full_drive_keeps_what_is_there_and_reuses_its_room(tmp_path, buffers):
    with CpuDrive(tmp_path / "small.kv", 1, 1 << 21):
        pass
    with opened(tmp_path / "small.kv", 10_000) as blocks:
        written = fill(blocks, buffers, list(range(1, 250)))
        assert 0 < len(written) < 249
        assert blocks.stats.failed_writes == 249 - len(written)
        assert found(blocks, buffers, written[0])
        assert blocks.slots == len(written)
        assert fill(blocks, buffers, [250]) == [250], "another block made room"


def test_two_hosts_share_a_drive(tmp_path, buffers):
    drive = Drive(tmp_path / "drive.kv", "fast", 1, 1 << 26)
    server = RingServer(Subsystem(drive), tmp_path / "drive.sock")
    thread = threading.Thread(target=server.run)
    thread.start()
    try:
        with opened(tmp_path / "drive.sock", 3) as one, opened(tmp_path / "drive.sock", 3) as other:
            fill(one, buffers, [1])
            assert not other.holds(key(1)), "it has not heard of it"
            assert fill(other, buffers, [1]) == [1]
            assert other.stats.written == 0, "it was there"
            assert found(other, buffers, 1)
            fill(one, buffers, [2, 3, 4])
            assert not found(other, buffers, 1), "the other host has removed it"
    finally:
        server.stop()
        thread.join()


def test_a_bound_below_a_block_is_refused(path):
    with pytest.raises(InputError, match="a block takes 12288 bytes and the bound is 0: raise it"), opened(path, 0):
        pass


def test_the_policy_says_which_block_is_evicted(path, buffers):
    blocks = blocks_on_drive(str(path), BLOCK, BlockOptions(2 * SLOT, MODEL, "fifo"))
    fill(blocks, buffers, [1, 2])
    blocks.touch([key(1)])
    fill(blocks, buffers, [3])
    assert [number for number in (1, 2, 3) if blocks.holds(key(number))] == [2, 3]
    blocks.close()


def test_a_lower_bound_takes_the_others_from_the_drive(path, buffers):
    with opened(path) as blocks:
        fill(blocks, buffers, [1, 2, 3, 4])
    with opened(path, 3) as blocks:
        assert blocks.count() == 3
        fill(blocks, buffers, [5])
        assert len(list(blocks._medium.values.keys())) == 3
