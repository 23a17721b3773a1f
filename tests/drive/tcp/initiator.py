"""A small NVMe/TCP host, written from the specification and without the drive's code: one object per queue."""

from __future__ import annotations

import socket
import struct
from dataclasses import dataclass, field

HOST_NQN = "nqn.2014-08.org.nvmexpress:uuid:11111111-2222-3333-4444-555555555555"
HOST_ID = bytes(range(16))
DISCOVERY_NQN = "nqn.2014-08.org.nvmexpress.discovery"
IC_REQ, IC_RESP, H2C_TERM, C2H_TERM, COMMAND, RESPONSE, H2C_DATA, C2H_DATA, R2T = 0, 1, 2, 3, 4, 5, 6, 7, 9
HEADER_DIGEST, DATA_DIGEST, LAST = 1, 2, 4
FABRICS, CONNECT, PROPERTY_SET, PROPERTY_GET, DISCONNECT = 0x7F, 0x01, 0x00, 0x04, 0x08
CAP, VS, CC, CSTS = 0x00, 0x08, 0x14, 0x1C

TABLE = []
for number in range(256):
    for _ in range(8):
        number = number >> 1 ^ (0x82F63B78 if number & 1 else 0)
    TABLE.append(number)


def crc32c(data: bytes) -> int:
    crc = 0xFFFFFFFF
    for byte in data:
        crc = crc >> 8 ^ TABLE[(crc ^ byte) & 0xFF]
    return crc ^ 0xFFFFFFFF


@dataclass
class Reply:
    """A completion: status is code type << 8 | code."""

    status: int
    result: int
    cid: int
    sq_head: int
    retry: bool
    data: bytes = b""


class TerminatedError(Exception):
    """The controller sent a termination request: (fatal error status, information)."""


