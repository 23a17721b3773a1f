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
    """A drive backed by the file `path`: mounted with the sessions it holds, or made where there is none.

    `engine` is "hls" (the compiled kernels) or "fast" (the same bits, vectorised). `format` forgets what the drive
    holds; `capacity_bytes` of K and V and `preset` (whose flash is modelled: kvdrive._native.presets()) count for a
    new or formatted drive, the file is sparse until written. Raises TargetError when the file is something else or in
    use by another drive, or when there is no such preset.
    """

    def __init__(
        self,
        path: Path,
        engine: str = "hls",
        threads: int = 1,
        capacity_bytes: int = DEFAULT_CAPACITY,
        *,
        format: bool = False,
        preset: str = "",
    ) -> None:
        super().__init__()
        self._identifier = 0
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            self._drive: Drive | None = Drive(path, engine, threads, capacity_bytes, format=format, preset=preset)
        except (OSError, RuntimeError, ValueError) as error:
            raise TargetError(str(error)) from error

    def new_session(self) -> int:
        """See Target."""
        taken = set(self._open_drive().sessions())
        return next(number for number in iter(super().new_session, None) if number not in taken)

    def submit(self, command: Command) -> Completion:
        """See Target."""
        self._identifier = (self._identifier + 1) & 0xFFFF
        entry, data = self._open_drive().submit(command.encode(self._identifier), command.data)
        return decode(entry, data)

    def stats(self) -> TargetStats:
        """See Target."""
        return TargetStats(**self._open_drive().stats())

    def device_ns(self) -> int:
        """See Target."""
        return int(self._open_drive().flash_stats()["device_ns"])

    def close(self) -> None:
        """See Target."""
        self._drive = None

    def _open_drive(self) -> Drive:
        if self._drive is None:
            raise TargetError("the drive is closed: open a new Emulator")
        return self._drive
