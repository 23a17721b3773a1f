"""The identity of this host towards drives on other machines: its NVMe name and the secrets that they share."""

from __future__ import annotations

import uuid
from dataclasses import dataclass
from pathlib import Path

from kvdrive.errors import InputError
from kvdrive.nvme.fabrics.dhchap import Secret
from kvdrive.nvme.tcp import read_hosts

_SYSTEM_NQN = Path("/etc/nvme/hostnqn")
_MACHINE_ID = Path("/etc/machine-id")
_UUID_PREFIX = "nqn.2014-08.org.nvmexpress:uuid:"


@dataclass(frozen=True)
class HostIdentity:
    """`nqn` and the 16-byte `host_id` name the host. The secrets are for drives that require DH-HMAC-CHAP."""

    nqn: str
    host_id: bytes
    secret: Secret | None = None
    controller_secret: Secret | None = None


def host_identity(path: Path | None = None) -> HostIdentity:
    """From a TOML file with one [[host]] as nvme/tcp.py shows it; without one, this machine's own name and no secret.

    Raises InputError for a file that cannot be read, that others can read, or that names not exactly one host.
    """
    if path is None:
        return _named(_own_nqn(), None, None)
    hosts = read_hosts(path)
    if len(hosts) != 1:
        raise InputError(f"{path} names {len(hosts)} hosts: it must have one [[host]], the one that this machine is")
    nqn, secret, controller_secret = hosts[0]
    return _named(nqn, secret, controller_secret)


def _named(nqn: str, secret: str | None, controller_secret: str | None) -> HostIdentity:
    if not nqn.startswith("nqn.") or len(nqn.encode()) > 223:
        raise InputError(f"'{nqn}' is no NVMe name: it begins with nqn. and has at most 223 bytes")
    parse = Secret.parse
    host_id = uuid.uuid5(uuid.NAMESPACE_URL, nqn).bytes
    return HostIdentity(
        nqn, host_id, parse(secret) if secret else None, parse(controller_secret) if controller_secret else None
    )


def _own_nqn() -> str:
    """The host name that nvme-cli gave this machine, or else one derived from the machine's identifier."""
    try:
        return _SYSTEM_NQN.read_text().strip()
    except OSError:
        pass
    try:
        machine = _MACHINE_ID.read_text().strip()
    except OSError:
        machine = f"{uuid.getnode():012x}"
    return _UUID_PREFIX + str(uuid.uuid5(uuid.NAMESPACE_OID, machine))
