"""A drive behind another: what is not changed is what the drive does."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import TypeVar

from kvdrive.nvme.commands import Bytes, Command
from kvdrive.nvme.completions import Completion
from kvdrive.targets.base import Target, TargetStats

Result = TypeVar("Result")


class WrappedTarget(Target):
    """Forwards everything to `drive`. Subclasses change `around`; closing it closes `drive`.

    Each call of the wrapper that executes commands is one call of the drive, so that the drive's fastest ones are used.
    """

    def __init__(self, drive: Target) -> None:
        super().__init__()
        self.drive = drive
        self.place = drive.place
        self.exclusive = drive.exclusive
        self.cache_bytes = drive.cache_bytes
        self.max_transfer_bytes = drive.max_transfer_bytes
        self.rows_at_once = drive.rows_at_once

    @property
    def speed(self) -> str:
        return self.drive.speed

    def submit(self, command: Command) -> Completion:
        return self.submit_many([command])[0]

    def submit_many(self, commands: Sequence[Command]) -> list[Completion]:
        return self.around(commands, partial(self.drive.submit_many, commands))

    def ask(self, query: Command, size: int) -> Bytes:
        return self.around([query], partial(self.drive.ask, query, size))

    def around(self, commands: Sequence[Command], call: Callable[[], Result]) -> Result:
        """Returns the result of `call`, in which the drive executes `commands`, and fetches the result of a query that
        is asked. Every command passes here.
        """
        return call()

    def stats(self) -> TargetStats:
        return self.drive.stats()

    def device_ns(self) -> int | None:
        """See Target: the modelled time is the drive's own."""
        return self.drive.device_ns()

    def keep_trace(self, events: int) -> bool:
        return self.drive.keep_trace(events)

    def trace(self) -> str:
        return self.drive.trace()

    def transfers(self) -> dict[str, dict[str, dict[str, int]]]:
        return self.drive.transfers()

    def sessions(self) -> set[int]:
        return self.drive.sessions()

    def contents(self) -> str:
        return self.drive.contents()

    def new_session(self) -> int:
        return self.drive.new_session()

    def close(self) -> None:
        self.drive.close()


class LentTarget(WrappedTarget):
    """A drive that is opened and closed elsewhere."""

    def close(self) -> None:
        """The drive stays open."""
