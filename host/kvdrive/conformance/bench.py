"""What a check works with: commands whose statuses are checked, sessions of its own, blocks, random data."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from kvdrive import abi
from kvdrive.conformance.device import Device
from kvdrive.nvme import admin, commands, namespaces, values, wire
from kvdrive.nvme.command_set import COMMANDS, GENERAL, STATUSES, Row
from kvdrive.nvme.commands import Command
from kvdrive.nvme.completions import Completion
from kvdrive.nvme.rows import decoded, encoded, joined
from kvdrive.nvme.wire import RowFormat

Halves = NDArray[np.float16]
Bytes = NDArray[np.uint8]

BLOCKS = 64  # at the end of the namespace, which the checks overwrite and restore
_FIRST_SESSION = 0xC0F00000
_KEYS = b"\xc0conf"  # the checks' keys begin so
_BY_ENTRY = {(row.namespace, row.opcode): name for name, row in COMMANDS.items()}
_NAMES = {code: name for name, code in STATUSES.items()} | {0: "SUCCESS"}


class MismatchError(Exception):
    """The drive does not do what the specification says; the message says what it did."""


def status_name(code: int) -> str:
    """A status in words."""
    return _NAMES.get(code, f"status {code:#05x}")


@dataclass
class Stored:
    """A session with K and V [heads, tokens, d] in layer 0, numbers of its format; `sequence`: of its next append."""

    number: int
    k: Halves
    v: Halves
    sequence: int = 2
    stored_as: RowFormat = RowFormat.BINARY16


class Bench:
    """One drive and its checks. `seen` collects the statuses that each command has answered."""

    def __init__(self, device: Device) -> None:
        self.device = device
        self.rng = np.random.default_rng(7)
        self.seen: dict[str, set[str]] = {name: set() for name in COMMANDS}
        self.used: list[int] = []  # session numbers that were given to checks
        self.keys: list[bytes] = []  # given to checks
        self.taken = self._sessions_of_others()
        identity = self.ok(admin.identify(wire.Cns.CNS_CONTROLLER), admin=True).data
        self.identity = admin.decode(wire.IdentifyController, identity)
        namespace = self.ok(admin.identify(wire.Cns.CNS_NAMESPACE, abi.Namespace.NVM), admin=True).data
        self.size = int(admin.decode(wire.IdentifyNamespace, namespace)["nsze"])
        memory = self.ok(admin.identify(wire.Cns.CNS_CSI_NAMESPACE, wire.NSID_MEMORY, 3), admin=True).data
        self.memory = int(admin.decode(wire.MemoryNamespace, memory)["nsze"])

    # ---- commands ----

    def send(self, command: Command, *, admin: bool = False) -> Completion:
        """Execute a command. Raises MismatchError if the specification does not list the status for it."""
        return self.note(command, self.device.send(command, admin=admin), admin=admin)

    def note(self, command: Command, completion: Completion, *, admin: bool = False) -> Completion:
        """Check a completion against the statuses that the specification lists."""
        name, row = row_of(command, admin=admin)
        if row is not None:
            allowed = {0, *(STATUSES[name] for name in (*row.statuses, *GENERAL))}
            if completion.status not in allowed:
                raise MismatchError(f"{name} answered {status_name(completion.status)}, which is not listed for it")
            self.seen[name].add(status_name(completion.status))
        return completion

    def ok(self, command: Command, *, admin: bool = False) -> Completion:
        """Execute a command that must succeed."""
        completion = self.send(command, admin=admin)
        if completion.status:
            name, _ = row_of(command, admin=admin)
            raise MismatchError(f"{name} answered {status_name(completion.status)} instead of SUCCESS")
        return completion

    def refused(self, status: str, command: Command, *, admin: bool = False, also: str = "") -> Completion:
        """Execute a command that must end with `status`, or with `also` where both apply."""
        completion = self.send(command, admin=admin)
        if status_name(completion.status) not in (status, also):
            name, _ = row_of(command, admin=admin)
            raise MismatchError(f"{name} answered {status_name(completion.status)} instead of {status}")
        return completion

    def same(self, what: str, found: Any, want: Any) -> None:
        """Raises MismatchError if two values or arrays differ; arrays are compared bit by bit."""
        if isinstance(want, np.ndarray):
            found, want = np.ascontiguousarray(found), np.ascontiguousarray(want)
            if found.tobytes() != want.tobytes():
                raise MismatchError(f"{what}: {_difference(found, want)}")
        elif found != want:
            raise MismatchError(f"{what}: {found} instead of {want}")

    # ---- sessions ----

    def session(self) -> int:
        """An unused session number. The session is ended after the check; its number is not used again."""
        number = self.used[-1] + 1 if self.used else _FIRST_SESSION
        while number in self.taken:
            number += 1
        self.used.append(number)
        return number

    def halves(self, *shape: int) -> Halves:
        """Normally distributed binary16 values."""
        return self.rng.standard_normal(shape).astype(np.float16)

    def rows(self, stored_as: RowFormat, *shape: int) -> Halves:
        """Normally distributed values, rounded to numbers of a format."""
        return decoded(encoded(self.halves(*shape), stored_as), stored_as, shape[-1])

    def store(
        self,
        tokens: int = 75,
        d: int = 64,
        heads: int = 2,
        options: int = 0,
        stored_as: RowFormat = RowFormat.BINARY16,
    ) -> Stored:
        """A new session with random K and V in layer 0, heads 0 to heads - 1."""
        k, v = (self.rows(stored_as, heads, tokens, d) for _ in range(2))
        stored = Stored(self.session(), k, v, stored_as=stored_as)
        for sequence, (kind, rows) in enumerate(((abi.KvKind.KEYS, k), (abi.KvKind.VALUES, v))):
            self.ok(commands.kv_append(stored.number, 0, 0, kind, 0, sequence, rows, joined(options, stored_as)))
        return stored

    def extend(self, stored: Stored, tokens: int, options: int = 0) -> None:
        """Append random tokens to a session."""
        heads, first, d = stored.k.shape
        for kind in abi.KvKind:
            rows = self.rows(stored.stored_as, heads, tokens, d)
            place = (stored.number, 0, 0, kind, first, stored.sequence)
            self.ok(commands.kv_append(*place, rows, joined(options, stored.stored_as)))
            stored.sequence += 1
            if kind == abi.KvKind.KEYS:
                stored.k = np.concatenate([stored.k, rows], axis=1)
            else:
                stored.v = np.concatenate([stored.v, rows], axis=1)

    def clean_up(self) -> None:
        """End the sessions and delete the keys of all checks so far. A loss of power can bring them back."""
        for number in self.used:
            self.device.send(commands.session_trim(number, 0))
        for key in self.keys:
            self.device.send(values.delete(key))

    def _sessions_of_others(self) -> set[int]:
        page = self.ok(admin.get_log_page(wire.LogPage.LOG_SESSIONS, 1 << 16), admin=True).data.view(np.uint32)
        return set(page[1 : 1 + int(page[0])].tolist())

    # ---- values ----

    def key(self, length: int = 8) -> bytes:
        """A key of 7 bytes or more for one check, which is deleted after it."""
        key = (_KEYS + len(self.keys).to_bytes(2, "big")).ljust(length, b"k")
        self.keys.append(key)
        return key

    # ---- blocks ----

    @property
    def first_block(self) -> int:
        """The first of the blocks that the checks overwrite."""
        return self.size - BLOCKS

    def noise(self, blocks: int) -> Bytes:
        """Random blocks."""
        return self.rng.integers(0, 256, blocks * wire.LBA_BYTES, np.uint8)

    @contextmanager
    def borrowed_blocks(self) -> Iterator[None]:
        """Restore the blocks that the checks overwrite."""
        before = self.device.send(namespaces.read_blocks(self.first_block, BLOCKS)).data
        try:
            yield
        finally:
            if before.any():
                self.device.send(namespaces.write_blocks(self.first_block, before))
            else:
                self.device.send(namespaces.write_zeroes(self.first_block, BLOCKS))


def row_of(command: Command, *, admin: bool) -> tuple[str, Row | None]:
    """Name and row of a command; no row where the specification has none."""
    nsid = int.from_bytes(command.entry[4:8], "little")
    namespace = 0 if admin else abi.Namespace.NVM if nsid == wire.NSID_ALL else nsid
    name = _BY_ENTRY.get((namespace, command.opcode)) if admin or namespace else None
    return (f"opcode {command.opcode:#04x}", None) if name is None else (name, COMMANDS[name])


def with_fields(command: Command, layout: np.dtype[Any] = abi.Sqe, /, **fields: int) -> Command:
    """The command with other values in some fields of its layout."""
    entry = np.frombuffer(command.entry, layout).copy()
    for name, value in fields.items():
        entry[name] = value
    return Command(entry.tobytes(), command.data, command.room)


def _difference(found: NDArray[Any], want: NDArray[Any]) -> str:
    if found.shape != want.shape:
        return f"{found.shape} values instead of {want.shape}"
    wrong = np.flatnonzero(found.reshape(-1).view(np.uint8) != want.reshape(-1).view(np.uint8))
    return f"{wrong.size} bytes differ, the first is byte {wrong[0]}"
