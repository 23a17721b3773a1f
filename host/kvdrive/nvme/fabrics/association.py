"""A host's association with a controller of a remote drive: admin queue, I/O queues, keep-alive, reconnection.

A broken I/O queue is connected again to the same controller. If the admin queue is lost as well, a new controller
replaces the old one. Sessions belong to the drive, so every controller sees them.
"""

from __future__ import annotations

import logging
import struct
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

from kvdrive.errors import TargetError
from kvdrive.nvme import admin, wire
from kvdrive.nvme.commands import Command
from kvdrive.nvme.completions import Completion
from kvdrive.nvme.fabrics.connection import ConnectionLostError, QueueConnection
from kvdrive.nvme.fabrics.dhchap import Parties, authenticate
from kvdrive.nvme.fabrics.identity import HostIdentity, host_identity
from kvdrive.nvme.fabrics.pdu import Digests

Result = TypeVar("Result")

DISCOVERY_NQN = "nqn.2014-08.org.nvmexpress.discovery"
_CONNECT, _PROPERTY_SET, _PROPERTY_GET, _AUTH_SEND, _AUTH_RECEIVE = 0x01, 0x00, 0x04, 0x05, 0x06
_ANY_CONTROLLER = 0xFFFF
_WANTS_AUTHENTICATION = 3 << 16  # in Connect's result
_AUTH_PROTOCOL = 0xE9 << 24 | 1 << 16 | 1 << 8  # SECP, SPSP1, SPSP0
_AUTH_ROOM = 4096
_ENABLE = 1 | 6 << 4 | 6 << 16 | 4 << 20  # CC: all command sets, entries of 64 and 16 bytes
_READY, _FATAL = 1, 2  # CSTS
_ADMIN_ENTRIES = 32
_DISCOVERY_LOG = 0x70
_DISCOVERY_RECORD = 1024
_NVM_SUBSYSTEM = 2
_KEEP_ALIVE_SHARE = 3  # keep-alives sent per keep-alive timeout
_UNAUTHORISED = {0x184: "the drive does not know this host", 0x191: "the drive wants this host's secret"}
log = logging.getLogger(__name__)


@dataclass(frozen=True)
class RemoteOptions:
    """`timeout`: seconds that one step may take. `reconnect`: seconds to try for when a connection is lost.

    `keep_alive`: after so many seconds of silence the drive gives up this host; 0 switches that off.
    """

    identity: HostIdentity = field(default_factory=host_identity)
    io_queues: int = 2
    entries: int = 128
    digests: Digests = field(default_factory=Digests)
    timeout: float = 30.0
    reconnect: float = 10.0
    keep_alive: float = 15.0


