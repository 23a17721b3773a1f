"""A drive that one host may use, and this host's script."""

from __future__ import annotations

from pathlib import Path

from kvdrive._native import Drive, Subsystem, TcpServer

SCRIPTS = Path(__file__).resolve().parent / "guest"
NQN = "nqn.2026-01.org.kvdrive:guest"
HOST_NQN = "nqn.2014-08.org.nvmexpress:uuid:11111111-2222-3333-4444-555555555555"


class GuestDrive:
    """A drive behind NVMe/TCP whose only allowed host is the guest."""

    def __init__(self, path: Path) -> None:
        self.drive = Drive(path, "fast", 1, 1 << 26)
        self.subsystem = Subsystem(self.drive, serial="GUEST0001", nqn=NQN)
        self.server = self.serve()

    def serve(self, port: int = 0) -> TcpServer:
        """A server at a port of this machine; 0 takes a free one."""
        return TcpServer(self.subsystem, "127.0.0.1", port, hosts=[(HOST_NQN, None, None)])


def script(name: str, **variables: str) -> str:
    """A shell script of the guest, which begins with the names of the drive and of the host."""
    named = {"NQN": NQN, "HOSTNQN": HOST_NQN, **variables}
    return "".join(f"{name}='{value}'\n" for name, value in named.items()) + (SCRIPTS / name).read_text()
