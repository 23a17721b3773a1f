"""A drive behind Linux's own NVMe driver: commands through the passthrough of /dev/ngXnY.

The kernel's driver owns the queues. It carries dwords 2, 3 and 10 to 15 of an entry, the data and the 64-bit result; no
command of the drive needs more. Each namespace has a device of its own and so has the controller.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
import re
import struct
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from kvdrive.errors import TargetError
from kvdrive.nvme.commands import Command
from kvdrive.nvme.completions import Completion
from kvdrive.targets.served import ServedDrive

_IO64, _ADMIN64 = 0xC0504E48, 0xC0504E47  # NVME_IOCTL_IO64_CMD, NVME_IOCTL_ADMIN64_CMD
_LAYOUT = "<BBHIII QQ II 6I II Q"  # struct nvme_passthru_cmd64
_RESULT_AT = 72
_ENTRY = struct.Struct("<BBHIII 8x 16x 6I")  # opcode, flags, identifier, nsid, dwords 2 and 3, dwords 10 to 15
_STATUS_MASK, _DO_NOT_RETRY = 0x7FF, 0x4000
_NAME = re.compile(r"(?:/dev/)?ng(\d+)n(\d+)")
_TIMEOUT_MS = 60_000
_EVERY_NAMESPACE = 0


class LinuxDrive(ServedDrive):
    """The drive whose namespace is `device`, such as /dev/ng0n3; `timeout_ms` bounds each command.

    The other namespaces of the same controller are found beside it. Raises TargetError: no such device, no permission,
    a controller that does not execute the drive's commands.
    """

    def __init__(self, device: str, timeout_ms: int = _TIMEOUT_MS) -> None:
        super().__init__()
        found = _NAME.fullmatch(device)
        if found is None:
            raise TargetError(f"'{device}' is no NVMe character device: write /dev/ngXnY, as `nvme list` shows it")
        self._prefix = f"/dev/ng{found[1]}n"
        self.controller = f"/dev/nvme{found[1]}"
        self._timeout_ms = timeout_ms
        self._files: dict[int, int] = {}  # open device of each namespace
        self._closed = False
        try:
            self._file(int(found[2]))
            self._begin(device)
        except BaseException:
            self.close()
            raise

    def admin(self, command: Command) -> Completion:
        """See ServedDrive."""
        return self._pass(self._file(_EVERY_NAMESPACE), _ADMIN64, command)

    def submit(self, command: Command) -> Completion:
        """See Target."""
        namespace = int.from_bytes(command.entry[4:8], "little")
        return self._pass(self._file(namespace), _IO64, command)

    def submit_many(self, commands: Sequence[Command]) -> list[Completion]:
        """See Target."""
        return [self.submit(command) for command in commands]

    def close(self) -> None:
        """See Target."""
        self._closed = True
        for file in self._files.values():
            with contextlib.suppress(OSError):
                os.close(file)
        self._files.clear()

    def _file(self, namespace: int) -> int:
        """The open device of a namespace; 0 is the controller's."""
        if self._closed:
            raise TargetError("the drive is closed: open it again")
        if namespace not in self._files:
            path = Path(self.controller if namespace == _EVERY_NAMESPACE else f"{self._prefix}{namespace}")
            try:
                self._files[namespace] = os.open(path, os.O_RDWR)
            except OSError as error:
                raise TargetError(f"{path}: {_advice(error)}") from error
        return self._files[namespace]

    def _pass(self, file: int, request: int, command: Command) -> Completion:
        opcode, flags, _, nsid, dword2, dword3, *dwords = _ENTRY.unpack(command.entry)
        data = np.empty(command.room, np.uint8) if command.data is None else np.ascontiguousarray(command.data)
        address = data.ctypes.data if data.size else 0
        fields = (opcode, flags, 0, nsid, dword2, dword3, 0, address, 0, data.size, *dwords, self._timeout_ms, 0, 0)
        block = bytearray(struct.pack(_LAYOUT, *fields))
        try:
            status = fcntl.ioctl(file, request, block)
        except OSError as error:
            raise TargetError(f"{self.controller}: opcode {opcode:#x}: {_advice(error)}") from error
        (result,) = struct.unpack_from("<Q", block, _RESULT_AT)
        answer = data if command.data is None else np.empty(0, np.uint8)
        return Completion(0, status & _STATUS_MASK, result, not status & _DO_NOT_RETRY, answer)


def _advice(error: OSError) -> str:
    """Advice to the user for an error of the device."""
    if error.errno in (errno.EACCES, errno.EPERM):
        return "no permission: run as root, or give your user read and write access with a udev rule"
    if error.errno == errno.ENOENT:
        return "there is no such device: connect the drive first, for example with `nvme connect`"
    if error.errno in (errno.ETIMEDOUT, errno.EINTR):
        return "the command did not end in time: the kernel resets the controller; open the drive again"
    return f"{error.strerror}: the device is gone or resets; open the drive again"
