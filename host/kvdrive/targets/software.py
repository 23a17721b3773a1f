"""A software drive in this process: commands go through queue pairs in shared memory."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from kvdrive._native import Drive, QueuePairs, RingError, Subsystem
from kvdrive.errors import TargetError
from kvdrive.nvme.commands import Command
from kvdrive.nvme.completions import Completion, decode
from kvdrive.targets.base import Target, TargetStats

DEFAULT_CAPACITY = 1 << 30
_SEGMENT_BYTES = 1 << 32  # of addresses; memory is taken as it is used
_QUEUE_ENTRIES = 1024
_MOST_IN_FLIGHT = 32  # commands of one submit_many
_MOST_BYTES_IN_FLIGHT = 1 << 29
_IO_QUEUE = 1


class SoftwareDrive(Target):
    """What the targets of this process share. `options`: those of kvdrive._native.Drive. Raises TargetError."""

    def __init__(self, path: Path, engine: str, threads: int, capacity_bytes: int, **options: Any) -> None:
        super().__init__()
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            self._drive: Drive | None = Drive(path, engine, threads, capacity_bytes, **options)
            self._pairs = QueuePairs(Subsystem(self._drive), _SEGMENT_BYTES, entries=_QUEUE_ENTRIES)
        except (OSError, RuntimeError, ValueError) as error:
            raise TargetError(str(error)) from error

    def new_session(self) -> int:
        """See Target."""
        taken = set(self._open_drive().sessions())
        return next(number for number in iter(super().new_session, None) if number not in taken)

    def submit(self, command: Command) -> Completion:
        """See Target."""
        return self.submit_many([command])[0]

    def submit_many(self, commands: Sequence[Command]) -> list[Completion]:
        """See Target."""
        self._open_drive()
        completions: list[Completion] = []
        tickets: list[tuple[int, int]] = []  # with the bytes that they hold
        held = 0
        try:
            for command in commands:
                size = max(command.room, 0 if command.data is None else command.data.size)
                while tickets and (len(tickets) == _MOST_IN_FLIGHT or held + size > _MOST_BYTES_IN_FLIGHT):
                    ticket, freed = tickets.pop(0)
                    held -= freed
                    completions.append(decode(*self._pairs.wait(ticket)))
                tickets.append((self._pairs.submit(_IO_QUEUE, command.entry, command.data, command.room), size))
                held += size
            completions += [decode(*self._pairs.wait(ticket)) for ticket, _ in tickets]
        except (RingError, ValueError) as error:
            raise TargetError(str(error)) from error
        return completions

    def stats(self) -> TargetStats:
        """See Target."""
        return TargetStats(**self._open_drive().stats())

    def close(self) -> None:
        """See Target."""
        if self._drive is not None:
            del self._pairs
        self._drive = None

    def _open_drive(self) -> Drive:
        if self._drive is None:
            raise TargetError("the drive is closed: open it again")
        return self._drive
