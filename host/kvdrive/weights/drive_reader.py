"""Weights on a drive's namespace, read as any other command: many in flight, those that a layer waits for first."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from kvdrive.errors import TargetError
from kvdrive.nvme import values as commands
from kvdrive.nvme.commands import Command
from kvdrive.nvme.completions import Completion
from kvdrive.nvme.errors import ValueCommandError
from kvdrive.targets.base import Target
from kvdrive.targets.key_value import KeyValueNamespace
from kvdrive.weights.bundles import I64, U8, Array
from kvdrive.weights.drive_values import Place, check_complete, checked, place_of, read_manifest
from kvdrive.weights.file import DEPTH

_AHEAD = DEPTH // 8  # reads ahead in flight, as for files


@dataclass
class _Read:
    """A bundle on its way; `left`: parts that have not been sent, by their place in `to`, and their bytes.

    `joins`: commands that wait in device time for what was read, on modelled flash.
    """

    to: U8
    place: Place
    left: list[tuple[int, int]]
    ahead: bool
    joins: list[Command] = field(default_factory=list)
    done: threading.Event = field(default_factory=threading.Event)
    error: BaseException | None = None
    in_flight: int = 0


class DriveWeights:
    """The weights of the model with this configuration (`fingerprint.of_config`) on a drive; see `reader.Reader`.

    `on_close` is called when this is closed, and may close the drive. Raises InputError where the weights are missing
    or incomplete, TargetError.
    """

    def __init__(self, target: Target, config: str, on_close: Callable[[], None] = lambda: None) -> None:
        self.path = Path(target.place or "the drive")
        self.target, self._on_close = target, on_close
        values = KeyValueNamespace(target)
        self.manifest, self._table = read_manifest(values, config, str(self.path))
        check_complete(values, self.manifest, str(self.path))
        self._modelled = target.device_ns() is not None
        self._part = min(target.max_transfer_bytes, self.manifest.piece_bytes)
        self._reads: dict[int, _Read] = {}
        self._next = 0
        self._changed = threading.Condition()
        self._closed = False
        self.waited_ns = 0
        self._counters = {"reads": 0, "bytes": 0, "most_in_flight": 0, "busy_ns": 0, "cancelled": 0}
        self._thread = threading.Thread(target=self._serve, name="weights from a drive", daemon=True)
        self._thread.start()

    def start(self, array: Array, index: int, to: U8, *, ahead: bool = False) -> int:
        place = place_of(self.manifest, array, index)
        left = [(at, min(self._part, array.stride - at)) for at in range(0, array.stride, self._part)]
        with self._changed:
            self._require_open()
            self._next += 1
            self._reads[self._next] = _Read(to, place, left, ahead)
            self._changed.notify()
            return self._next

    def hurry(self, ticket: int) -> None:
        with self._changed:
            self._require_open()
            self._reads[ticket].ahead = False
            self._changed.notify()

    def cancel(self, ticket: int) -> bool:
        with self._changed:
            self._require_open()
            read = self._reads[ticket]
            if not read.left:
                return False
            self._counters["cancelled"] += len(read.left)
            read.left.clear()
            read.error = TargetError("the read was cancelled")
            if read.in_flight == 0:
                read.done.set()
            return True

    def has_ended(self, ticket: int) -> bool:
        self._require_open()
        return self._reads[ticket].done.is_set()

    def wait(self, ticket: int, array: Array, index: int) -> None:
        self._require_open()
        read, began = self._reads[ticket], time.perf_counter_ns()
        read.done.wait()
        self.waited_ns += time.perf_counter_ns() - began
        with self._changed:
            del self._reads[ticket]
        if read.joins and read.error is None:
            self.target.submit_many(read.joins)
        if read.error is not None:
            what = f"bundle {index} of {array.name} in {self.path}"
            raise TargetError(f"cannot read {what}: {read.error}") from read.error
        checked(read.to, array, self._table, index, self.manifest.piece_bytes, str(self.path))

    def read(self, array: Array, index: int, to: U8) -> None:
        self.wait(self.start(array, index, to), array, index)

    def read_rows(self, array: Array, indices: I64, to: U8, places: I64) -> None:
        wanted = list(zip(indices.tolist(), places.tolist(), strict=True))
        tickets = [self.start(array, index, to[place]) for index, place in wanted]
        errors = []
        for ticket, (index, _) in zip(tickets, wanted, strict=True):
            try:
                self.wait(ticket, array, index)
            except TargetError as error:  # the other reads still write into the memory
                errors.append(error)
        if errors:
            raise errors[0]

    def counters(self) -> dict[str, int]:
        """See Reader; on a drive with modelled flash also its device time so far (ns)."""
        device = self.target.device_ns() if not self._closed else None
        return self._counters | ({} if device is None else {"device_ns": device})

    @property
    def ahead_in_flight_bytes(self) -> int:
        return _AHEAD * self._part

    @property
    def around_cache(self) -> bool:
        """See Reader: a drive in this process may read through the page cache."""
        return False

    def close(self) -> None:
        self._counters = self.counters()
        with self._changed:
            self._closed = True
            self._changed.notify()
        if self._thread.is_alive():
            self._thread.join()
            self._on_close()

    def _require_open(self) -> None:
        if self._closed:
            raise TargetError(f"the weights in {self.path} are closed")

    def _serve(self) -> None:
        """Send what waits, until the weights are closed."""
        while batch := self._batch():
            began = time.perf_counter_ns()
            try:
                done: Sequence[Completion | BaseException] = self.target.submit_many([one for _, _, one in batch])
            except Exception as error:  # `wait` raises it
                done = [error] * len(batch)
            self._counters["busy_ns"] += time.perf_counter_ns() - began
            with self._changed:
                for (read, at, command), found in zip(batch, done, strict=True):
                    self._arrived(read, at, command, found)

    def _batch(self) -> list[tuple[_Read, int, Command]]:
        """The next commands, at most DEPTH: awaited reads, then prefetches. Empty at the end."""
        with self._changed:
            while not self._closed:
                waiting = [one for one in self._reads.values() if one.left]
                batch: list[tuple[_Read, int, Command]] = []
                for ahead, most in ((False, DEPTH), (True, _AHEAD)):
                    for read in (one for one in waiting if one.ahead == ahead):
                        while read.left and len(batch) < most:
                            batch.append(self._command(read, *read.left.pop(0)))
                if batch:
                    self._counters["reads"] += len(batch)
                    self._counters["most_in_flight"] = max(self._counters["most_in_flight"], len(batch))
                    return batch
                self._changed.wait()
        return []

    def _command(self, read: _Read, at: int, size: int) -> tuple[_Read, int, Command]:
        """The command for a part of a bundle. On modelled flash it runs beside other commands until `wait`."""
        read.in_flight += 1
        key, offset = read.place.key, read.place.offset + at
        if not self._modelled:
            return read, at, commands.retrieve(key, size, offset)
        read.joins.append(commands.retrieve(key, 0, offset, ahead=True))
        return read, at, commands.retrieve(key, size, offset, ahead=True, urgent=not read.ahead)

    def _arrived(self, read: _Read, at: int, command: Command, found: Completion | BaseException) -> None:
        """Put what a command has read into its place."""
        read.in_flight -= 1
        if isinstance(found, BaseException):
            read.error = found
        elif found.status:
            read.error = ValueCommandError("RETRIEVE", found.status, retry=found.retry, cause=found.cause)
        else:
            data = found.data[: command.room]
            read.to[at : at + data.size] = data
            self._counters["bytes"] += data.size
        if read.error is not None:
            read.left.clear()
        if not read.left and read.in_flight == 0:
            read.done.set()
