"""Drives that record the wall time of each command."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from kvdrive.nvme.commands import Command
from kvdrive.nvme.errors import command_name
from kvdrive.targets.base import Target
from kvdrive.targets.group import DriveGroup
from kvdrive.targets.wrapped import Result, WrappedTarget


@dataclass(frozen=True)
class CommandSpan:
    """Commands that drive number `drive` executed together; `begin` and `end` are readings of time.perf_counter.

    The span of a query that was asked (`Target.ask`) includes the fetch of its result.
    """

    drive: int
    name: str
    begin: float
    end: float


class WatchedTarget(WrappedTarget):
    """`drive`, with a span for each call that executes commands in `spans`, whether it succeeded or not."""

    def __init__(self, drive: Target, number: int, spans: list[CommandSpan]) -> None:
        super().__init__(drive)
        self._number = number
        self._spans = spans

    def around(self, commands: Sequence[Command], call: Callable[[], Result]) -> Result:
        begin = time.perf_counter()
        try:
            return call()
        finally:
            if commands:
                name = command_name(commands[0].opcode)
                name = name if len(commands) == 1 else f"{len(commands)} x {name}"
                self._spans.append(CommandSpan(self._number, name, begin, time.perf_counter()))


def watch(drives: DriveGroup) -> tuple[DriveGroup, list[CommandSpan]]:
    """The same drives, and the list that their commands go to."""
    spans: list[CommandSpan] = []
    return DriveGroup([WatchedTarget(drive, number, spans) for number, drive in enumerate(drives.drives)]), spans
