"""Drives by options: existing ones are mounted, formatting must be requested, temporary ones end with their process."""

import os
import shutil
import subprocess
import sys

import numpy as np
import pytest
from typer.testing import CliRunner

from kvdrive import abi
from kvdrive.cli.main import app
from kvdrive.errors import InputError
from kvdrive.kvcache.session import Session
from kvdrive.targets.emulator import Emulator
from kvdrive.targets.opening import DriveOptions, drive_folder, open_drives, require_space
from kvdrive.targets.temporary import temporary_folder

SMALL = 1 << 26


def options(folder, **changes):
    return DriveOptions(**({"folder": folder, "capacity_bytes": SMALL} | changes))


def leave_a_session(folder, **changes):
    """Leave a session on a drive, as a killed process does. Returns the session's number."""
    with open_drives(options(folder, **changes)) as group:
        session = Session(group.drives[0])
        for kind in abi.KvKind:
            session.append(0, kind, 0, np.ones((1, 64, 64), np.float16))
        return session.number


def opened(folder, **changes):
    """Sessions of the first drive, and the sentences passed to `say`."""
    said = []
    with open_drives(options(folder, **changes), said.append) as group:
        return group.drives[0]._open_drive().sessions(), said


@pytest.mark.parametrize("target", ["emulator", "cpu"])
def test_an_existing_drive_is_mounted_and_said(tmp_path, target):
    number = leave_a_session(tmp_path, target=target)
    sessions, said = opened(tmp_path, target=target)
    assert sessions == [number]
    (sentence,) = said
    assert sentence.startswith(f"{tmp_path / 'drive.kv'} holds 1 session (")
    assert sentence.endswith("which this run does not use")


def test_format_forgets_and_has_nothing_to_say(tmp_path):
    leave_a_session(tmp_path)
    assert opened(tmp_path, format=True) == ([], [])
    assert opened(tmp_path) == ([], [])


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"target": "cpu"}, "preset 970pro, not plain"),
        ({"preset": "zn540"}, "preset 970pro, not zn540"),
        ({"needed_bytes": 2 * SMALL}, "made for 64 MiB of K and V, this run takes up to 128 MiB"),
    ],
)
def test_a_drive_that_is_not_as_wanted_stays_as_it_is(tmp_path, changes, message):
    number = leave_a_session(tmp_path)
    before = (tmp_path / "drive.kv").stat().st_size
    with pytest.raises(InputError, match=message) as refused, open_drives(options(tmp_path, **changes)):
        pass
    assert "`format`" in str(refused.value)
    assert (tmp_path / "drive.kv").stat().st_size == before
    assert opened(tmp_path)[0] == [number]


def test_a_drive_of_the_cpu_target_is_no_emulator(tmp_path):
    leave_a_session(tmp_path, target="cpu")
    with pytest.raises(InputError, match="take `target=cpu`"), open_drives(options(tmp_path)):
        pass


def test_generate_keeps_what_a_drive_holds(checkpoint, tmp_path):
    number = leave_a_session(tmp_path)
    command = ["generate", "--model", str(checkpoint), "--threads", "1", "--prompt", "The drive", "--json"]
    arguments = ["--max-new-tokens", "2", "--drive", str(tmp_path)]
    result = CliRunner().invoke(app, command + arguments)
    assert result.exit_code == 0, result.output
    assert "holds 1 session" in result.stderr
    with Emulator(tmp_path / "drive.kv", "fast") as drive:
        assert drive._open_drive().sessions() == [number]
    assert CliRunner().invoke(app, [*command, *arguments, "--erase"]).exit_code == 0
    with Emulator(tmp_path / "drive.kv", "fast") as drive:
        assert drive._open_drive().sessions() == []


def test_a_folder_that_cannot_be_is_one_sentence(tmp_path):
    (tmp_path / "file").touch()
    for folder in (tmp_path / "file", tmp_path / "file" / "inside"):
        with pytest.raises(InputError, match=f"cannot keep drives in {folder}: "), drive_folder(folder):
            pass


def test_space_is_compared_before_the_work(tmp_path):
    free = shutil.disk_usage(tmp_path).free
    require_space(options(tmp_path / "not" / "there", needed_bytes=free // 2))
    with pytest.raises(InputError, match=f"disk of {tmp_path} has .* left"):
        require_space(options(tmp_path, needed_bytes=2 * free))


KILLED = """
import os, signal, sys
from pathlib import Path
from kvdrive.targets.temporary import temporary_folder
with temporary_folder(Path(sys.argv[1])) as folder:
    (folder / "drive.kv").write_text("K and V")
    os.kill(os.getpid(), signal.SIGKILL)
"""


def test_temporary_drives_of_killed_processes_go_at_the_next_start(tmp_path):
    with temporary_folder(tmp_path) as living:
        subprocess.run([sys.executable, "-c", KILLED, str(tmp_path)], timeout=60)
        (abandoned,) = (folder for folder in tmp_path.iterdir() if folder != living)
        assert (abandoned / "drive.kv").exists()
        with temporary_folder(tmp_path) as folder:
            assert sorted(tmp_path.iterdir()) == sorted([living, folder])
    assert os.listdir(tmp_path) == []
