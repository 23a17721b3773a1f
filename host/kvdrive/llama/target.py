"""The plugin's drive as a target: the process stores sessions of its own there, beside the plugin's."""

from __future__ import annotations

from dataclasses import fields

import numpy as np

from kvdrive import abi
from kvdrive.errors import TargetError
from kvdrive.llama.plugin import Plugin
from kvdrive.nvme.commands import Command
from kvdrive.nvme.completions import Completion
from kvdrive.targets.base import Target, TargetStats


def stats_of(plugin: Plugin) -> TargetStats:
    """The drive's counters; those of the host interface, which is this process, are zero. Raises TargetError."""
    found = plugin.statistics()
    if found is None:
        raise TargetError(plugin.reason("the drive of llama.cpp does not answer"))
    counted = found["drive"] | {"attention_jobs": found["drive"]["queries"]}
    return TargetStats(**{field.name: counted.get(field.name, 0) for field in fields(TargetStats)})


class PluginDrive(Target):
    """See Target. `place`: the drive's file or socket; `exclusive`: it is a file."""

    def __init__(self, plugin: Plugin, place: str, exclusive: bool) -> None:
        super().__init__()
        self.place, self.exclusive = place, exclusive
        self._plugin = plugin

    def submit(self, command: Command) -> Completion:
        status, result, data = self._plugin.execute(command.entry, command.data, command.room)
        if status < 0:
            raise TargetError(self._plugin.reason(f"the drive {self.place} does not answer"))
        cause = self._plugin.failure() if status == abi.NvmeStatus.INTERNAL_ERROR else ""
        return Completion(0, status, result, False, np.frombuffer(data, np.uint8), cause)

    def stats(self) -> TargetStats:
        return stats_of(self._plugin)

    def new_session(self) -> int:
        taken = self.sessions()
        return next(number for number in iter(super().new_session, None) if number not in taken)

    def sessions(self) -> set[int]:
        return self._plugin.sessions()

    def close(self) -> None:
        """See Target. The plugin closes the drive when the process ends."""
