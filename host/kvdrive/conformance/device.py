"""The drives that are checked: what the checks need of them beside commands, and how they are opened."""

from __future__ import annotations

import fcntl
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from enum import Flag, auto
from pathlib import Path

from kvdrive._native import Drive, QueuePairs, Subsystem
from kvdrive.errors import TargetError
from kvdrive.nvme.commands import Command
from kvdrive.nvme.completions import Completion, decode
from kvdrive.nvme.fabrics.association import RemoteOptions
from kvdrive.nvme.tcp import parse_address
from kvdrive.targets import rings
from kvdrive.targets.linux import LinuxDrive
from kvdrive.targets.remote import SocketDrive, TcpDrive
from kvdrive.targets.served import ServedDrive

_RESET_TIMEOUT_S = 30.0
_NVME_IOCTL_RESET = 0x4E44
_SEGMENT_BYTES = 1 << 26
_ENTRIES = 64
_TIMEOUT_S = 30.0


class Ability(Flag):
    """What a host can do to a drive beside sending commands that complete."""

    NONE = 0
    QUEUES = auto()  # create and delete queues
    PENDING = auto()  # leave an admin command pending
    FAULTS = auto()  # inject faults
    POWER = auto()  # take its power away
    EMPTY = auto()  # destroy what it holds
    RAW = auto()  # send any flags and any namespace
    POINTERS = auto()  # send any data pointer


WITHOUT = {
    Ability.QUEUES: "this connection manages the queues itself",
    Ability.PENDING: "this connection cannot leave an admin command pending",
    Ability.FAULTS: "faults cannot be injected into this drive",
    Ability.POWER: "this drive's power cannot be taken away",
    Ability.EMPTY: "the drive may hold something: --destroy allows it to be erased",
    Ability.RAW: "Linux' driver carries neither fused operations nor other namespaces",
    Ability.POINTERS: "this connection sets the data pointers itself",
}


class Device(ABC):
    """A drive under test. `place` is its name for messages."""

    abilities = Ability.NONE

    def __init__(self, place: str) -> None:
        self.place = place

    @abstractmethod
    def send(self, command: Command, *, admin: bool = False) -> Completion:
        """Execute a command and return its completion, failed or not. Raises TargetError."""

    @abstractmethod
    def send_many(self, commands: Sequence[Command], *, second: bool = False) -> list[Completion]:
        """Execute I/O commands, many in flight where the connection can. Raises TargetError.

        `second`: through another queue, which a second thread may use at the same time.
        """

    @abstractmethod
    def reset(self) -> None:
        """Reset the controller, or replace it by a new one. Raises TargetError."""

    @abstractmethod
    def close(self) -> None:
        """Release the drive."""

    def inject(self, fault: str, *arguments: int) -> None:
        """Make a later operation fail (`Ability.FAULTS`)."""
        raise NotImplementedError

    def lose_power(self) -> None:
        """Lose everything that is not durable and start again (`Ability.POWER`)."""
        raise NotImplementedError

    def open_again(self, *, session_bytes: int | None = None, read_only: bool = False) -> None:
        """Open the drive again (`Ability.FAULTS`): with so much flash for each session (0: no limit), or read-only."""
        raise NotImplementedError

    def begin(self, command: Command) -> int:
        """Submit an admin command that completes later (`Ability.PENDING`); returns its ticket."""
        raise NotImplementedError

    def finish(self, ticket: int) -> Completion:
        """Wait for a command that `begin` submitted."""
        raise NotImplementedError


