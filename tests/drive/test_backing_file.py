"""The backing file: recreated on opening, never at the cost of somebody else's file."""

import struct

import pytest

from kvdrive._native import Drive

PAGE = 4096


def test_opening_recreates_an_empty_drive(tmp_path):
    path = tmp_path / "drive.kv"
    Drive(path, "fast", 1, 64 * PAGE)
    assert path.stat().st_size == 64 * PAGE
    with path.open("r+b") as file:
        file.seek(5 * PAGE)
        file.write(b"old contents")
    Drive(path, "fast", 1, 32 * PAGE)
    assert path.stat().st_size == 32 * PAGE
    assert b"old contents" not in path.read_bytes()


@pytest.mark.parametrize("contents", [b"x", b"somebody's thesis\n" * 500, bytes(10000)])
def test_foreign_file_is_refused_and_kept(tmp_path, contents):
    path = tmp_path / "thesis.txt"
    path.write_bytes(contents)
    with pytest.raises(RuntimeError, match=r"thesis\.txt.*holds something else"):
        Drive(path, "fast", 1, 64 * PAGE)
    assert path.read_bytes() == contents


def test_empty_file_is_taken(tmp_path):
    path = tmp_path / "drive.kv"
    path.touch()
    Drive(path, "fast", 1, 64 * PAGE)
    assert path.read_bytes()[:8] == b"kvdrive\n"


def test_other_version_is_refused_and_kept(tmp_path):
    path = tmp_path / "drive.kv"
    Drive(path, "fast", 1, 64 * PAGE)
    contents = bytearray(path.read_bytes())
    contents[8:12] = struct.pack("<I", 7)
    path.write_bytes(contents)
    with pytest.raises(RuntimeError, match="format 7"):
        Drive(path, "fast", 1, 64 * PAGE)
    assert path.read_bytes() == contents


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


@pytest.mark.parametrize("capacity", [0, PAGE, 2 * PAGE - 1, 1 << 45])
def test_senseless_capacity_is_refused(tmp_path, capacity):
    with pytest.raises(RuntimeError, match="capacity"):
        Drive(tmp_path / "drive.kv", "fast", 1, capacity)
    assert not (tmp_path / "drive.kv").exists()


def test_unknown_engine_is_refused(tmp_path):
    with pytest.raises(ValueError, match="unknown engine"):
        Drive(tmp_path / "drive.kv", "quantum")
