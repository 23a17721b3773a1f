"""Drives that are named by their address: on other machines, at sockets, or as Linux devices.

tcp://HOST:PORT[,HOST:PORT...]    drives that serve NVMe/TCP; they share the KV heads
PATH.sock                         a drive that a process of this machine serves
nvme:/dev/ngXnY                   a drive behind Linux' NVMe driver
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path

from kvdrive.errors import InputError
from kvdrive.nvme.fabrics.association import RemoteOptions
from kvdrive.nvme.fabrics.identity import host_identity
from kvdrive.nvme.tcp import parse_address
from kvdrive.targets.base import Target
from kvdrive.targets.group import DriveGroup
from kvdrive.targets.linux import LinuxDrive
from kvdrive.targets.remote import SocketDrive, TcpDrive

_TCP, _LINUX, _SOCKET = "tcp://", "nvme:", ".sock"
FORMS = "tcp://HOST:PORT, PATH.sock, nvme:/dev/ngXnY"


def is_address(name: str) -> bool:
    """True if `name` is the address of a drive, rather than a kind of drive in this process."""
    return name.startswith((_TCP, _LINUX)) or name.endswith(_SOCKET)


def open_address(name: str, identity: Path | None = None) -> DriveGroup:
    """The drives at `name`. They are not formatted.

    `identity`: the TOML file of this host's name and secrets, for tcp:// only. Raises InputError, TargetError.
    """
    if identity is not None and not name.startswith(_TCP):
        raise InputError("only drives at tcp:// ask who this host is: leave `identity` out")
    with ExitStack() as opened:
        drives = [opened.enter_context(make()) for make in _makers(name, identity)]
        opened.pop_all()
    return DriveGroup(drives)


def _makers(name: str, identity: Path | None) -> list[Callable[[], Target]]:
    if name.startswith(_LINUX):
        return [lambda: LinuxDrive(name.removeprefix(_LINUX))]
    if not name.startswith(_TCP):
        return [lambda: SocketDrive(Path(name))]
    addresses = [parse_address(part) for part in name.removeprefix(_TCP).split(",")]
    options = RemoteOptions(identity=host_identity(identity))
    return [lambda address=address: TcpDrive(address, options) for address in addresses]  # type: ignore[misc]
