"""A drive that another process serves: on any machine over NVMe/TCP, or on this one through rings in shared memory."""

from __future__ import annotations

import queue
from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

import numpy as np

from kvdrive import abi
from kvdrive._native import QueuePairs
from kvdrive.errors import TargetError
from kvdrive.nvme.commands import Command
from kvdrive.nvme.completions import Completion
from kvdrive.nvme.fabrics.association import Association, RemoteOptions
from kvdrive.nvme.fabrics.connection import ConnectionLostError, QueueConnection
from kvdrive.targets import rings
from kvdrive.targets.served import ServedDrive

_ADMIN_QUEUE = 0
_QUERIES_REMEMBERED = 512


class SocketDrive(ServedDrive):
    """A drive that a process of this machine serves at the Unix socket `path`. Raises TargetError."""

    def __init__(self, path: Path) -> None:
        super().__init__()
        try:
            self._pairs: QueuePairs | None = QueuePairs.connect(path, rings.SEGMENT_BYTES, entries=rings.QUEUE_ENTRIES)
        except (OSError, RuntimeError) as error:
            raise TargetError(f"{path}: {error}") from error
        self._begin(str(path))

    def admin(self, command: Command) -> Completion:
        return rings.exchange(self._open_pairs(), [command], _ADMIN_QUEUE)[0]

    def submit(self, command: Command) -> Completion:
        return self.submit_many([command])[0]

    def submit_many(self, commands: Sequence[Command]) -> list[Completion]:
        return rings.exchange(self._open_pairs(), commands)

    def close(self) -> None:
        self._pairs = None

    def _open_pairs(self) -> QueuePairs:
        if self._pairs is None:
            raise TargetError("the drive is closed: open it again")
        return self._pairs


# The status of a command that is executed for the second time after the first execution succeeded.
_EXECUTED_BEFORE: dict[int, abi.NvmeStatus] = {
    abi.Opcode.KV_APPEND: abi.NvmeStatus.OUT_OF_SEQUENCE,
    abi.Opcode.SESSION_FORK: abi.NvmeStatus.SESSION_EXISTS,
    abi.Opcode.SESSION_TRIM: abi.NvmeStatus.UNKNOWN_SESSION,
    abi.Opcode.SESSION_REMOVE: abi.NvmeStatus.TOKEN_GAP,
    abi.Opcode.SESSION_ERASE: abi.NvmeStatus.UNKNOWN_SESSION,
}


@dataclass
class _Call:
    """Commands of one `submit_many` and their completions. `doubtful`: sent over a connection that was lost."""

    commands: Sequence[Command]
    done: dict[int, Completion] = field(default_factory=dict)
    doubtful: set[int] = field(default_factory=set)

    def complete(self, index: int, completion: Completion) -> None:
        """Note a completion. A doubtful command counts as successful if its status shows an earlier execution."""
        expected = _EXECUTED_BEFORE.get(self.commands[index].opcode)
        if index in self.doubtful and expected is not None and completion.status == expected:
            completion = replace(completion, status=0, result=0)
        self.done[index] = completion


@dataclass
class _Lane:
    """An I/O queue and its connection; None if it is not connected."""

    number: int
    connection: QueueConnection | None = None


class TcpDrive(ServedDrive):
    """A drive at `address` (host, port) over NVMe/TCP; `nqn` "" takes the one that its discovery service lists.

    Several threads may use it: each call takes a free I/O queue. A lost connection is connected again automatically.
    Commands that may or may not have been executed are then sent again. The drive's status tells if they had been
    executed (`_EXECUTED_BEFORE`), so no append, fork or trim takes effect twice; blocks and values are stored again as
    they were. Raises TargetError.
    """

    def __init__(self, address: tuple[str, int], options: RemoteOptions | None = None, nqn: str = "") -> None:
        super().__init__()
        options = options or RemoteOptions()
        self._closed = False
        self._queries: OrderedDict[int, Command] = OrderedDict()  # by ticket, until the result has arrived
        self._association = Association(address, options, nqn)
        self._free: queue.LifoQueue[_Lane] = queue.LifoQueue()
        for number in range(options.io_queues, 0, -1):
            self._free.put(_Lane(number))
        try:
            self._begin(f"tcp://{address[0]}:{address[1]}")
        except BaseException:
            self.close()
            raise

    def admin(self, command: Command) -> Completion:
        return self._association.admin(command)

    def submit(self, command: Command) -> Completion:
        return self.submit_many([command])[0]

    def submit_many(self, commands: Sequence[Command]) -> list[Completion]:
        if self._closed:
            raise TargetError("the drive is closed: open it again")
        call = _Call(commands)
        lane = self._free.get()
        try:
            self._association.retry(lambda: self._exchange(lane, call))
        finally:
            self._free.put(lane)
        for index in call.doubtful:
            if commands[index].opcode == abi.Opcode.ATTN_FETCH:
                call.done[index] = self._fetched(commands[index], call.done[index])
        completions = [call.done[index] for index in range(len(commands))]
        self._remember(commands, completions)
        return completions

    def close(self) -> None:
        if self._closed:
            return
        self._closed = True
        while not self._free.empty():
            lane = self._free.get()
            if lane.connection is not None:
                lane.connection.close()
        self._association.close()

    def _exchange(self, lane: _Lane, call: _Call) -> None:
        """Execute the commands that have no completion yet. Raises ConnectionLostError, TargetError."""
        if lane.connection is None:
            lane.connection = self._association.connect_queue(lane.number)
        left = [index for index in range(len(call.commands)) if index not in call.done]
        try:
            completions = lane.connection.exchange([call.commands[index] for index in left])
        except ConnectionLostError as error:
            lane.connection.close()
            lane.connection = None
            for position, completion in error.done.items():
                call.complete(left[position], completion)
            call.doubtful.update(left[position] for position in error.doubtful)
            raise
        for index, completion in zip(left, completions, strict=True):
            call.complete(index, completion)

    def _fetched(self, fetch: Command, completion: Completion) -> Completion:
        """The result of a ticket. If its first answer was lost, repeats the query, which gives the same bits."""
        entry = np.frombuffer(fetch.entry, abi.AttnFetch).copy()
        query = self._queries.get(int(entry["ticket"][0]))
        if completion.status != abi.NvmeStatus.UNKNOWN_TICKET or query is None:
            return completion
        submitted = self.submit(query)
        if submitted.status:
            return submitted
        entry["ticket"] = submitted.result
        return self.submit(Command(entry.tobytes(), None, fetch.room))

    def _remember(self, commands: Sequence[Command], completions: Sequence[Completion]) -> None:
        """Keep each query until its result has arrived."""
        for command, completion in zip(commands, completions, strict=True):
            if completion.status:
                continue
            if command.opcode in (abi.Opcode.ATTN_SUBMIT, abi.Opcode.ATTN_SUBMIT_ROWS):
                self._queries[completion.result] = command
                if len(self._queries) > _QUERIES_REMEMBERED:
                    self._queries.popitem(last=False)
            elif command.opcode == abi.Opcode.ATTN_FETCH:
                self._queries.pop(int(np.frombuffer(command.entry, abi.AttnFetch)["ticket"][0]), None)
