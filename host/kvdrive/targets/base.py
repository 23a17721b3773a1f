"""The one interface between the runtime and a drive.

Called by `kvcache` in the process that runs the model. Commands of one sequence come from one thread, those of
different sequences may come from several at once. An implementer

1. executes commands of one thread in order, each to its end, and returns its completion whether it succeeded or not;
2. chooses the command identifier and returns the completion of that command, never of another;
3. keeps `command.data` unchanged and unused after `submit` returns;
4. raises `TargetError` when the drive cannot be reached any more, and for nothing that a completion can say;
5. counts in `stats` from opening on;
6. releases the drive in `close`, which may be called twice; commands after it raise `TargetError`.

`submit` and `submit_many` block until their commands have completed, and leave the interpreter to other threads while
the drive works: `queue.DriveQueue` makes them asynchronous.
"""

from __future__ import annotations

import itertools
from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from types import TracebackType

from kvdrive import abi
from kvdrive.nvme import wire
from kvdrive.nvme.commands import Bytes, Command, fetch_bytes
from kvdrive.nvme.completions import Completion

_SLOW_ENGINES = ("hls", "rtl")  # they simulate the kernels and may take seconds for a row


def rows_at_once(engine: str) -> int:
    """See Target: of a drive with this engine."""
    return 1 if engine in _SLOW_ENGINES else wire.MAX_ATTN_ROWS


@dataclass(frozen=True)
class TargetStats:
    """Counters since the drive was opened. Host bytes count commands (64) and completions (16) as well as data.

    `file_reads` and `file_bytes_read` are real: reads of the disk around the page cache, none where flash is modelled.
    """

    commands: int
    failed_commands: int
    host_bytes_in: int
    host_bytes_out: int
    pages_written: int
    pages_read: int
    staged_bytes_read: int
    attention_jobs: int
    file_reads: int = 0
    file_bytes_read: int = 0

    @property
    def kv_bytes_read(self) -> int:
        """Bytes of K and V that were read inside the drive: whole pages, and rows that were still in its memory."""
        return self.pages_read * abi.PAGE_BYTES + self.staged_bytes_read

    @property
    def host_bytes(self) -> int:
        """Bytes over the host interface, both ways."""
        return self.host_bytes_in + self.host_bytes_out


class Target(ABC):
    """A drive that executes commands. `max_transfer_bytes`: the most data that one of them may carry.

    `place`: the drive's file or address. `exclusive`: no other process can use the drive meanwhile. `cache_bytes`: of K
    and V that it keeps in this machine's memory once they were read. `speed`: what its times depend on; drives of the
    same speed share measured rates. `rows_at_once`: the most rows that one attention command may have; a command has
    to end before its queue gives it up.
    """

    max_transfer_bytes = 1 << 32
    rows_at_once = wire.MAX_ATTN_ROWS
    place = ""
    exclusive = False
    cache_bytes = 0

    @property
    def speed(self) -> str:
        return f"{type(self).__name__} {self.place}"

    def __init__(self) -> None:
        self._session_numbers = itertools.count(1)

    @abstractmethod
    def submit(self, command: Command) -> Completion:
        """Execute a command and return its completion, failed or not. Raises TargetError."""

    @abstractmethod
    def stats(self) -> TargetStats:
        """Counters since the drive was opened. Raises TargetError."""

    def device_ns(self) -> int | None:
        """Device time since the drive was opened in modelled ns; None where time is real. Raises TargetError."""
        return None

    def keep_trace(self, events: int) -> bool:
        """Keep the latest `events` of the drive's timeline from now on; False for a drive that has none."""
        return False

    def trace(self) -> str:
        """What was kept: a JSON object of Chrome trace events. Raises TargetError.

        Their us are modelled device time since the drive was opened, or, where time is real, those of
        time.perf_counter; `otherData` says which.
        """
        return '{"traceEvents": []}'

    def transfers(self) -> dict[str, dict[str, dict[str, int]]]:
        """Transfers of this process with the disk under the drive: by disk and kind (`_native.DiskQueue.counters`).

        Drives on one disk say the same. Empty where flash is modelled or the disk is another machine's. Raises
        TargetError.
        """
        return {}

    @abstractmethod
    def sessions(self) -> set[int]:
        """Numbers of all sessions on the drive. Raises TargetError."""

    def contents(self) -> str:
        """The sessions that the drive holds, in words; empty where there are none or where others use the drive too."""
        return ""

    @abstractmethod
    def close(self) -> None:
        """Release the drive."""

    def submit_many(self, commands: Sequence[Command]) -> list[Completion]:
        """Completions of commands that do not depend on each other: a target with queues keeps them all in flight."""
        return [self.submit(command) for command in commands]

    def execute(self, command: Command) -> Completion:
        """Execute a command that must succeed. Raises CommandError, TargetError."""
        return self.submit(command).check(command.opcode)

    def ask(self, query: Command, size: int) -> Bytes:
        """The result, of `size` bytes, of an ATTN_SUBMIT that must succeed. Raises CommandError, TargetError."""
        return self.execute(fetch_bytes(self.execute(query).result, size)).data

    def new_session(self) -> int:
        """A session number that this target has not given out before and that no session on the drive has."""
        return next(self._session_numbers)

    def __enter__(self) -> Target:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()
