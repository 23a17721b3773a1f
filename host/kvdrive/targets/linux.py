"""A drive behind Linux's own NVMe driver: commands through the passthrough of /dev/ngXnY.

The kernel's driver owns the queues. It carries dwords 2, 3 and 10 to 15 of an entry, the data and the 64-bit result; no
command of the drive needs more. Each namespace has a device of its own and so has the controller.

Where the kernel has it (Linux 5.19 and newer), I/O commands go through an io_uring, many in flight. Otherwise, and for
admin commands, an ioctl executes one command at a time.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
import queue
import re
import struct
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from kvdrive._native import PassthroughRing
from kvdrive.errors import TargetError
from kvdrive.nvme.commands import Command
from kvdrive.nvme.completions import Completion
from kvdrive.targets.served import ServedDrive

_IO64, _ADMIN64 = 0xC0504E48, 0xC0504E47  # NVME_IOCTL_IO64_CMD, NVME_IOCTL_ADMIN64_CMD
_FIELDS = struct.Struct("<BBHIII QQ II 6I II")  # struct nvme_uring_cmd, and struct nvme_passthru_cmd64 to its result
_RESULT = struct.Struct("<Q")
_ENTRY = struct.Struct("<BBHIII 8x 16x 6I")  # opcode, flags, identifier, nsid, dwords 2 and 3, dwords 10 to 15
_STATUS_MASK, _DO_NOT_RETRY = 0x7FF, 0x4000
_NAME = re.compile(r"(?:/dev/)?ng(\d+)n(\d+)")
_TIMEOUT_MS = 60_000
_DEPTH = 64  # commands in flight
_UNKNOWN_TO_DEVICE = {-errno.EOPNOTSUPP, -errno.ENOTTY, -errno.ENOSYS}
_EVERY_NAMESPACE = 0


class LinuxDrive(ServedDrive):
    """The drive whose namespace is `device`, such as /dev/ng0n3; `timeout_ms` bounds each command.

    The other namespaces of the same controller are found beside it. `passthrough`: "io_uring" or "ioctl", the way of
    I/O commands; `ring` False chooses ioctl. Raises TargetError: no such device, no permission, a controller that does
    not execute the drive's commands.
    """

    def __init__(self, device: str, timeout_ms: int = _TIMEOUT_MS, *, ring: bool = True) -> None:
        super().__init__()
        found = _NAME.fullmatch(device)
        if found is None:
            raise TargetError(f"'{device}' is no NVMe character device: write /dev/ngXnY, as `nvme list` shows it")
        self._prefix = f"/dev/ng{found[1]}n"
        self.controller = f"/dev/nvme{found[1]}"
        self._timeout_ms = timeout_ms
        self._files: dict[int, int] = {}  # open device of each namespace
        self._closed = False
        self._rings: queue.SimpleQueue[PassthroughRing] = queue.SimpleQueue()  # those that no thread uses
        try:
            namespace = int(found[2])
            self._file(namespace)
            self._begin(device)
            self.passthrough = "io_uring" if ring and ring_problem(self._file(namespace)) is None else "ioctl"
        except BaseException:
            self.close()
            raise

    def admin(self, command: Command) -> Completion:
        return self._pass(self._file(_EVERY_NAMESPACE), _ADMIN64, command)

    def submit(self, command: Command) -> Completion:
        return self.submit_many([command])[0]

    def submit_many(self, commands: Sequence[Command]) -> list[Completion]:
        if self.passthrough == "ioctl":
            return [self._pass(self._file(_namespace(one)), _IO64, one) for one in commands]
        requests = [_Request(one, self._timeout_ms) for one in commands]
        results = self._through_ring([(self._file(_namespace(one.command)), one.fields) for one in requests])
        completions = []
        for request, (status, result) in zip(requests, results, strict=True):
            if status == -errno.EINVAL:  # not sent: Linux takes some buffers by ioctl only
                completions.append(self._pass(self._file(_namespace(request.command)), _IO64, request.command))
            elif status < 0:
                raise self._failure(request.command, OSError(-status, os.strerror(-status)))
            else:
                completions.append(request.completion(status, result))
        return completions

    def close(self) -> None:
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

    def _through_ring(self, commands: list[tuple[int, bytes]]) -> list[tuple[int, int]]:
        """Status, or a negative errno, and result of each command. Every thread has a ring of its own."""
        try:
            ring = self._rings.get_nowait()
        except queue.Empty:
            ring = PassthroughRing(_DEPTH)
        results = ring.execute(commands)
        self._rings.put(ring)
        return results

    def _pass(self, file: int, ioctl: int, command: Command) -> Completion:
        request = _Request(command, self._timeout_ms)
        block = bytearray(request.fields + bytes(_RESULT.size))
        try:
            status = fcntl.ioctl(file, ioctl, block)
        except OSError as error:
            raise self._failure(command, error) from error
        return request.completion(status, *_RESULT.unpack_from(block, _FIELDS.size))

    def _failure(self, command: Command, error: OSError) -> TargetError:
        return TargetError(f"{self.controller}: opcode {command.opcode:#x}: {_advice(error)}")


class _Request:
    """A command as Linux takes it; keeps its data in place."""

    def __init__(self, command: Command, timeout_ms: int) -> None:
        opcode, flags, _, nsid, dword2, dword3, *dwords = _ENTRY.unpack(command.entry)
        self.command = command
        self._data = np.empty(command.room, np.uint8) if command.data is None else np.ascontiguousarray(command.data)
        address = self._data.ctypes.data if self._data.size else 0
        fields = (opcode, flags, 0, nsid, dword2, dword3, 0, address, 0, self._data.size, *dwords, timeout_ms, 0)
        self.fields = _FIELDS.pack(*fields)

    def completion(self, status: int, result: int) -> Completion:
        received = self.command.data is None and not status
        answer = self._data if received else np.empty(0, np.uint8)
        return Completion(0, status & _STATUS_MASK, result, not status & _DO_NOT_RETRY, answer)


def ring_problem(file: int | None = None) -> str | None:
    """Why commands cannot go through an io_uring to the open device `file`, or at all; None where they can."""
    ring = PassthroughRing(1)
    if ring.error in (errno.ENOSYS, errno.EINVAL):
        return "the kernel is older than 5.19"
    if ring.error:
        return f"refused: {os.strerror(ring.error)}"
    if file is not None:
        # A command for namespace 0: Linux refuses it before the drive sees it, and says so if it knows no such way.
        ((status, _),) = ring.execute([(file, _FIELDS.pack(0, *[0] * 17))])
        if status in _UNKNOWN_TO_DEVICE:
            return "the device takes no commands through it"
    return None


def _namespace(command: Command) -> int:
    return int.from_bytes(command.entry[4:8], "little")


def _advice(error: OSError) -> str:
    """Advice to the user for an error of the device."""
    if error.errno in (errno.EACCES, errno.EPERM):
        return "no permission: run as root, or give your user read and write access with a udev rule"
    if error.errno == errno.ENOENT:
        return "there is no such device: connect the drive first, for example with `nvme connect`"
    if error.errno in (errno.ETIMEDOUT, errno.EINTR):
        return "the command did not end in time: the kernel resets the controller; open the drive again"
    return f"{error.strerror}: the device is gone or resets; open the drive again"