class Association:
    """Queues to the drive at `address`; `nqn` names its subsystem, "" asks the drive's discovery service.

    Raises TargetError.
    """

    def __init__(self, address: tuple[str, int], options: RemoteOptions, nqn: str = "") -> None:
        self.address = address
        self.options = options
        self._nqn = nqn or self._discover()
        self._admin_lock = threading.Lock()
        self._admin: QueueConnection | None = None
        self._controller = _ANY_CONTROLLER
        self._entries = options.entries
        self._in_capsule = 0
        self._closed = threading.Event()
        with self._admin_lock:
            self.identity = self._establish()
        self._pulse = threading.Thread(target=self._keep_alive, name="kvdrive-keep-alive", daemon=True)
        if options.keep_alive:
            self._pulse.start()

    def admin(self, command: Command) -> Completion:
        """Execute an admin command. Connects the admin queue again if it was lost. Raises TargetError."""
        with self._admin_lock:
            return self._again(lambda: self._living_admin().execute(command), self._drop_admin)

    def connect_queue(self, number: int) -> QueueConnection:
        """Connect I/O queue `number`, counted from 1. Raises ConnectionLostError, TargetError."""
        with self._admin_lock:
            self._living_admin()
            try:
                return self._open(number, self._entries)[0]
            except ConnectionLostError:
                # The controller may be lost although the admin queue still looks connected.
                self._drop_admin()
                raise

    def retry(self, work: Callable[[], Result]) -> Result:
        """Repeat `work` until it succeeds or the time for reconnecting is over. Raises TargetError."""
        return self._again(work, lambda: None)

    def close(self) -> None:
        """Close the admin queue, which ends the association."""
        self._closed.set()
        with self._admin_lock:
            self._drop_admin()

    # ---- one controller ----

    def _living_admin(self) -> QueueConnection:
        if self._closed.is_set():
            raise TargetError("the drive is closed: open it again")
        if self._admin is None:
            self._establish()
        assert self._admin is not None
        return self._admin

    def _drop_admin(self) -> None:
        if self._admin is not None:
            self._admin.close()
        self._admin, self._controller = None, _ANY_CONTROLLER

    def _establish(self) -> dict[str, object]:
        """Connect to a new controller, enable it and identify it."""
        self._controller = _ANY_CONTROLLER
        queue, self._controller = self._open(0, _ADMIN_ENTRIES)
        try:
            capabilities = _property(queue, wire.Property.CAP, 8)
            self._entries = min(self.options.entries, (capabilities & 0xFFFF) + 1)
            _enable(queue, time.monotonic() + self.options.timeout)
            identity = admin.decode(
                wire.IdentifyController, _must(queue.execute(admin.identify(wire.Cns.CNS_CONTROLLER)), "Identify").data
            )
        except BaseException:
            queue.close()
            raise
        self._in_capsule = max(0, int(identity["ioccsz"]) * 16 - 64)
        self._admin = queue
        return identity

    def _open(self, number: int, entries: int) -> tuple[QueueConnection, int]:
        """Connect queue `number` of the controller and authenticate. Returns the queue and the controller's number."""
        queue = QueueConnection(self.address, self.options.digests, self.options.timeout)
        try:
            return queue, self._connect(queue, number, entries)
        except BaseException:
            queue.close()
            raise

    def _connect(self, queue: QueueConnection, number: int, entries: int) -> int:
        identity = self.options.identity
        done = queue.execute(
            _connect_command(self._nqn, identity, number, entries, self._controller, self._kato(number))
        )
        if done.status:
            reason = _UNAUTHORISED.get(done.status)
            if reason:
                raise TargetError(f"{self._place()}: {reason} ({identity.nqn}): give both sides the same secret")
            raise ConnectionLostError(f"{self._place()} refused a connection with status {done.status:#x}")
        queue.entries = entries
        if number:
            queue.in_capsule_bytes = self._in_capsule
        if done.result & _WANTS_AUTHENTICATION:
            self._authenticate(queue)
        elif identity.controller_secret is not None:
            raise TargetError(f"{self._place()} does not authenticate, but this host has a secret of the drive's")
        return done.result & 0xFFFF

    def _authenticate(self, queue: QueueConnection) -> None:
        identity = self.options.identity
        if identity.secret is None:
            raise TargetError(f"{self._place()} wants a secret of {identity.nqn}: name the file that holds it")

        def send(message: bytes) -> None:
            data = np.frombuffer(message, np.uint8)
            _must(
                queue.execute(_fabrics(_AUTH_SEND, data, cdw10=_AUTH_PROTOCOL, cdw11=data.size)), "Authentication Send"
            )

        def receive() -> bytes:
            command = _fabrics(_AUTH_RECEIVE, room=_AUTH_ROOM, cdw10=_AUTH_PROTOCOL, cdw11=_AUTH_ROOM)
            return _must(queue.execute(command), "Authentication Receive").data.tobytes()

        parties = Parties(identity.nqn, self._nqn, identity.secret, identity.controller_secret)
        authenticate(parties, send, receive)

    def _discover(self) -> str:
        """The name of the subsystem that the discovery service at the address lists."""
        queue = QueueConnection(self.address, Digests(), self.options.timeout)
        try:
            connect = _connect_command(DISCOVERY_NQN, self.options.identity, 0, _ADMIN_ENTRIES, _ANY_CONTROLLER, 0)
            _must(queue.execute(connect), "Connect to the discovery service")
            _enable(queue, time.monotonic() + self.options.timeout)
            page = admin.get_log_page(_DISCOVERY_LOG, 2 * _DISCOVERY_RECORD)
            record = _must(queue.execute(page), "Get Log Page").data.tobytes()[_DISCOVERY_RECORD:]
        finally:
            queue.close()
        nqn = record[256:512].split(b"\0")[0].decode("ascii", "replace")
        if len(record) < _DISCOVERY_RECORD or record[2] != _NVM_SUBSYSTEM or not nqn.startswith("nqn."):
            raise TargetError(
                f"{self._place()} lists no drive for this host: its file of hosts must name {self.options.identity.nqn}"
            )
        return nqn

    # ---- time ----

    def _kato(self, number: int) -> int:
        """The keep-alive timeout in ms; 0 for I/O queues, because only the admin queue's Connect carries it."""
        return 0 if number else int(self.options.keep_alive * 1000)

    def _keep_alive(self) -> None:
        while not self._closed.wait(self.options.keep_alive / _KEEP_ALIVE_SHARE):
            try:
                self.admin(admin.command(wire.AdminOpcode.KEEP_ALIVE))
            except TargetError as error:
                log.info("%s: no keep-alive: %s", self._place(), error)

    def _again(self, work: Callable[[], Result], lost: Callable[[], None]) -> Result:
        """Do `work`; repeat it after a lost connection, for up to `options.reconnect` seconds."""
        deadline, pause = time.monotonic() + self.options.reconnect, 0.05
        while True:
            try:
                return work()
            except ConnectionLostError as error:
                lost()
                if time.monotonic() + pause > deadline or self._closed.wait(pause):
                    raise TargetError(f"{self._place()}: {error}") from error
                log.info("%s: %s; connecting again", self._place(), error)
                pause = min(2 * pause, 1.0)

    def _place(self) -> str:
        return f"{self.address[0]}:{self.address[1]}"


