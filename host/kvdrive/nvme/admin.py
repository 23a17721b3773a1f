"""Admin commands as 64-byte entries, and what they return as plain values."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from kvdrive import abi
from kvdrive.nvme import wire
from kvdrive.nvme.commands import Command

_BLOCK_ERASE = 2  # SANACT
_TEXT = {"sn", "mn", "fr", "subnqn", "engine", "preset", "name"}


def command(opcode: int, *, room: int = 0, data: NDArray[np.uint8] | None = None, **fields: int) -> Command:
    """Any command, from the fields of abi.Sqe. `room`: the most bytes that the drive may return."""
    entry = np.zeros((), abi.Sqe)
    for name, value in {"opcode": opcode, **fields}.items():
        entry[name] = value
    return Command(entry.tobytes(), data, room)


def identify(cns: wire.Cns, nsid: int = 0, csi: int = 0) -> Command:
    """IDENTIFY: 4096 bytes."""
    return command(wire.AdminOpcode.IDENTIFY, room=wire.IDENTIFY_BYTES, nsid=nsid, cdw10=int(cns), cdw11=csi << 24)


def get_log_page(
    page: int, size: int, *, offset: int = 0, csi: int = 0, retain: bool = False, specific: int = 0
) -> Command:
    """GET_LOG_PAGE: `size` bytes, a multiple of 4, from byte `offset` on. `specific`: the page's own parameter."""
    dwords = size // 4 - 1
    return command(
        wire.AdminOpcode.GET_LOG_PAGE,
        room=size,
        nsid=wire.NSID_ALL,
        cdw10=page | specific << 8 | retain << 15 | (dwords & 0xFFFF) << 16,
        cdw11=dwords >> 16,
        cdw12=offset & 0xFFFFFFFF,
        cdw13=offset >> 32,
        cdw14=csi << 24,
    )


def get_feature(feature: int, select: int = 0, *, room: int = 0, cdw11: int = 0) -> Command:
    """GET_FEATURES: the result is the value, or `room` bytes of data hold it."""
    return command(wire.AdminOpcode.GET_FEATURES, room=room, cdw10=feature | select << 8, cdw11=cdw11)


def set_feature(feature: int, value: int = 0, *, save: bool = False, data: NDArray[np.uint8] | None = None) -> Command:
    """SET_FEATURES."""
    return command(wire.AdminOpcode.SET_FEATURES, cdw10=feature | save << 31, cdw11=value, data=data)


def sanitize() -> Command:
    """SANITIZE by block erase: when it completes, no byte of any session or block remains."""
    return command(wire.AdminOpcode.SANITIZE, cdw10=_BLOCK_ERASE)


def decode(layout: np.dtype[Any], data: NDArray[np.uint8]) -> dict[str, Any]:
    """The fields of a layout of `wire` by name: numbers, texts, lists; reserved ones are left out."""
    record = data[: layout.itemsize].view(layout)[0]
    found: dict[str, Any] = {}
    for name in layout.names or ():
        value = record[name]
        if "reserved" in name:
            continue
        if name in _TEXT:
            found[name] = value.tobytes().split(b"\0")[0].decode("ascii", "replace").strip()
        elif np.ndim(value) == 1 and value.dtype == np.uint64 and value.size == 2:
            found[name] = int(value[0]) | int(value[1]) << 64
        else:
            found[name] = value.tolist()
    return found
