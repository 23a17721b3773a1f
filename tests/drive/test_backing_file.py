# SPDX-License-Identifier: Apache-2.0
"""The backing file is kept on opening. Creating one never overwrites another file."""

import struct

import numpy as np
import pytest
from disk import put, transactions
from random_halves import halves

from kvdrive import abi
from kvdrive._native import Drive
from kvdrive.kvcache.session import Session
from kvdrive.targets.emulator import Emulator

PAGE = 4096


def test_what_was_stored_is_there_after_opening_again(host, check):
    rng = np.random.default_rng(1)
    k, v, q = halves(rng, 2, 700, 64), halves(rng, 2, 700, 64), halves(rng, 2, 2, 64)
    host.store(k[:, :500], v[:, :500])
    host.reopen()
    assert host.drive.sessions() == [1]
    check(host.attend(q, 500), q, k[:, :500], v[:, :500])
    host.store(k[:, 500:], v[:, 500:], first_token=500)  # sequence numbers continue
    host.reopen()
    check(host.attend(q, 700), q, k, v)
    assert host.drive.check() == []


def test_formatting_forgets_everything(host):
    rng = np.random.default_rng(2)
    host.store(halves(rng, 1, 500, 64), halves(rng, 1, 500, 64))
    host.reopen(format=True, capacity_bytes=1 << 20)
    assert host.drive.sessions() == []
    assert host.drive.layout()["capacity_bytes"] == 1 << 20
    assert host.path.stat().st_size == host.drive.layout()["file_bytes"]


def test_the_file_knows_its_preset(make_drive):
    host = make_drive(preset="zn540", capacity_bytes=1 << 20)
    host.reopen()
    assert (host.drive.layout()["preset"], host.drive.layout()["capacity_bytes"]) == ("zn540", 1 << 20)
    with pytest.raises(RuntimeError, match="made as zn540, not femu-tlc"):
        host.reopen(preset="femu-tlc")


@pytest.mark.parametrize("contents", [b"x", b"somebody's thesis\n" * 500, bytes(10000)])
@pytest.mark.parametrize("format", [False, True])
def test_foreign_file_is_refused_and_kept(tmp_path, contents, format):
    path = tmp_path / "thesis.txt"
    path.write_bytes(contents)
    with pytest.raises(RuntimeError, match=r"thesis\.txt.*holds something else"):
        Drive(path, "fast", 1, 64 * PAGE, format=format)
    assert path.read_bytes() == contents


def superblocks(path, change):
    """Apply `change` to each copy of the superblock."""
    with path.open("r+b") as file:
        for copy in range(2):
            file.seek(copy * PAGE)
            contents = bytearray(file.read(PAGE))
            change(contents)
            file.seek(copy * PAGE)
            file.write(contents)


def test_other_version_is_refused_and_kept(tmp_path):
    path = tmp_path / "drive.kv"
    Drive(path, "fast", 1, 64 * PAGE)
    superblocks(path, lambda contents: struct.pack_into("<I", contents, 8, 7))
    with pytest.raises(RuntimeError, match="format 7"):
        Drive(path, "fast", 1, 64 * PAGE)
    Drive(path, "fast", 1, 64 * PAGE, format=True)


def test_one_damaged_superblock_does_not_matter_two_do(host, check):
    rng = np.random.default_rng(3)
    k, v, q = halves(rng, 1, 300, 64), halves(rng, 1, 300, 64), halves(rng, 1, 2, 64)
    host.store(k, v)
    host.reopen()
    host.drive = None
    with host.path.open("r+b") as file:
        file.write(bytes(512))
    host.reopen()
    check(host.attend(q, 300), q, k, v)
    host.drive = None
    superblocks(host.path, lambda contents: contents.__setitem__(slice(48, 52), b"\xff" * 4))
    with pytest.raises(RuntimeError, match="both copies of its superblock are damaged"):
        host.reopen()


