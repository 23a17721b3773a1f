"""Failed commands as exceptions."""

from __future__ import annotations

from enum import IntEnum

from kvdrive import abi
from kvdrive.errors import KvdriveError
from kvdrive.nvme.wire import StatusCode

_MEANING = {
    abi.NvmeStatus.CAPACITY_EXCEEDED: "the drive is full: trim sessions or open it with a larger capacity",
    abi.NvmeStatus.UNRECOVERED_READ: "a flash page lost its contents: drop the session and compute it again",
    abi.NvmeStatus.CRC_MISMATCH: "the payload was damaged on its way: send the command again",
    abi.NvmeStatus.TICKETS_EXHAUSTED: "too many results wait to be fetched: fetch some, then submit again",
    abi.NvmeStatus.VALUE_NOT_FINITE: "Inf or NaN in the query, in the attended K or V, or in a feed-forward part",
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


_VALUE_MEANING: dict[int, str] = {
    abi.NvmeStatus.CAPACITY_EXCEEDED: "the drive is full: delete keys or sessions, or make a larger drive",
    StatusCode.SC_UNRECOVERED_ERROR: "the drive lost a page of the value: delete the key or store it again",
    StatusCode.SC_KEY_DOES_NOT_EXIST: "the key does not exist",
    StatusCode.SC_KEY_EXISTS: "the key exists already",
    StatusCode.SC_COMMAND_SEQUENCE: "the value was replaced or its parts were dropped meanwhile: try again",
    StatusCode.SC_NAMESPACE_WRITE_PROTECTED: "the drive is open for reading only",
    StatusCode.SC_INVALID_VALUE_SIZE: "a value has 1 GiB at most",
    abi.NvmeStatus.INVALID_NAMESPACE: "the drive has no key-value namespace: serve it with this version of kvdrive",
}


class ValueCommandError(CommandError):
    """A command of the Key Value command set failed and changed nothing. `name` is the command's."""

    def __init__(self, name: str, status: int, *, retry: bool = False, cause: str = "") -> None:
        kind = abi.NvmeStatus if status in list(abi.NvmeStatus) else StatusCode
        said = cause or _VALUE_MEANING.get(status, "")
        self.opcode, self.status, self.result, self.retry, self.cause = 0, status, 0, retry, cause
        KvdriveError.__init__(self, f"{name} failed: {_name(kind, status)}" + (f" ({said})" if said else ""))


class MissingKeyError(ValueCommandError):
    """The key does not exist."""


class KeyExistsError(ValueCommandError):
    """The key exists already."""


def command_name(opcode: int) -> str:
    """Name of one of the drive's own I/O commands."""
    return _name(abi.Opcode, opcode)


def _name(kind: type[IntEnum], value: int) -> str:
    return kind(value).name if value in list(kind) else f"{kind.__name__} {value:#x}"
