"""A digest of files has all of their bytes in it, and a file that has not changed is read once."""

import json
import os
import time

import pytest

from kvdrive.identity import files
from kvdrive.identity.files import of_files
from kvdrive.weights import fingerprint


@pytest.fixture(autouse=True)
def cache(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    return tmp_path / "cache" / "kvdrive" / "digests.json"


@pytest.fixture
def pieces(monkeypatch):
    """The pieces that were read, by name and place; they are small."""
    read, before = [], files._of_piece
    monkeypatch.setattr(files, "_PIECE", 1000)
    monkeypatch.setattr(files, "_of_piece", lambda path, at: read.append((path.name, at)) or before(path, at))
    return read


def later():
    return time.time_ns() + 10_000_000_000


def write(path, size=2500):
    path.write_bytes(bytes(range(250)) * (size // 250))
    return path


@pytest.mark.parametrize("at", [0, 999, 1000, 1777, 2499])
def test_every_byte_counts(tmp_path, pieces, at):
    path = write(tmp_path / "a")
    before = of_files([path])
    with path.open("r+b") as file:
        file.seek(at)
        file.write(b"\xff")
    assert of_files([path]) != before


def test_a_byte_between_samples_of_a_large_checkpoint_counts(tmp_path):
    """With the size and times of the file as they were."""
    path = tmp_path / "model.safetensors"
    path.write_bytes(bytes(1 << 24))
    status, before = path.stat(), fingerprint.of_source(tmp_path)
    with path.open("r+b") as file:
        file.seek(5 * (1 << 24) // 256 - 9000)
        file.write(b"\1")
    os.utime(path, ns=(status.st_atime_ns, status.st_mtime_ns))
    assert fingerprint.of_source(tmp_path) != before


def test_a_file_that_has_not_changed_is_read_once(tmp_path, pieces):
    one, other = write(tmp_path / "a"), write(tmp_path / "b")
    found = of_files([one, other], now_ns=later)
    assert sorted(pieces) == [(name, at) for name in "ab" for at in (0, 1000, 2000)]
    assert of_files([one, other]) == found
    assert len(pieces) == 6
    assert of_files([one]) != found
    assert len(pieces) == 6


@pytest.mark.parametrize("how", ["in place", "its times set back", "replaced", "cut and filled", "a link"])
def test_a_changed_file_is_read_again(tmp_path, pieces, how):
    path, other = write(tmp_path / "a"), tmp_path / "other"
    status, before = path.stat(), of_files([path], now_ns=later)
    other.write_bytes(b"\0" * 2500)
    if how == "replaced":
        os.replace(other, path)
    elif how == "a link":
        path.unlink()
        path.symlink_to(other)
    else:
        with path.open("r+b") as file:
            if how == "cut and filled":
                file.truncate(0)
            file.write(b"\0" * 2500)
        if how == "its times set back":
            os.utime(path, ns=(status.st_atime_ns, status.st_mtime_ns))
    assert of_files([path], now_ns=later) != before
    assert len(pieces) == 6


def test_a_file_that_was_written_a_moment_ago_is_not_remembered(tmp_path, pieces, cache):
    """A write in the same tick of the file system's clock would not show."""
    path = write(tmp_path / "a")
    of_files([path], now_ns=lambda: path.stat().st_ctime_ns + 1_000_000_000)
    assert not cache.exists()


def test_a_file_that_changes_while_it_is_read_is_not_remembered(tmp_path, pieces, cache, monkeypatch):
    path, read = write(tmp_path / "a"), files._of_piece

    def of_piece(path, at):
        os.utime(path)
        return read(path, at)

    monkeypatch.setattr(files, "_of_piece", of_piece)
    of_files([path], now_ns=later)
    assert not cache.exists()


@pytest.mark.parametrize("content", ["", "{", "[1]", '{"a": 1}', "\0" * 9])
def test_a_damaged_memory_costs_time_only(tmp_path, pieces, cache, content):
    path = write(tmp_path / "a")
    found = of_files([path], now_ns=later)
    cache.write_text(content)
    assert of_files([path], now_ns=later) == found
    assert len(json.loads(cache.read_text())) == 1
    assert len(pieces) == 6


def test_names_and_the_number_of_threads(tmp_path, pieces):
    one = write(tmp_path / "a")
    found = of_files([one], threads=1)
    assert of_files([one], threads=8) == found
    assert of_files([one.rename(tmp_path / "b")]) != found