def _connect_command(
    nqn: str, identity: HostIdentity, number: int, entries: int, controller: int, kato: int
) -> Command:
    data = identity.host_id + struct.pack("<H", controller) + bytes(238)
    data += nqn.encode().ljust(256, b"\0") + identity.nqn.encode().ljust(256, b"\0") + bytes(256)
    where = {"cdw10": number << 16, "cdw11": entries - 1, "cdw12": kato}
    return _fabrics(_CONNECT, np.frombuffer(data, np.uint8), **where)


def _fabrics(
    kind: int, data: NDArray[np.uint8] | None = None, *, room: int = 0, cdw10: int = 0, cdw11: int = 0, cdw12: int = 0
) -> Command:
    """A fabrics command. Its type is in the field that holds the namespace in other commands."""
    opcode = wire.AdminOpcode.FABRICS
    return admin.command(opcode, room=room, data=data, nsid=kind, cdw10=cdw10, cdw11=cdw11, cdw12=cdw12)


def _property(queue: QueueConnection, offset: wire.Property, size: int) -> int:
    return _must(queue.execute(_fabrics(_PROPERTY_GET, cdw10=int(size == 8), cdw11=offset)), "Property Get").result


def _enable(queue: QueueConnection, deadline: float) -> None:
    """Enable the controller and wait until it is ready. Raises TargetError."""
    _must(queue.execute(_fabrics(_PROPERTY_SET, cdw11=wire.Property.CC, cdw12=_ENABLE)), "Property Set")
    while not (state := _property(queue, wire.Property.CSTS, 4)) & _READY:
        if state & _FATAL or time.monotonic() > deadline:
            raise TargetError("the controller does not become ready")
        time.sleep(0.01)


def _must(done: Completion, what: str) -> Completion:
    if done.status:
        raise TargetError(f"{what} failed with status {done.status:#x}")
    return done
