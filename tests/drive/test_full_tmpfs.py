# SPDX-License-Identifier: Apache-2.0
"""A file system in memory without a free page: stored data can be read and checked, and nothing is lost."""

import subprocess

import numpy as np
import pytest

from kvdrive import abi


@pytest.fixture
def small_tmpfs(tmp_path):
    """A file system in memory of 16 MiB."""
    command = ["mount", "-t", "tmpfs", "-o", "size=16m", "tmpfs", str(tmp_path)]
    if subprocess.run(command, capture_output=True).returncode != 0:
        pytest.skip("mounting a file system needs root")
    yield tmp_path
    subprocess.run(["umount", "--lazy", str(tmp_path)], check=True)


def test_a_full_tmpfs_can_be_read_and_checked(make_drive, small_tmpfs):
    host = make_drive(path=small_tmpfs / "drive.kv", preset="mqsim-default", pages_per_block=2, capacity_bytes=1 << 24)
    rows = np.random.default_rng(1).standard_normal((1, 32 * 700, 64)).astype(np.float16)
    assert host.append(rows).status == abi.NvmeStatus.SUCCESS
    assert host.flush().status == abi.NvmeStatus.SUCCESS
    fill = ["dd", "if=/dev/zero", f"of={small_tmpfs / 'rest'}", "bs=4096"]
    assert "No space" in subprocess.run(fill, capture_output=True, text=True).stderr
    assert host.drive.check() == []
    assert host.drive.rows(1, 0, 0, 0).tobytes() == rows.tobytes()
    host.reopen()
    assert host.drive.check() == []
    assert host.drive.rows(1, 0, 0, 0).tobytes() == rows.tobytes()
    (small_tmpfs / "rest").unlink()
    assert host.append(rows[:, :50], first_token=32 * 700).status == abi.NvmeStatus.SUCCESS
    assert host.flush().status == abi.NvmeStatus.SUCCESS
