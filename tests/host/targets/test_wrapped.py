"""Drives behind another: everything asked of them is answered by the drive."""

import numpy as np
import pytest

from kvdrive import abi
from kvdrive.nvme.commands import flush, kv_append
from kvdrive.report.watched import WatchedTarget
from kvdrive.targets.cpu import CpuDrive
from kvdrive.targets.slowed import SlowedTarget


@pytest.fixture
def drive(tmp_path):
    with CpuDrive(tmp_path / "drive.kv", cache_bytes=1 << 20, capacity_bytes=1 << 26) as opened:
        yield opened


@pytest.mark.parametrize("wrap", [lambda drive: WatchedTarget(drive, 0, []), lambda drive: SlowedTarget(drive, 1)])
def test_a_wrapped_drive_is_what_the_drive_is(drive, wrap):
    wrapped = wrap(drive)
    for name in ("place", "exclusive", "cache_bytes", "max_transfer_bytes"):
        assert getattr(wrapped, name) == getattr(drive, name) != ""
    session = wrapped.new_session()
    assert session not in (drive.new_session(), wrapped.new_session())
    wrapped.execute(kv_append(session, 0, 0, abi.KvKind.KEYS, 0, 0, np.ones((1, 4, 64), np.float16)))
    assert [done.status for done in wrapped.submit_many([flush(), flush()])] == [0, 0]
    assert wrapped.sessions() == drive.sessions() == {session}
    assert wrapped.contents() == drive.contents() != ""
    assert wrapped.stats() == drive.stats()
    assert wrapped.device_ns() == drive.device_ns()
