"""Protocol data units (PDUs) of NVMe/TCP as the host builds and reads them (NVMe TCP Transport Specification 1.1)."""

from __future__ import annotations

import struct
from dataclasses import dataclass
from enum import IntEnum, IntFlag

import numpy as np
from numpy.typing import NDArray

from kvdrive._native import crc32c

Bytes = NDArray[np.uint8]

COMMON_BYTES = 8
DIGEST_BYTES = 4
CONNECTION_BYTES = 128  # ICReq and ICResp
MAX_HEADER_BYTES = CONNECTION_BYTES


class PduType(IntEnum):
    """Types of PDUs."""

    IC_REQ = 0x00
    IC_RESP = 0x01
    C2H_TERM = 0x03
    COMMAND = 0x04
    RESPONSE = 0x05
    H2C_DATA = 0x06
    C2H_DATA = 0x07
    READY_TO_TRANSFER = 0x09


class Flag(IntFlag):
    """Bits of a PDU's flags."""

    HEADER_DIGEST = 1
    DATA_DIGEST = 2
    LAST = 4


@dataclass(frozen=True)
class Digests:
    """Which CRC-32C checksums a connection carries."""

    header: bool = False
    data: bool = False

    @property
    def bits(self) -> int:
        """The encoding in ICReq and ICResp: bit 0 is the header digest, bit 1 the data digest."""
        return self.header | self.data << 1


@dataclass(frozen=True)
class CommonHeader:
    """The first 8 bytes of every PDU. `length`: bytes of the whole PDU with its digests."""

    kind: int
    flags: int
    header_bytes: int
    data_offset: int
    length: int

    @classmethod
    def parse(cls, data: bytes) -> CommonHeader:
        """Parse the first COMMON_BYTES bytes of a PDU."""
        return cls(*struct.unpack("<BBBBI", data))


@dataclass(frozen=True)
class DataRange:
    """The header of C2HData and R2T behind the common one: `length` bytes of a command's data, from `offset` on."""

    cid: int
    tag: int
    offset: int
    length: int

    @classmethod
    def parse(cls, header: bytes) -> DataRange:
        """Parse the whole header of a PDU."""
        return cls(*struct.unpack_from("<HHII", header, COMMON_BYTES))


def initialize_request(digests: Digests) -> bytes:
    """ICReq: data may follow its header without padding, one R2T at a time for each command."""
    common = struct.pack("<BBBBI", PduType.IC_REQ, 0, CONNECTION_BYTES, 0, CONNECTION_BYTES)
    return common + struct.pack("<HBBI", 0, 0, digests.bits, 0) + bytes(112)


def command_capsule(entry: bytes, data: Bytes | None, digests: Digests) -> list[bytes | memoryview]:
    """A submission queue entry of 64 bytes, with its data where they travel in the capsule."""
    return _pieces(PduType.COMMAND, entry, data, digests, Flag(0))


def host_data(where: DataRange, data: Bytes, digests: Digests, *, last: bool) -> list[bytes | memoryview]:
    """H2CData: `data` lies at `where.offset` of the command's data and answers the R2T with `where.tag`."""
    header = struct.pack("<HHIII", where.cid, where.tag, where.offset, data.size, 0)
    return _pieces(PduType.H2C_DATA, header, data, digests, Flag.LAST if last else Flag(0))


def checksum(data: bytes | Bytes) -> int:
    """CRC-32C of a PDU's header or data."""
    return crc32c(data if isinstance(data, np.ndarray) else np.frombuffer(data, np.uint8))


def _pieces(
    kind: PduType, header: bytes, data: Bytes | None, digests: Digests, flags: Flag
) -> list[bytes | memoryview]:
    header_bytes = COMMON_BYTES + len(header)
    offset = header_bytes + DIGEST_BYTES * digests.header
    length = offset
    if digests.header:
        flags |= Flag.HEADER_DIGEST
    if data is not None:
        length += data.size
        if digests.data:
            flags |= Flag.DATA_DIGEST
            length += DIGEST_BYTES
    front = struct.pack("<BBBBI", kind, flags, header_bytes, 0 if data is None else offset, length) + header
    if digests.header:
        front += checksum(front).to_bytes(DIGEST_BYTES, "little")
    pieces: list[bytes | memoryview] = [front]
    if data is not None:
        pieces.append(data.data)
        if digests.data:
            pieces.append(checksum(data).to_bytes(DIGEST_BYTES, "little"))
    return pieces