def test_a_file_cut_short_is_refused(host):
    host.drive = None
    with host.path.open("r+b") as file:
        file.truncate(1 << 20)
    with pytest.raises(RuntimeError, match="shorter than its superblock says"):
        host.reopen()


def test_file_in_use_is_refused(tmp_path):
    first = Drive(tmp_path / "drive.kv", "fast", 1, 64 * PAGE)
    with pytest.raises(RuntimeError, match="another drive has it open"):
        Drive(tmp_path / "drive.kv", "fast", 1, 64 * PAGE)
    assert first.stats()["commands"] == 0


def test_folder_and_missing_folder_are_refused(tmp_path):
    with pytest.raises(RuntimeError, match="cannot use"):
        Drive(tmp_path, "fast", 1, 64 * PAGE)
    with pytest.raises(RuntimeError, match="No such file"):
        Drive(tmp_path / "missing" / "drive.kv", "fast", 1, 64 * PAGE)


@pytest.mark.parametrize("capacity", [0, PAGE - 1, 1 << 45])
def test_senseless_capacity_is_refused(tmp_path, capacity):
    with pytest.raises(RuntimeError, match="capacity"):
        Drive(tmp_path / "drive.kv", "fast", 1, capacity)
    assert not (tmp_path / "drive.kv").exists()


def test_unknown_engine_and_preset_are_refused(tmp_path):
    with pytest.raises(ValueError, match="unknown engine"):
        Drive(tmp_path / "drive.kv", "quantum")
    with pytest.raises(RuntimeError, match=r"unknown preset 'floppy': choose one of 970pro, "):
        Drive(tmp_path / "drive.kv", "fast", preset="floppy")
    assert not (tmp_path / "drive.kv").exists()


def test_a_session_of_another_drive_is_not_reused(tmp_path):
    rows = halves(np.random.default_rng(4), 1, 40, 64)
    with Emulator(tmp_path / "drive.kv", "fast") as target:
        Session(target).append(0, abi.KvKind.KEYS, 0, rows)
    with Emulator(tmp_path / "drive.kv", "fast") as target:
        assert Session(target).number == 2


@pytest.mark.parametrize("seed", range(4))
def test_a_damaged_file_is_refused_or_its_damage_is_found(host, seed):
    """Random bytes in the superblocks, the journal or the flash: no crash, and no row that was never stored."""
    rng = np.random.default_rng(seed)
    rows = halves(rng, 1, 32 * 300, 64)
    host.store(rows, rows)
    layout = host.drive.layout()
    host.drive = None
    starts = [0, 2 * PAGE, 2 * PAGE + layout["journal_half_bytes"], layout["spare_offset"], layout["unit_offset"]]
    for _ in range(25):
        at = int(rng.choice(starts)) + int(rng.integers(40_000) if rng.random() < 0.7 else rng.integers(128))
        with host.path.open("r+b") as file:
            file.seek(at)
            old = file.read(8)
            file.seek(at)
            file.write(rng.bytes(8))
        try:
            host.reopen()
            host.drive.check()
            for session in host.drive.sessions():
                stored = host.drive.rows(session, 0, 0, 0).tobytes()
                assert rows.tobytes().startswith(stored)
        except RuntimeError:
            pass
        host.drive = None
        with host.path.open("r+b") as file:
            file.seek(at)
            file.write(old)
    host.reopen()
    assert host.drive.rows(1, 0, 0, 0).tobytes() == rows.tobytes()
    assert host.drive.check() == []


def test_a_lost_transaction_before_others_is_not_passed_over(host):
    for number in range(3):
        host.append(np.full((1, 5, 64), number, np.float16), first_token=5 * number, options=1)
    host.drive.inject("power_cut")  # a clean close would add one
    host.drive = None
    found = transactions(host.path)
    assert len(found) == 4
    offset, pages = found[2]
    put(host.path, offset, bytes(pages * PAGE))
    with pytest.raises(RuntimeError, match="transaction 2 cannot be read"):
        host.reopen()
