# SPDX-License-Identifier: Apache-2.0
"""Serving a drive over NVMe/TCP: addresses, and the file that says which hosts may come in.

[[host]]
nqn = "nqn.2014-08.org.nvmexpress:uuid:..."   # /etc/nvme/hostnqn
secret = "DHHC-1:00:...:"                     # DH-HMAC-CHAP; nvme gen-dhchap-key makes one
controller_secret = "DHHC-1:00:...:"          # optional: the drive proves who it is, too
"""

from __future__ import annotations

import re
import stat
import tomllib
from pathlib import Path

from kvdrive._native import Subsystem, TcpServer
from kvdrive.errors import InputError, TargetError

DEFAULT_PORT = 4420
DEFAULT_BUFFER_BYTES = 64 << 20
HostEntry = tuple[str, str | None, str | None]


def serve_tcp(
    subsystem: Subsystem, address: str, hosts_file: Path | None = None, buffer_bytes: int = DEFAULT_BUFFER_BYTES
) -> TcpServer:
    """A target at HOST:PORT (numeric; port 0 takes any) that serves until the object is freed.

    Without `hosts_file` every host of this machine may come in; an address other than loopback needs the file with a
    secret for each host. Data under way take `buffer_bytes` at most, of all hosts together.
    Raises InputError for unusable arguments, TargetError when the address cannot be bound.
    """
    host, port = parse_address(address)
    hosts = read_hosts(hosts_file) if hosts_file else []
    if hosts_file and not hosts:
        raise InputError(f"{hosts_file} names no host, so no host could connect")
    try:
        return TcpServer(subsystem, host, port, hosts=hosts, buffer_bytes=buffer_bytes)
    except ValueError as error:
        raise InputError(str(error)) from error
    except RuntimeError as error:
        raise TargetError(str(error)) from error


def parse_address(text: str) -> tuple[str, int]:
    """Parse HOST, HOST:PORT or [IPV6]:PORT."""
    found = re.fullmatch(r"(?:\[([0-9a-fA-F:.]+)\]|([^:\[\]]+))(?::(\d{1,5}))?", text)
    if found is None or text.isdigit() or int(found[3] or 0) > 65535:
        raise InputError(f"'{text}' is no address: write HOST:PORT, such as 127.0.0.1:{DEFAULT_PORT}")
    host = found[1] or found[2]
    return ("127.0.0.1" if host == "localhost" else host, DEFAULT_PORT if found[3] is None else int(found[3]))


def read_hosts(path: Path) -> list[HostEntry]:
    """The entries of a hosts file. It holds secrets, so other users must not be able to read it."""
    try:
        if path.stat().st_mode & (stat.S_IRWXG | stat.S_IRWXO):
            raise InputError(f"{path} holds secrets: make it yours alone with chmod 600")
        with path.open("rb") as file:
            entries = tomllib.load(file).get("host", [])
    except OSError as error:
        raise InputError(f"cannot read {path}: {error.strerror}") from error
    except tomllib.TOMLDecodeError as error:
        raise InputError(f"{path} is no TOML: {error}") from error
    hosts: list[HostEntry] = []
    for entry in entries if isinstance(entries, list) else [entries]:
        known = {"nqn", "secret", "controller_secret"}
        if not isinstance(entry, dict) or "nqn" not in entry or not entry.keys() <= known:
            raise InputError(f"{path}: a [[host]] has nqn, and may have secret and controller_secret")
        values = [entry["nqn"], entry.get("secret"), entry.get("controller_secret")]
        if any(not isinstance(value, str) for value in values if value is not None):
            raise InputError(f"{path}: nqn and secrets are strings")
        hosts.append((values[0], values[1], values[2]))
    return hosts
