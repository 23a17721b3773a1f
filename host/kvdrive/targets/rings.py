"""Commands through queue pairs in shared memory: the drives of this process, and those that serve a socket."""

from __future__ import annotations

from collections.abc import Sequence

from kvdrive import abi
from kvdrive._native import QueuePairs
from kvdrive.errors import TargetError
from kvdrive.nvme.commands import Command
from kvdrive.nvme.completions import Completion, decode

SEGMENT_BYTES = 1 << 32  # reserved address space; memory is allocated when it is used
QUEUE_ENTRIES = 1024
IO_QUEUE = 1
_MOST_IN_FLIGHT = 32  # commands of one call that are in flight at once
_MOST_BYTES_IN_FLIGHT = 1 << 29


def exchange(pairs: QueuePairs, commands: Sequence[Command], queue: int = IO_QUEUE) -> list[Completion]:
    """Completions of commands that do not depend on each other, many in flight at once. Raises TargetError.

    This thread does the work of a single command if the drive is in this process and idle.
    """
    completions: list[Completion] = []
    tickets: list[tuple[int, int]] = []  # (ticket, bytes of its buffer)
    held = 0
    try:
        if len(commands) == 1:
            only = commands[0]
            return [decode(*pairs.execute(queue, only.entry, only.data, only.room))]
        for command in commands:
            size = max(command.room, 0 if command.data is None else command.data.size)
            while tickets and (len(tickets) == _MOST_IN_FLIGHT or held + size > _MOST_BYTES_IN_FLIGHT):
                ticket, freed = tickets.pop(0)
                held -= freed
                completions.append(decode(*pairs.wait(ticket)))
            tickets.append((pairs.submit(queue, command.entry, command.data, command.room), size))
            held += size
        completions += [decode(*pairs.wait(ticket)) for ticket, _ in tickets]
    except (RuntimeError, ValueError) as error:
        raise TargetError(str(error)) from error
    return completions


def ask(pairs: QueuePairs, query: Command, size: int) -> tuple[int, Completion]:
    """Executes an ATTN_SUBMIT and the ATTN_FETCH of its result of `size` bytes, as `exchange` does.

    Returns opcode and completion of the latter, or of the former if that failed. Raises TargetError.
    """
    assert query.data is not None
    try:
        fetched, entry, data = pairs.ask(IO_QUEUE, query.entry, query.data, size)
    except (RuntimeError, ValueError) as error:
        raise TargetError(str(error)) from error
    return abi.Opcode.ATTN_FETCH if fetched else abi.Opcode.ATTN_SUBMIT, decode(entry, data)
