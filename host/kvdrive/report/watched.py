"""Drives that record the wall time of each command."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass

from kvdrive.nvme.commands import Command
from kvdrive.nvme.completions import Completion
from kvdrive.nvme.errors import command_name
from kvdrive.targets.base import Target, TargetStats
from kvdrive.targets.group import DriveGroup


@dataclass(frozen=True)
class CommandSpan:
    """Commands that drive number `drive` executed together; `begin` and `end` are readings of time.perf_counter."""

    drive: int
    name: str
    begin: float
    end: float


class WatchedTarget(Target):
    """`inner`, with a span for each call of `submit` and `submit_many` in `spans`."""

    def __init__(self, inner: Target, number: int, spans: list[CommandSpan]) -> None:
        super().__init__()
        self._inner = inner
        self.place, self.exclusive = inner.place, inner.exclusive
        self.max_transfer_bytes = inner.max_transfer_bytes
        self._number = number
        self._spans = spans

    def submit(self, command: Command) -> Completion:
        """See Target."""
        begin = time.perf_counter()
        completion = self._inner.submit(command)
        self._ended([command], begin)
        return completion

    def submit_many(self, commands: Sequence[Command]) -> list[Completion]:
        """See Target."""
        begin = time.perf_counter()
        completions = self._inner.submit_many(commands)
        self._ended(commands, begin)
        return completions

    def stats(self) -> TargetStats:
        """See Target."""
        return self._inner.stats()

    def device_ns(self) -> int | None:
        """See Target."""
        return self._inner.device_ns()

    def keep_trace(self, events: int) -> bool:
        """See Target."""
        return self._inner.keep_trace(events)

    def trace(self) -> str:
        """See Target."""
        return self._inner.trace()

    def new_session(self) -> int:
        """See Target."""
        return self._inner.new_session()

    def sessions(self) -> set[int]:
        """See Target."""
        return self._inner.sessions()

    def close(self) -> None:
        """See Target."""
        self._inner.close()

    def _ended(self, commands: Sequence[Command], begin: float) -> None:
        if commands:
            name = command_name(commands[0].opcode)
            name = name if len(commands) == 1 else f"{len(commands)} x {name}"
            self._spans.append(CommandSpan(self._number, name, begin, time.perf_counter()))


def watch(drives: DriveGroup) -> tuple[DriveGroup, list[CommandSpan]]:
    """The same drives, and the list that their commands go to."""
    spans: list[CommandSpan] = []
    return DriveGroup([WatchedTarget(drive, number, spans) for number, drive in enumerate(drives.drives)]), spans
