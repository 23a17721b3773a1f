# SPDX-License-Identifier: Apache-2.0
"""Values under keys on a drive, by commands alone."""

from __future__ import annotations

import numpy as np

from kvdrive import abi
from kvdrive.nvme import values, wire

KEYS = (b"k", b"key", b"key\0", b"sixteen bytes !!")
PART = 8192  # longer values are sent in parts of this size


def put(host, key: bytes, value: bytes, options: int = 0) -> int:
    """Store a value, in parts if it is long. Returns the status of the last command that was sent."""
    data, upload, status = np.frombuffer(value, np.uint8), 0, 0
    if data.size <= PART:
        return host.raw(values.store(key, data, options).entry, data).status
    for offset in range(0, data.size, PART):
        part = data[offset : offset + PART]
        fields = {"upload": upload, "offset": offset, "total": data.size}
        reply = host.raw(values.store(key, part, options | wire.StoreOption.STORE_PART, **fields).entry, part)
        upload, status = reply.result, reply.status
        if status:
            break
    return status


def stored_keys(drive) -> list[bytes]:
    """The keys of all values, in order. There are few."""
    return values.listed(drive.submit(values.list_keys(b"", 4096).entry, None)[1])


def read_value(drive, key: bytes) -> bytes | None:
    """A value; None if a page of it is lost. The key must exist."""
    cqe, data = drive.submit(values.retrieve(key, 1 << 20).entry, None)
    status = int(np.frombuffer(cqe, abi.Cqe)[0]["status"]) >> abi.CQE_STATUS_SHIFT & 0x7FF
    assert status in (0, wire.StatusCode.SC_UNRECOVERED_ERROR)
    return None if status else data.tobytes()
