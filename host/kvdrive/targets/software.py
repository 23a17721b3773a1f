"""A software drive in this process: commands go through queue pairs in shared memory."""

from __future__ import annotations

import errno
import os
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from kvdrive import abi, private
from kvdrive._native import Drive, QueuePairs, Subsystem
from kvdrive.errors import TargetError
from kvdrive.nvme.commands import Bytes, Command
from kvdrive.nvme.completions import Completion
from kvdrive.targets import rings
from kvdrive.targets.base import Target, TargetStats, rows_at_once

DEFAULT_CAPACITY = 1 << 30


class SoftwareDrive(Target):
    """The common part of targets in this process. `options`: those of kvdrive._native.Drive. Raises TargetError."""

    exclusive = True

    def __init__(self, path: Path, engine: str, threads: int, capacity_bytes: int, **options: Any) -> None:
        super().__init__()
        self.place = str(path)
        self.rows_at_once = rows_at_once(engine)
        self._computes = f"{engine}, {threads} threads"
        try:
            private.make_folder(path.parent)
            self._drive: Drive | None = Drive(path, engine, threads, capacity_bytes, **options)
            self._pairs = QueuePairs(Subsystem(self._drive), rings.SEGMENT_BYTES, entries=rings.QUEUE_ENTRIES)
        except (OSError, RuntimeError, ValueError) as error:
            raise TargetError(str(error)) from error
        private.warn_of_others(path)

    @property
    def speed(self) -> str:
        """See Target. Drives of one kind in files on one disk are equally fast."""
        cached = f", {self.cache_bytes} bytes cached" if self.cache_bytes else ""
        return f"{type(self).__name__}, {self._computes}, disk {Path(self.place).stat().st_dev}{cached}"

    def new_session(self) -> int:
        taken = self.sessions()
        return next(number for number in iter(super().new_session, None) if number not in taken)

    def sessions(self) -> set[int]:
        return set(self._open_drive().sessions())

    def submit(self, command: Command) -> Completion:
        return self.submit_many([command])[0]

    def submit_many(self, commands: Sequence[Command]) -> list[Completion]:
        drive = self._open_drive()
        done = rings.exchange(self._pairs, commands)
        failed = any(one.status == abi.NvmeStatus.INTERNAL_ERROR for one in done)
        return self._explained(done, drive.failure()) if failed else done

    def ask(self, query: Command, size: int) -> Bytes:
        opcode, done = self._asked(query, size)
        return done.check(opcode).data

    def _asked(self, query: Command, size: int) -> tuple[int, Completion]:
        """Opcode and completion of `ask`. An error of `ask` must not keep the drive: it is open as long as a frame of a
        traceback has it.
        """
        drive = self._open_drive()
        opcode, done = rings.ask(self._pairs, query, size)
        if done.status == abi.NvmeStatus.INTERNAL_ERROR:
            [done] = self._explained([done], drive.failure())
        return opcode, done

    def stats(self) -> TargetStats:
        return TargetStats(**self._open_drive().stats())

    def notices(self) -> list[str]:
        """What the user should know about the engine, such as a card that was reset. Raises TargetError."""
        return self._open_drive().engine_notices()

    def contents(self) -> str:
        """The drive's sessions as a text, such as "3 sessions (12 MiB)"; empty without sessions. Raises TargetError."""
        drive = self._open_drive()
        count, stats = len(drive.sessions()), drive.flash_stats()
        size = stats["groups_live"] * abi.PAGE_BYTES + stats["staged_bytes"]
        return f"{count} session{'s' if count != 1 else ''} ({size / 2**20:.1f} MiB)" if count else ""

    def _explained(self, done: list[Completion], failure: str) -> list[Completion]:
        """Completions of which those that failed for a reason of the drive's file say so, with the file's path."""
        if not failure:
            return done
        cause = f"the file {self.place}: {failure}"
        if os.strerror(errno.ENOSPC) in failure or os.strerror(errno.EFBIG) in failure:
            cause += f" (disk of {Path(self.place).parent}); what the drive held before is still there: free some space"
        return [replace(one, cause=cause) if one.status == abi.NvmeStatus.INTERNAL_ERROR else one for one in done]

    def close(self) -> None:
        if self._drive is not None:
            del self._pairs
        self._drive = None

    def _open_drive(self) -> Drive:
        if self._drive is None:
            raise TargetError("the drive is closed: open it again")
        return self._drive
