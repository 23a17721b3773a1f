"""Commands of the Key Value command set (namespace 4), and their data."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from kvdrive.nvme import wire
from kvdrive.nvme.commands import Command

Bytes = NDArray[np.uint8]

_HALF = 8  # bytes of a key in each of the entry's two places


def store(key: bytes, value: Bytes, options: int = 0, *, upload: int = 0, offset: int = 0, total: int = 0) -> Command:
    """STORE of a value, or of a part of it. `options`: bits of wire.StoreOption.

    With STORE_PART `value` begins at byte `offset` of `total`; `upload` is 0 for the first part, whose result is the
    number for the others.
    """
    fields = {"options": options, "upload": upload, "offset": offset, "total": total}
    return Command(_entry(wire.ValueOpcode.VALUE_STORE, key, value.size, fields), value)


def retrieve(key: bytes, size: int, offset: int = 0, *, ahead: bool = False, urgent: bool = False) -> Command:
    """RETRIEVE of at most `size` bytes from byte `offset` on; `value_size` and `value_version` read the result.

    `ahead`: the data come at once, but their flash is read in the background of device time; with `size` 0, the device
    time waits for the latest such command whose data hold byte `offset`. `urgent`, with `ahead`: for the layer that
    computes now, not for the next one.
    """
    options = wire.RetrieveOption.RETRIEVE_OFFSET if offset else 0
    options |= wire.RetrieveOption.RETRIEVE_AHEAD if ahead else 0
    options |= wire.RetrieveOption.RETRIEVE_URGENT if urgent else 0
    fields = {"options": options, "offset": offset}
    return Command(_entry(wire.ValueOpcode.VALUE_RETRIEVE, key, size, fields), room=size)


def value_size(result: int) -> int:
    """Bytes of the whole value, from the result of RETRIEVE."""
    return result & 0xFFFFFFFF


def value_version(result: int) -> int:
    """A number that changes when the key gets another value, from the result of RETRIEVE."""
    return result >> 32


def list_keys(first: bytes, size: int) -> Command:
    """LIST of the keys that are not before `first` (b"": all), as many as `size` bytes take; `listed` reads them."""
    return Command(_entry(wire.ValueOpcode.VALUE_LIST, first, size, {}), room=size)


def listed(data: Bytes) -> list[bytes]:
    """The keys in the data of a successful LIST."""
    raw, keys, at = data.tobytes(), [], 4
    for _ in range(int.from_bytes(raw[:4], "little")):
        length = int.from_bytes(raw[at : at + 2], "little")
        keys.append(raw[at + 2 : at + 2 + length])
        at += (2 + length + 3) // 4 * 4
    return keys


def delete(key: bytes) -> Command:
    """DELETE of a key and its value."""
    return Command(_entry(wire.ValueOpcode.VALUE_DELETE, key, 0, {}))


def exist(key: bytes) -> Command:
    """EXIST: status SC_KEY_DOES_NOT_EXIST, or success."""
    return Command(_entry(wire.ValueOpcode.VALUE_EXIST, key, 0, {}))


def flush() -> Command:
    """FLUSH by the number of this namespace."""
    return Command(_entry(wire.NvmOpcode.NVM_FLUSH, b"", 0, {}))


def _entry(opcode: int, key: bytes, size: int, fields: dict[str, int]) -> bytes:
    entry = np.zeros((), wire.ValueCommand)
    entry["opcode"], entry["nsid"], entry["size"], entry["key_bytes"] = opcode, wire.NSID_VALUES, size, len(key)
    padded = np.frombuffer(key[: wire.MAX_KEY_BYTES].ljust(wire.MAX_KEY_BYTES, b"\0"), np.uint8)
    entry["key_low"], entry["key_high"] = padded[:_HALF], padded[_HALF:]
    for name, number in fields.items():
        entry[name] = number
    return entry.tobytes()
