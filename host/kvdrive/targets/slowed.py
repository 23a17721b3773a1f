"""A drive made slower, for studies of how the runtime behaves on slow storage."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence

from kvdrive.errors import InputError
from kvdrive.nvme.commands import Command
from kvdrive.targets.base import Target
from kvdrive.targets.wrapped import Result, WrappedTarget


class Clock:
    """Seconds of this machine."""

    def now(self) -> float:
        """Seconds since some moment."""
        return time.perf_counter()

    def sleep(self, seconds: float) -> None:
        """Return `seconds` later."""
        time.sleep(seconds)


class SlowedTarget(WrappedTarget):
    """`drive`, each of whose calls takes `factor` times as long by `clock`.

    Raises InputError for a factor below 1.
    """

    def __init__(self, drive: Target, factor: float, clock: Clock | None = None) -> None:
        super().__init__(drive)
        if factor < 1:
            raise InputError(f"a drive can be slowed down by a factor of 1 or more, not {factor:g}")
        self._factor = factor
        self._clock = clock or Clock()

    @property
    def speed(self) -> str:
        return f"{self.drive.speed}, {self._factor:g} times slower"

    def around(self, commands: Sequence[Command], call: Callable[[], Result]) -> Result:
        began = self._clock.now()
        try:
            return call()
        finally:
            self._clock.sleep((self._factor - 1) * (self._clock.now() - began))
