# SPDX-License-Identifier: Apache-2.0
"""Queue pairs to a drive in this process."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from kvdrive import abi
from kvdrive._native import Drive, QueuePairs, Subsystem
from kvdrive.nvme.commands import Command
from kvdrive.nvme.completions import Completion, decode


class Host:
    """A drive, its subsystem, and queue pairs; `send` goes to I/O queue 1, `admin` to the admin queue."""

    def __init__(self, path: Path, **options: Any) -> None:
        self.drive = Drive(path, "fast", 1, 1 << 26)
        self.subsystem = Subsystem(self.drive, serial="TEST0001")
        self.pairs = QueuePairs(self.subsystem, 1 << 24, **({"timeout": 20.0} | options))

    def send(self, command: Command, queue: int = 1) -> Completion:
        return decode(*self.pairs.execute(queue, command.entry, command.data, command.room))

    def admin(self, command: Command) -> Completion:
        return self.send(command, 0)

    def ok(self, command: Command, queue: int = 1) -> Completion:
        completion = self.send(command, queue)
        assert completion.status == abi.NvmeStatus.SUCCESS, hex(completion.status)
        return completion

    def close(self) -> None:
        del self.pairs, self.subsystem, self.drive


@pytest.fixture
def make_nvme(tmp_path: Path) -> Callable[..., Host]:
    return lambda **options: Host(tmp_path / "drive.kv", **options)


@pytest.fixture
def nvme(make_nvme: Callable[..., Host]) -> Host:
    return make_nvme()
