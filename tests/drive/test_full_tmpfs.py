# SPDX-License-Identifier: Apache-2.0
"""A file system in memory without a free page: stored data can be read and checked, and nothing is lost."""

import subprocess
from dataclasses import replace

import numpy as np
import pytest

from kvdrive import abi
from kvdrive.nvme.errors import CommandError
from kvdrive.targets.key_value import KeyValueNamespace
from kvdrive.targets.opening import DriveOptions, open_named


@pytest.fixture
def small_tmpfs(tmp_path):
    """A file system in memory of 16 MiB."""
    command = ["mount", "-t", "tmpfs", "-o", "size=16m", "tmpfs", str(tmp_path)]
    if subprocess.run(command, capture_output=True).returncode != 0:
        pytest.skip("mounting a file system needs root")
    yield tmp_path
    subprocess.run(["umount", "--lazy", str(tmp_path)], check=True)


def fill(folder):
    command = ["dd", "if=/dev/zero", f"of={folder / 'rest'}", "bs=4096"]
    assert "No space" in subprocess.run(command, capture_output=True, text=True).stderr


@pytest.mark.parametrize("preset", ["970pro", "mqsim-default", "plain"])
def test_values_can_be_read_while_nothing_can_be_written(small_tmpfs, preset):
    """A value that is durable, others that went to flash behind it but not to the file, and after a failed FLUSH."""
    options = DriveOptions(capacity_bytes=1 << 24, target="cpu" if preset == "plain" else "emulator")
    options = options if preset == "plain" else replace(options, preset=preset)
    with open_named(small_tmpfs / "drive.kv", options) as group:
        values = KeyValueNamespace(group.drives[0])
        kept = np.random.default_rng(1).bytes(50_000)
        values.store(b"kept", kept)
        values.flush()
        fill(small_tmpfs)
        assert values.retrieve(b"kept") == kept
        more = {b"more%d" % n: np.random.default_rng(n).bytes(300_000) for n in range(8)}
        for key, value in more.items():
            values.store(key, value)
        for key, value in (more | {b"kept": kept}).items():
            assert bytes(values.retrieve(key)) == value
        with pytest.raises(CommandError):
            values.flush()
        for key, value in (more | {b"kept": kept}).items():
            assert bytes(values.retrieve(key)) == value
        assert group.drives[0]._drive.check() == []
        (small_tmpfs / "rest").unlink()
        values.flush()
        for key, value in (more | {b"kept": kept}).items():
            assert bytes(values.retrieve(key)) == value
    with open_named(small_tmpfs / "drive.kv", DriveOptions()) as group:
        for key, value in (more | {b"kept": kept}).items():
            assert bytes(KeyValueNamespace(group.drives[0]).retrieve(key)) == value


def test_rows_can_be_read_and_attended_to_while_nothing_can_be_written(make_drive, small_tmpfs, check):
    """Rows of which a part is durable, and the rest was appended when the file system was full already."""
    host = make_drive(path=small_tmpfs / "drive.kv", preset="970pro", capacity_bytes=1 << 24, run_groups=1)
    k, v, q = (np.random.default_rng(n).standard_normal((1, 6400, 64)).astype(np.float16) for n in range(3))
    host.store(k[:, :3200], v[:, :3200])
    assert host.flush().status == abi.NvmeStatus.SUCCESS
    fill(small_tmpfs)
    host.store(k[:, 3200:], v[:, 3200:], first_token=3200)
    assert host.flush().status == abi.NvmeStatus.INTERNAL_ERROR
    assert host.drive.rows(1, 0, 0, 0).tobytes() == k.tobytes()
    assert host.drive.rows(1, 0, 0, 1).tobytes() == v.tobytes()
    check(host.attend(q[:, :2], 6400), q[:, :2], k, v)
    (small_tmpfs / "rest").unlink()
    assert host.flush().status == abi.NvmeStatus.SUCCESS
    host.reopen()
    assert host.drive.rows(1, 0, 0, 0).tobytes() == k.tobytes()
    assert host.drive.check() == []


def test_a_full_tmpfs_can_be_read_and_checked(make_drive, small_tmpfs):
    host = make_drive(path=small_tmpfs / "drive.kv", preset="mqsim-default", pages_per_block=2, capacity_bytes=1 << 24)
    rows = np.random.default_rng(1).standard_normal((1, 32 * 700, 64)).astype(np.float16)
    assert host.append(rows).status == abi.NvmeStatus.SUCCESS
    assert host.flush().status == abi.NvmeStatus.SUCCESS
    fill(small_tmpfs)
    assert host.drive.check() == []
    assert host.drive.rows(1, 0, 0, 0).tobytes() == rows.tobytes()
    host.reopen()
    assert host.drive.check() == []
    assert host.drive.rows(1, 0, 0, 0).tobytes() == rows.tobytes()
    (small_tmpfs / "rest").unlink()
    assert host.append(rows[:, :50], first_token=32 * 700).status == abi.NvmeStatus.SUCCESS
    assert host.flush().status == abi.NvmeStatus.SUCCESS
