"""The software drive in this process."""

from __future__ import annotations

from pathlib import Path

from kvdrive._native import Drive
from kvdrive.errors import TargetError
from kvdrive.nvme.commands import Command
from kvdrive.nvme.completions import Completion, decode
from kvdrive.targets.base import Target, TargetStats

DEFAULT_CAPACITY = 1 << 30


class Emulator(Target):
    """A drive backed by the file `path`, which is recreated empty (what it held before is gone).

    `engine` is "hls" (the compiled kernels) or "fast" (the same bits, vectorised); `capacity_bytes` the size of the
    file, sparse until written. Raises TargetError when the file is something else or in use by another drive.
    """

    def __init__(
        self, path: Path, engine: str = "hls", threads: int = 1, capacity_bytes: int = DEFAULT_CAPACITY
    ) -> None:
        super().__init__()
        self._identifier = 0
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            self._drive: Drive | None = Drive(path, engine, threads, capacity_bytes)
        except (OSError, RuntimeError) as error:
            raise TargetError(str(error)) from error

    def submit(self, command: Command) -> Completion:
        """See Target."""
        self._identifier = (self._identifier + 1) & 0xFFFF
        entry, data = self._open_drive().submit(command.encode(self._identifier), command.data)
        return decode(entry, data)

    def stats(self) -> TargetStats:
        """See Target."""
        return TargetStats(**self._open_drive().stats())

    def close(self) -> None:
        """See Target."""
        self._drive = None

    def _open_drive(self) -> Drive:
        if self._drive is None:
            raise TargetError("the drive is closed: open a new Emulator")
        return self._drive
