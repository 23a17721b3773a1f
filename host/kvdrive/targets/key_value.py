"""A drive as a key-value store: bytes under keys of 1 to 16 bytes, by the standard NVMe Key Value command set.

with open_drive(...) as drive:              # any Target: a file, PATH.sock, tcp://HOST:PORT, nvme:/dev/ngXnY
    values = KeyValueNamespace(drive)
    values.store(b"key", b"value")
    values.retrieve(b"key")                 # b"value"
    values.flush()                          # everything so far survives a loss of power
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Literal, NoReturn, overload

import numpy as np
from numpy.typing import NDArray

from kvdrive.errors import InputError
from kvdrive.nvme import values, wire
from kvdrive.nvme.commands import Command
from kvdrive.nvme.completions import Completion
from kvdrive.nvme.errors import KeyExistsError, MissingKeyError, ValueCommandError
from kvdrive.targets.base import Target

Bytes = NDArray[np.uint8]
BytesLike = bytes | bytearray | memoryview | NDArray[Any]  # contiguous memory
Must = Literal["exist", "not-exist"]

_LARGEST_PART = 1 << 22  # bytes of one command, where the drive takes more
_PAGE = 4096
_FIRST_BYTES = 128 << 10  # asked for before the size of a value is known
_KEYS_BYTES = 64 << 10  # of one LIST
_ATTEMPTS = 4

_CONDITIONS = {"exist": wire.StoreOption.STORE_MUST_EXIST, "not-exist": wire.StoreOption.STORE_MUST_NOT_EXIST}


class KeyValueNamespace:
    """The values of a drive. It has no state of its own: several threads and hosts may use the same keys.

    Every method raises TargetError when the drive cannot be reached, ValueCommandError when it refuses a command
    (`status` says why: CAPACITY_EXCEEDED where flash or drive memory is full), and InputError for a key that has not
    1 to 16 bytes. Other hosts see either the earlier value of a key or the new one, never a part of one.
    """

    def __init__(self, target: Target) -> None:
        self._target = target
        self._part = min(target.max_transfer_bytes, _LARGEST_PART) // _PAGE * _PAGE

    def store(self, key: bytes, value: BytesLike, must: Must | None = None, *, durable: bool = False) -> None:
        """Store up to 1 GiB under a key, or replace what is there.

        `must`: "exist" raises MissingKeyError where the key does not exist, "not-exist" raises KeyExistsError where it
        does. (If the connection is lost during a command, "not-exist" may find the value that it has stored itself.)
        `durable`: the value survives a loss of power when this returns; without it, after the next `flush`.
        """
        data = np.frombuffer(value, np.uint8)
        options = (_CONDITIONS[must] if must else 0) | durable * wire.StoreOption.STORE_FUA
        if data.size <= self._part:
            self._execute(values.store(_checked(key), data, options))
            return
        for left in reversed(range(_ATTEMPTS)):
            try:
                self._store_parts(_checked(key), data, options | wire.StoreOption.STORE_PART)
                return
            except ValueCommandError as error:
                # The drive has forgotten the parts: another controller after a lost connection, or too many uploads.
                if error.status != wire.StatusCode.SC_COMMAND_SEQUENCE or left == 0:
                    raise

    @overload
    def retrieve(self, key: bytes, offset: int = 0) -> bytes: ...
    @overload
    def retrieve(self, key: bytes, offset: int = 0, *, into: BytesLike) -> int: ...
    @overload
    def retrieve(self, key: bytes, offset: int, into: BytesLike) -> int: ...
    def retrieve(self, key: bytes, offset: int = 0, into: BytesLike | None = None) -> bytes | int:
        """The value from byte `offset` on. With `into`: as much of it as this writable buffer takes; returns how much.

        Raises MissingKeyError. A value that the drive cannot read back as it was stored raises ValueCommandError with
        status SC_UNRECOVERED_ERROR; no data are returned then.
        """
        target = None if into is None else np.frombuffer(into, np.uint8)
        if target is not None and not target.flags.writeable:
            raise InputError("retrieve needs a writable buffer: give a bytearray or an array")
        for left in reversed(range(_ATTEMPTS)):
            found = self._retrieve(_checked(key), offset, target)
            if found is not None:
                return found.tobytes() if target is None else found.size
            if left == 0:
                raise ValueCommandError("RETRIEVE", wire.StatusCode.SC_COMMAND_SEQUENCE, retry=True)
        raise AssertionError

    def size(self, key: bytes) -> int:
        """Bytes of a value. Raises MissingKeyError."""
        return values.value_size(self._execute(values.retrieve(_checked(key), 0)).result)

    def exists(self, key: bytes) -> bool:
        """True if the key exists."""
        completion = self._target.submit(values.exist(_checked(key)))
        if completion.status not in (0, wire.StatusCode.SC_KEY_DOES_NOT_EXIST):
            _refuse("EXIST", completion)
        return completion.status == 0

    def delete(self, key: bytes) -> None:
        """Forget a key and its value. A key that does not exist is no error."""
        completion = self._target.submit(values.delete(_checked(key)))
        if completion.status not in (0, wire.StatusCode.SC_KEY_DOES_NOT_EXIST):
            _refuse("DELETE", completion)

    def keys(self, start: bytes = b"") -> Iterator[bytes]:
        """The keys from `start` on, in the order of their bytes. Keys stored meanwhile may be missing."""
        last: bytes | None = None
        while True:
            command = values.list_keys(_checked(start, least=0), min(_KEYS_BYTES, self._part))
            found = values.listed(self._execute(command).data)
            fresh = found[1:] if last is not None and found[:1] == [last] else found
            if not fresh:
                return
            yield from fresh
            start = last = fresh[-1]

    def flush(self) -> None:
        """Make everything so far durable."""
        self._execute(values.flush())

    def _store_parts(self, key: bytes, data: Bytes, options: int) -> None:
        upload = 0
        for offset in range(0, data.size, self._part):
            part = data[offset : offset + self._part]
            command = values.store(key, part, options, upload=upload, offset=offset, total=data.size)
            upload = self._execute(command).result

    def _retrieve(self, key: bytes, offset: int, into: Bytes | None) -> Bytes | None:
        """What `retrieve` returns as an array; None if the key got another value meanwhile."""
        first = min(_FIRST_BYTES if into is None else into.size, self._part)
        done = self._execute(values.retrieve(key, first, offset))
        left = max(values.value_size(done.result) - offset, 0)
        whole = np.empty(left, np.uint8) if into is None else into[:left]
        whole[:first] = done.data[: whole.size]
        places = range(first, whole.size, self._part)
        commands = [values.retrieve(key, min(self._part, whole.size - at), offset + at) for at in places]
        for at, command, completion in zip(places, commands, self._target.submit_many(commands), strict=True):
            if completion.status == wire.StatusCode.SC_KEY_DOES_NOT_EXIST:
                return None
            _check(command, completion)
            if completion.result != done.result:
                return None
            whole[at : at + command.room] = completion.data[: command.room]
        return whole

    def _execute(self, command: Command) -> Completion:
        return _check(command, self._target.submit(command))


def _checked(key: bytes, least: int = 1) -> bytes:
    if not least <= len(key) <= wire.MAX_KEY_BYTES:
        raise InputError(f"a key has 1 to {wire.MAX_KEY_BYTES} bytes, not {len(key)}")
    return bytes(key)


def _check(command: Command, completion: Completion) -> Completion:
    if completion.status:
        known = command.opcode in list(wire.ValueOpcode)
        _refuse(wire.ValueOpcode(command.opcode).name.removeprefix("VALUE_") if known else "FLUSH", completion)
    return completion


def _refuse(name: str, completion: Completion) -> NoReturn:
    errors = {
        wire.StatusCode.SC_KEY_DOES_NOT_EXIST: MissingKeyError,
        wire.StatusCode.SC_KEY_EXISTS: KeyExistsError,
    }
    kind = next((kind for status, kind in errors.items() if status == completion.status), ValueCommandError)
    raise kind(name, completion.status, retry=completion.retry, cause=completion.cause)