@dataclass
class Queue:
    """A connection. `digests`: bit 0 header, bit 1 data. `alignment`: HPDA."""

    port: int
    digests: int = 0
    alignment: int = 0
    initialize: bool = True
    socket: socket.socket = field(init=False)
    limit: int = 0
    cid: int = 0
    requests: list[tuple[int, int, int]] = field(default_factory=list)  # R2Ts seen: cid, offset, length

    def __post_init__(self) -> None:
        self.socket = socket.create_connection(("127.0.0.1", self.port), timeout=10)
        if self.initialize:
            self.negotiate()

    def close(self) -> None:
        self.socket.close()

    # ---- PDUs ----

    def negotiate(self, **fields: int) -> None:
        self.send_raw(ic_req(self.digests, self.alignment, **fields))
        kind, body = self.receive_pdu(digests=0)
        assert kind == IC_RESP
        assert len(body) == 120
        version, alignment, digests, self.limit = struct.unpack_from("<HBBI", body)
        assert (version, alignment, digests) == (0, 0, self.digests)
        assert self.limit >= 4096
        assert self.limit % 4 == 0

    def send_raw(self, data: bytes) -> None:
        self.socket.sendall(data)

    def receive_exactly(self, count: int) -> bytes:
        data = bytearray()
        while len(data) < count:
            piece = self.socket.recv(count - len(data))
            if not piece:
                raise EOFError("the controller closed the connection")
            data += piece
        return bytes(data)

    def receive_pdu(self, digests: int | None = None) -> tuple[int, bytes]:
        """(type, header behind the common one + data), digests checked."""
        digests = self.digests if digests is None else digests
        common = self.receive_exactly(8)
        kind, flags, header, offset, length = struct.unpack("<BBBBI", common)
        assert length <= 1 << 20
        body = self.receive_exactly(length - 8)
        if kind == C2H_TERM:
            status, information = struct.unpack_from("<HI", body)
            raise TerminatedError(status, information)
        has_data = kind == C2H_DATA
        assert flags & 3 == (digests & 1) | (digests & 2 if has_data else 0)
        if digests & 1:
            (digest,) = struct.unpack_from("<I", body, header - 8)
            assert digest == crc32c(common + body[: header - 8])
        if not has_data:
            assert length == header + (4 if digests & 1 else 0) or kind == IC_RESP
            return kind, body[: header - 8]
        assert offset % (4 * (self.alignment + 1)) == 0
        assert offset >= header + (4 if digests & 1 else 0)
        end = len(body) - (4 if digests & 2 else 0)
        data = body[offset - 8 : end]
        if digests & 2:
            assert struct.unpack_from("<I", body, end)[0] == crc32c(data)
        return kind, body[: header - 8] + data

    def pdu(self, kind: int, header: bytes, data: bytes = b"", flags: int = 0, padding: int = 0) -> bytes:
        """Build a PDU. `header` excludes the common header."""
        header_bytes = 8 + len(header)
        front = header_bytes + (4 if self.digests & 1 else 0) + padding
        has_digest = self.digests & 2 and data
        flags |= (self.digests & 1) | (2 if has_digest else 0)
        length = front + len(data) + (4 if has_digest else 0)
        common = struct.pack("<BBBBI", kind, flags, header_bytes, front if data else 0, length if data else front)
        out = common + header
        if self.digests & 1:
            out += struct.pack("<I", crc32c(out))
        if data:
            out += bytes(padding) + data
        if has_digest:
            out += struct.pack("<I", crc32c(data))
        return out

    # ---- commands ----

    def entry(
        self, opcode: int, nsid: int = 0, *, dwords: tuple[int, ...] = (), cdw2: int = 0, cdw3: int = 0, **sgl: int
    ) -> bytes:
        """A submission queue entry with the next command identifier; `sgl`: kind, length, address."""
        self.cid = (self.cid + 1) % 0xFFF0
        dwords = (*dwords, *[0] * (6 - len(dwords)))
        pointer = struct.pack("<QI3xB", sgl.get("address", 0), sgl.get("length", 0), sgl.get("kind", 0x5A))
        head = struct.pack("<BBHIII8x", opcode, sgl.get("flags", 0x40), self.cid, nsid, cdw2, cdw3)
        return head + pointer + struct.pack("<6I", *dwords)

    def send_command(self, entry: bytes, data: bytes = b"") -> int:
        """`data` goes in the capsule. The command identifier."""
        self.send_raw(self.pdu(COMMAND, entry, data))
        return struct.unpack_from("<H", entry, 2)[0]

    def write(self, opcode: int, data: bytes, nsid: int = 1, in_capsule: bool = True, **fields: object) -> Reply:
        kind = 0x01 if in_capsule else 0x5A
        entry = self.entry(opcode, nsid, length=len(data), kind=kind, **fields)
        cid = self.send_command(entry, data if in_capsule else b"")
        return self.finish(cid, {cid: data})

    def read(self, opcode: int, length: int, nsid: int = 1, **fields: object) -> Reply:
        return self.finish(self.send_command(self.entry(opcode, nsid, length=length, **fields)))

    def plain(self, opcode: int, nsid: int = 1, **fields: object) -> Reply:
        return self.read(opcode, 0, nsid, **fields)

    def finish(self, cid: int, outgoing: dict[int, bytes] | None = None) -> Reply:
        """Serve R2Ts and collect data until the completion of `cid`."""
        data = bytearray()
        while True:
            kind, body = self.receive_pdu()
            if kind == R2T:
                self.serve_request(body, outgoing or {})
            elif kind == C2H_DATA:
                owner, _, offset, length = struct.unpack_from("<HHII", body)
                assert owner == cid
                assert offset == len(data)
                assert length == len(body) - 16
                data += body[16:]
            else:
                assert kind == RESPONSE
                result, head, queue, owner, status = struct.unpack("<QHHHH", body)
                assert owner == cid
                assert queue == 0
                assert status & 1 == 0
                return Reply(status >> 1 & 0x7FF, result, owner, head, not status & 0x8000, bytes(data))

    def serve_request(self, body: bytes, outgoing: dict[int, bytes], piece: int = 0) -> None:
        """Answer an R2T in pieces of at most the size that the controller accepts."""
        cid, tag, offset, length = struct.unpack_from("<HHII", body)
        self.requests.append((cid, offset, length))
        step = piece or self.limit
        for start in range(offset, offset + length, step):
            end = min(start + step, offset + length)
            self.send_data(cid, tag, start, outgoing[cid][start:end], last=end == offset + length)

    def send_data(self, cid: int, tag: int, offset: int, data: bytes, last: bool) -> None:
        header = struct.pack("<HHIII", cid, tag, offset, len(data), 0)
        self.send_raw(self.pdu(H2C_DATA, header, data, LAST if last else 0))

    # ---- fabrics ----

    def connect(self, nqn: str, queue: int = 0, controller: int = 0xFFFF, **fields: object) -> Reply:
        """Send Connect. Optional: host, host_id, entries (0-based), kato, attributes, format, in_capsule."""
        host = str(fields.get("host", HOST_NQN)).encode()
        data = bytes(fields.get("host_id", HOST_ID)) + struct.pack("<H", controller) + bytes(238)
        data += nqn.encode().ljust(256, b"\0") + host.ljust(256, b"\0") + bytes(256)
        dwords = (
            int(fields.get("format", 0)) | queue << 16,
            int(fields.get("entries", 31)) | int(fields.get("attributes", 0)) << 16,
            int(fields.get("kato", 0)),
        )
        return self.write(FABRICS, data, CONNECT, bool(fields.get("in_capsule", True)), dwords=dwords)

    def get_property(self, offset: int, size: int = 4) -> Reply:
        return self.plain(FABRICS, PROPERTY_GET, dwords=(1 if size == 8 else 0, offset))

    def set_property(self, offset: int, value: int) -> Reply:
        return self.plain(FABRICS, PROPERTY_SET, dwords=(0, offset, value))

    def enable(self) -> None:
        """Enable the controller by CC: I/O queue entries of 64 and 16 bytes, all command sets."""
        assert self.set_property(CC, 1 | 6 << 4 | 6 << 16 | 4 << 20).status == 0
        assert self.get_property(CSTS).result & 1 == 1

    def expect_end(self) -> None:
        """Assert that no further byte comes and that the controller has closed the connection."""
        assert self.socket.recv(1) == b""


def ic_req(digests: int = 0, alignment: int = 0, *, version: int = 0, requests: int = 0, length: int = 128) -> bytes:
    common = struct.pack("<BBBBI", IC_REQ, 0, 128, 0, length)
    return common + struct.pack("<HBBI", version, alignment, digests, requests) + bytes(112)
