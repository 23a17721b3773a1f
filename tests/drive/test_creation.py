# SPDX-License-Identifier: Apache-2.0
"""A drive appears under its name only when it is whole. SIGKILL at every system call of what makes one."""

from __future__ import annotations

import stat
import subprocess
import sys

import killed
import numpy as np
import pytest
from disk import put, superblock, transactions
from pairs import some_quick

from kvdrive._native import Drive
from kvdrive.cli.drive_salvage import recover
from kvdrive.errors import InputError
from kvdrive.private import UNFINISHED

CAPACITY = 1 << 22
# Kills of long work, evenly spread; all of them in the slow tests.
MOST = pytest.mark.parametrize("most", some_quick([15, 1 << 30], [15]))


def open_drive(path, **options):
    return Drive(path, "fast", 1, CAPACITY, preset="mqsim-default", **options)


def sessions(path, **options):
    """What a sound drive holds; it is closed again."""
    drive = Drive(path, "fast", 1, **options)
    assert drive.check() == []
    return drive.sessions()


def kills(work, begin, most=1 << 30):
    try:
        yield from killed.at_every_call(work, begin, most)
    except killed.NoTracingError:
        pytest.skip("this machine lets no process trace its child")


def test_a_kill_at_every_call_while_a_drive_is_made(memory_folder):
    path = memory_folder / "drive.kv"

    def begin():
        for one in memory_folder.iterdir():
            one.unlink()

    seen = set()
    for at in kills(lambda: open_drive(path), begin):
        names = {one.name for one in memory_folder.iterdir()}
        assert names <= {"drive.kv", "drive.kv" + UNFINISHED}
        seen.add(frozenset(names))
        if path.exists():  # whole, and nothing else has to be known to open it
            assert Drive(path, "fast", 1, read_only=True).check() == []
        assert open_drive(path).check() == [], at
        assert {one.name for one in memory_folder.iterdir()} == {"drive.kv"}
    assert {frozenset(), frozenset(["drive.kv"]), frozenset(["drive.kv" + UNFINISHED])} <= seen


def test_a_kill_at_every_call_while_a_drive_is_formatted_leaves_the_old_or_the_new(memory_folder, make_drive):
    path = memory_folder / "drive.kv"
    host = make_drive(path=memory_folder / "old.kv", capacity_bytes=CAPACITY, preset="mqsim-default")
    rows = np.ones((1, 40, 64), np.float16)
    host.store(rows, rows)
    host.drive = None

    def begin():
        path.with_name(path.name + UNFINISHED).unlink(missing_ok=True)
        subprocess.run(["cp", "--sparse=always", memory_folder / "old.kv", path], check=True)

    found = set()
    for _ in kills(lambda: open_drive(path, format=True), begin):
        found.add(tuple(sessions(path)))
        assert not path.with_name(path.name + UNFINISHED).exists()
    assert found == {(1,), ()}


def damaged_drive(make_drive, folder):
    options = {"preset": "mqsim-default", "pages_per_block": 2, "run_groups": 1}
    host = make_drive(path=folder / "damaged.kv", capacity_bytes=4096 * 4000, **options)
    rows = np.ones((2, 32 * 300, 64), np.float16)
    host.store(rows, rows)
    assert host.flush().status == 0
    host.drive.inject("power_cut")
    host.drive = None
    for offset, pages in transactions(host.path):
        put(host.path, offset, bytes(pages * 4096))
    return host.path


@MOST
def test_a_kill_at_every_call_while_a_drive_is_recovered(memory_folder, make_drive, most):
    old, new = damaged_drive(make_drive, memory_folder), memory_folder / "new.kv"

    def begin():
        new.unlink(missing_ok=True)
        new.with_name(new.name + UNFINISHED).unlink(missing_ok=True)

    whole = 0
    for at in kills(lambda: recover(old, new), begin, most):
        if not new.exists():
            recover(old, new)  # the leftover is in nobody's way
        else:
            whole += at == 0
        assert sessions(new) == [1]
        assert sorted(one.name for one in memory_folder.iterdir()) == ["damaged.kv", "new.kv"]
    assert whole == 1


@MOST
def test_a_kill_at_every_call_while_a_drive_is_repaired(memory_folder, make_drive, most):
    old, path = damaged_drive(make_drive, memory_folder), memory_folder / "drive.kv"

    def begin():
        subprocess.run(["cp", "--sparse=always", old, path], check=True)

    for _ in kills(lambda: Drive(path, "fast", 1, salvage=True), begin, most):
        assert sessions(path, salvage=True) == [1]


def test_recovering_never_replaces_a_file(memory_folder, make_drive):
    old = damaged_drive(make_drive, memory_folder)
    (memory_folder / "mine").write_text("thesis")
    with pytest.raises(InputError, match="exists: choose another path"):
        recover(old, memory_folder / "mine")
    assert (memory_folder / "mine").read_text() == "thesis"


def test_a_leftover_beside_a_whole_drive_is_removed(tmp_path):
    open_drive(tmp_path / "drive.kv")
    beside = tmp_path / ("drive.kv" + UNFINISHED)
    beside.write_bytes(b"begun, never finished")
    assert Drive(tmp_path / "drive.kv", "fast", 1, read_only=True).check() == []
    assert beside.exists()  # who only reads changes nothing
    assert open_drive(tmp_path / "drive.kv").check() == []
    assert not beside.exists()


def test_a_drive_is_made_where_a_link_points(tmp_path):
    (tmp_path / "disk").mkdir()
    (tmp_path / "link.kv").symlink_to("disk/drive.kv")
    open_drive(tmp_path / "link.kv")
    open_drive(tmp_path / "link.kv", format=True)
    assert (tmp_path / "link.kv").is_symlink()
    assert [one.name for one in (tmp_path / "disk").iterdir()] == ["drive.kv"]


def test_two_processes_make_one_drive(tmp_path):
    code = "import sys; from kvdrive._native import Drive; drive = Drive(sys.argv[1], 'fast', 1, 1 << 22); input()"
    command = [sys.executable, "-c", code, str(tmp_path / "drive.kv")]
    both = [subprocess.Popen(command, stdin=subprocess.PIPE, stderr=subprocess.PIPE, text=True) for _ in range(2)]
    said = [one.communicate("\n")[1] for one in both]
    for text in said:
        assert text == "" or "another" in text
    assert "" in said
    assert [one.name for one in tmp_path.iterdir()] == ["drive.kv"]
    assert Drive(tmp_path / "drive.kv", "fast", 1).check() == []


def test_no_room_for_a_new_drive_keeps_the_old_one(tmp_path):
    path = tmp_path / "drive.kv"
    open_drive(path)
    before = superblock(path)["salt"]
    with pytest.raises(RuntimeError, match="capacity"):
        Drive(path, "fast", 1, 0, format=True)
    assert superblock(path)["salt"] == before
    assert sorted(one.name for one in tmp_path.iterdir()) == ["drive.kv"]


def test_files_of_drives_are_their_owners_alone(tmp_path):
    code = """
import os, sys
from kvdrive._native import Drive
os.umask(0)
Drive(sys.argv[1], "fast", 1, 1 << 22, format=len(sys.argv) > 2)
"""
    for arguments in ([], ["again"]):
        subprocess.run([sys.executable, "-c", code, tmp_path / "drive.kv", *arguments], check=True)
        assert stat.S_IMODE((tmp_path / "drive.kv").stat().st_mode) == 0o600
        (tmp_path / "drive.kv").chmod(0o644)
