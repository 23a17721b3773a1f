"""A drive made slower, for studies of how the runtime behaves on slow storage."""

from __future__ import annotations

import time
from collections.abc import Sequence

from kvdrive.errors import InputError
from kvdrive.nvme.commands import Command
from kvdrive.nvme.completions import Completion
from kvdrive.targets.base import Target, TargetStats


class Clock:
    """Seconds of this machine."""

    def now(self) -> float:
        """Seconds since some moment."""
        return time.perf_counter()

    def sleep(self, seconds: float) -> None:
        """Return `seconds` later."""
        time.sleep(seconds)


class SlowedTarget(Target):
    """`drive`, each of whose calls takes `factor` times as long by `clock`. Closing it closes `drive`.

    Raises InputError for a factor below 1.
    """

    def __init__(self, drive: Target, factor: float, clock: Clock | None = None) -> None:
        super().__init__()
        if factor < 1:
            raise InputError(f"a drive can be slowed down by a factor of 1 or more, not {factor:g}")
        self.drive = drive
        self.place = drive.place
        self.exclusive = drive.exclusive
        self.cache_bytes = drive.cache_bytes
        self.max_transfer_bytes = drive.max_transfer_bytes
        self._factor = factor
        self._clock = clock or Clock()

    def submit(self, command: Command) -> Completion:
        """See Target."""
        return self.submit_many([command])[0]

    def submit_many(self, commands: Sequence[Command]) -> list[Completion]:
        """See Target."""
        began = self._clock.now()
        done = self.drive.submit_many(commands)
        self._clock.sleep((self._factor - 1) * (self._clock.now() - began))
        return done

    def stats(self) -> TargetStats:
        """See Target."""
        return self.drive.stats()

    def device_ns(self) -> int | None:
        """See Target: the modelled time is the drive's own."""
        return self.drive.device_ns()

    def keep_trace(self, events: int) -> bool:
        """See Target."""
        return self.drive.keep_trace(events)

    def trace(self) -> str:
        """See Target."""
        return self.drive.trace()

    def sessions(self) -> set[int]:
        """See Target."""
        return self.drive.sessions()

    def contents(self) -> str:
        """See Target."""
        return self.drive.contents()

    def new_session(self) -> int:
        """See Target."""
        return self.drive.new_session()

    def close(self) -> None:
        """See Target."""
        self.drive.close()