class ServedDevice(Device):
    """A drive behind rings, NVMe/TCP or Linux' driver. `connect` opens it."""

    def __init__(self, place: str, connect: Callable[[], ServedDrive], *, destroy: bool = False) -> None:
        super().__init__(place)
        self._connect = connect
        self._drive = connect()
        self._second: ServedDrive | None = None  # another connection, made when it is needed
        self.abilities = Ability.EMPTY if destroy else Ability.NONE
        if not isinstance(self._drive, LinuxDrive):
            self.abilities |= Ability.RAW
        if isinstance(self._drive, SocketDrive):
            self.abilities |= Ability.POINTERS

    def send(self, command: Command, *, admin: bool = False) -> Completion:
        return self._drive.admin(command) if admin else self._drive.submit(command)

    def send_many(self, commands: Sequence[Command], *, second: bool = False) -> list[Completion]:
        if second and self._second is None:
            self._second = self._connect()
        drive = self._second if second and self._second is not None else self._drive
        return drive.submit_many(commands)

    def reset(self) -> None:
        if isinstance(self._drive, LinuxDrive):
            with Path(self._drive.controller).open("rb") as controller:
                fcntl.ioctl(controller, _NVME_IOCTL_RESET)
        self.close()
        end = time.monotonic() + _RESET_TIMEOUT_S
        while True:
            try:
                self._drive = self._connect()
                return
            except TargetError:
                if time.monotonic() > end:
                    raise
                time.sleep(0.1)

    def close(self) -> None:
        self._drive.close()
        if self._second is not None:
            self._second.close()
            self._second = None


class OwnDevice(Device):
    """A software drive in this process, in the file `path`. A `fresh` one may be destroyed and lose its power."""

    def __init__(
        self, path: Path, engine: str = "fast", *, fresh: bool = False, destroy: bool = False, preset: str = ""
    ) -> None:
        super().__init__(str(path))
        self._path, self._engine = path, engine
        self.abilities = Ability.QUEUES | Ability.PENDING | Ability.RAW | Ability.POINTERS
        if fresh or destroy:
            self.abilities |= Ability.EMPTY
        if fresh:
            self.abilities |= Ability.FAULTS | Ability.POWER
        self._open(preset=preset)

    def send(self, command: Command, *, admin: bool = False) -> Completion:
        queue = 0 if admin else rings.IO_QUEUE
        return rings.exchange(self._pairs, [command], queue)[0]

    def send_many(self, commands: Sequence[Command], *, second: bool = False) -> list[Completion]:
        return rings.exchange(self._pairs, commands, rings.IO_QUEUE + second)

    def reset(self) -> None:
        self._pairs = self._connect()

    def close(self) -> None:
        del self._pairs, self._subsystem, self._drive

    def inject(self, fault: str, *arguments: int) -> None:
        self._drive.inject(fault, *arguments)

    def lose_power(self) -> None:
        self._drive.inject("power_cut")
        self.close()
        self._open()

    def open_again(self, *, session_bytes: int | None = None, read_only: bool = False) -> None:
        self.close()
        self._open(session_bytes=session_bytes, read_only=read_only)

    def begin(self, command: Command) -> int:
        """See Device. The low half of a ticket is the command's identifier."""
        return self._pairs.submit(0, command.entry, command.data, command.room)

    def finish(self, ticket: int) -> Completion:
        return decode(*self._pairs.wait(ticket))

    def _open(self, preset: str = "", session_bytes: int | None = None, read_only: bool = False) -> None:
        try:
            self._drive = Drive(
                self._path, self._engine, preset=preset, session_bytes=session_bytes, read_only=read_only
            )
        except (OSError, RuntimeError, ValueError) as error:
            raise TargetError(str(error)) from error
        self._subsystem = Subsystem(self._drive, serial="CONFORMANCE")
        self._pairs = self._connect()

    def _connect(self) -> QueuePairs:
        return QueuePairs(self._subsystem, _SEGMENT_BYTES, io_queues=2, entries=_ENTRIES, timeout=_TIMEOUT_S)


def open_address(name: str, options: RemoteOptions, *, destroy: bool = False) -> Device:
    """The drive at an address of `targets/addresses.py`. Raises InputError, TargetError."""
    if name.startswith("tcp://"):
        address = parse_address(name.removeprefix("tcp://"))
        return ServedDevice(name, lambda: TcpDrive(address, options), destroy=destroy)
    if name.startswith("nvme:"):
        return ServedDevice(name, lambda: LinuxDrive(name.removeprefix("nvme:")), destroy=destroy)
    return ServedDevice(name, lambda: SocketDrive(Path(name)), destroy=destroy)
