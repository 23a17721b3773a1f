"""The common part of targets whose drive is in another process. They get counters and sessions by commands."""

from __future__ import annotations

import secrets
from abc import abstractmethod
from dataclasses import fields
from typing import Any

import numpy as np
from numpy.typing import NDArray

from kvdrive import abi
from kvdrive.errors import TargetError
from kvdrive.nvme import admin, wire
from kvdrive.nvme.commands import Command
from kvdrive.nvme.completions import Completion
from kvdrive.targets.base import Target, TargetStats, rows_at_once

_STATISTICS_BYTES = 512
_HEALTH = ("spare_percent", "used_percent", "media_errors", "error_entries")
_SESSIONS_AT_ONCE = 1 << 16  # bytes of the log of sessions that one command reads at most


class ServedDrive(Target):
    """A drive that is reached by commands only. Subclasses call `_begin` when they can send admin commands."""

    @abstractmethod
    def admin(self, command: Command) -> Completion:
        """Execute an admin command and return its completion, failed or not. Raises TargetError."""

    def _begin(self, place: str) -> None:
        """Check the drive's version and start the counters. Raises TargetError."""
        self.place = place
        identity = admin.decode(wire.IdentifyController, self._ask(admin.identify(wire.Cns.CNS_CONTROLLER)))
        check_identity(identity, place)
        self.max_transfer_bytes = abi.PAGE_BYTES << identity["mdts"] if identity["mdts"] else 1 << 30
        self.rows_at_once = rows_at_once(identity["engine"])
        self._device_times = bool(identity["preset"]) and identity["preset"] != "plain"
        self._before = self._statistics()

    def stats(self) -> TargetStats:
        """See Target. Counted since this target was opened, over all hosts of the drive."""
        now = self._statistics()
        names = [field.name for field in fields(TargetStats) if field.name in now]
        return TargetStats(**{name: now[name] - self._before[name] for name in names})

    def counters(self) -> dict[str, Any]:
        """What the drive has counted since it was made, and its health. Raises TargetError."""
        found = self._statistics()
        del found["version"]
        page = self._ask(admin.get_log_page(wire.LogPage.LOG_SMART, _STATISTICS_BYTES, retain=True))
        smart = admin.decode(wire.SmartLog, page)
        return found | {name: smart[name] for name in _HEALTH}

    def device_ns(self) -> int | None:
        return self._statistics()["device_ns"] - self._before["device_ns"] if self._device_times else None

    def new_session(self) -> int:
        """See Target. Numbers are random, because other hosts of the drive choose theirs at the same time."""
        taken = self.sessions()
        while True:
            number = secrets.randbelow((1 << 32) - 1) + 1
            if number not in taken:
                return number

    def sessions(self) -> set[int]:
        page = self._session_page(0)
        numbers = page[1:].tolist()
        while len(numbers) < page[0]:
            numbers += self._session_page(4 * (len(numbers) + 1)).tolist()
        return set(numbers[: page[0]])

    def _session_page(self, offset: int) -> NDArray[np.uint32]:
        """Part of the log of sessions, from byte `offset` on. The log is the count, the session numbers, then zeros."""
        page = admin.get_log_page(wire.LogPage.LOG_SESSIONS, _SESSIONS_AT_ONCE, offset=offset)
        return self._ask(page).view(np.uint32)

    def _statistics(self) -> dict[str, Any]:
        page = self._ask(admin.get_log_page(wire.LogPage.LOG_STATISTICS, _STATISTICS_BYTES))
        return admin.decode(wire.DriveStatistics, page)

    def _ask(self, command: Command) -> NDArray[np.uint8]:
        done = self.admin(command)
        if done.status:
            raise TargetError(f"the drive refused admin command {command.opcode:#x} with status {done.status:#x}")
        return done.data


def check_identity(identity: dict[str, Any], place: str) -> None:
    """Raises TargetError for a controller that does not execute this version's commands; the message says why."""
    model = identity["mn"] or "an unnamed model"
    if not identity["engine"]:
        raise TargetError(
            f"{place} is {model}, which has no attention engine: its Identify data lack kvdrive's vendor fields. "
            "Serve a drive with `kvdrive drive serve`"
        )
    version = identity["abi_version"]
    if version != abi.ABI_VERSION:
        raise TargetError(
            f"{place} speaks version {version} of kvdrive's commands and this host version {abi.ABI_VERSION}: "
            "install the same kvdrive on both machines"
        )
