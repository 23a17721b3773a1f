"""Failed commands as exceptions."""

from __future__ import annotations

from enum import IntEnum

from kvdrive import abi
from kvdrive.errors import KvdriveError
from kvdrive.nvme.wire import SessionOpcode

_MEANING = {
    abi.NvmeStatus.CAPACITY_EXCEEDED: "the drive is full: trim sessions or open it with a larger capacity",
    abi.NvmeStatus.UNRECOVERED_READ: "a flash page lost its contents: drop the session and compute it again",
    abi.NvmeStatus.CRC_MISMATCH: "the payload was damaged on its way: send the command again",
    abi.NvmeStatus.TICKETS_EXHAUSTED: "too many results wait to be fetched: fetch some, then submit again",
    abi.NvmeStatus.VALUE_NOT_FINITE: "Inf or NaN in the query or in the attended K or V",
    abi.NvmeStatus.NO_VALID_TOKEN: "the validity mask excludes every token",
}


class CommandError(KvdriveError):
    """A command completed with an error status and changed nothing.

    `status` is the status code type and code (`abi.NvmeStatus` where known), `result` the completion's 64-bit result,
    `retry` whether the drive says that sending it again may help. `cause`: what a drive in this process says besides.
    """

    def __init__(self, opcode: int, status: int, result: int, retry: bool, cause: str = "") -> None:
        self.opcode = opcode
        self.status = status
        self.result = result
        self.retry = retry
        self.cause = cause
        super().__init__(f"{command_name(opcode)} failed: {self._reason()}")

    def _reason(self) -> str:
        name = _name(abi.NvmeStatus, self.status)
        if self.status == abi.NvmeStatus.JOB_REFUSED:
            return f"{name}, the engine answered {abi.Status(self.result)!r}"
        if self.cause:
            return f"{name}, {self.cause}"
        meaning = _MEANING.get(abi.NvmeStatus(self.status)) if self.status in list(abi.NvmeStatus) else None
        return f"{name} ({meaning})" if meaning else name


def command_name(opcode: int) -> str:
    """Name of one of the drive's own I/O commands."""
    return _name(SessionOpcode if opcode in list(SessionOpcode) else abi.Opcode, opcode)


def _name(kind: type[IntEnum], value: int) -> str:
    return kind(value).name if value in list(kind) else f"{kind.__name__} {value:#x}"
