"""The host's side of DH-HMAC-CHAP with Python's own primitives, and with the prime of RFC 7919 from its definition."""

from __future__ import annotations

import base64
import hashlib
import hmac
import secrets
import struct
import zlib
from dataclasses import dataclass

from tcp.initiator import FABRICS, HOST_NQN, Queue, Reply

SEND, RECEIVE = 0x05, 0x06
HASHES = {1: "sha256", 2: "sha384", 3: "sha512"}
PROTOCOL = 0xE9 << 24 | 1 << 16 | 1 << 8


def secret(key: bytes, transform: int = 0) -> str:
    return f"DHHC-1:{transform:02}:{base64.b64encode(key + struct.pack('<I', zlib.crc32(key))).decode()}:"


def ffdhe2048() -> int:
    """2^2048 - 2^1984 + (floor(2^1918 e) + 560316) 2^64 - 1."""
    bits = 1918 + 64
    e, term, n = 0, 1 << bits, 1
    while term:
        e, term, n = e + term, term // n, n + 1
    return (1 << 2048) - (1 << 1984) + ((e >> 64) + 560316 << 64) - 1


@dataclass
class Host:
    key: bytes
    subsystem: str
    transform: int = 0
    controller_key: bytes | None = None
    hashes: tuple[int, ...] = (1, 2, 3)
    groups: tuple[int, ...] = (0,)
    transaction: int = 7
    concatenation: int = 0
    group_seen: int | None = None
    hash_seen: int | None = None

    def run(self, queue: Queue) -> Reply:
        """Run the exchange and return the last reply. Asserts the controller's proof if `controller_key` is set."""
        assert self.send(queue, self.negotiation()).status == 0
        challenge = self.receive(queue)
        if challenge.status or challenge.data[1] != 0x01:
            return challenge
        reply = self.answer(challenge.data)
        assert self.send(queue, reply).status == 0
        end = self.receive(queue)
        if end.status or end.data[1] != 0x03:
            return end
        if self.controller_key is None:
            assert end.data[8] == 0
            return end
        assert end.data[8] == 1
        assert end.data[16 : 16 + len(self.proof)] == self.proof
        return self.send(queue, struct.pack("<BBHH10x", 1, 0x04, 0, self.transaction))

    def negotiation(self) -> bytes:
        lists = bytes(self.hashes).ljust(30, b"\0") + bytes(self.groups).ljust(30, b"\0")
        head = struct.pack("<BBHHBB", 0, 0, 0, self.transaction, self.concatenation, 1)
        return head + struct.pack("<BBBB", 1, 0, len(self.hashes), len(self.groups)) + lists

    def answer(self, challenge: bytes) -> bytes:
        kind, message, _, transaction, size, _, chosen, group, public_size, sequence = struct.unpack_from(
            "<BBHHBBBBHI", challenge
        )
        assert (kind, message, transaction) == (1, 1, self.transaction)
        self.hash_seen, self.group_seen = chosen, group
        name = HASHES[chosen]
        value, peer = challenge[16 : 16 + size], challenge[16 + size : 16 + size + public_size]
        session, public = b"", b""
        if group:
            prime = ffdhe2048()
            private = secrets.randbits(512)
            public = pow(2, private, prime).to_bytes(256, "big")
            shared = pow(int.from_bytes(peer, "big"), private, prime).to_bytes(256, "big")
            session = hashlib.new(name, shared).digest()

        def respond(key: bytes, own: str, other: str, role: bytes, value: bytes, sequence: int) -> bytes:
            if session:
                value = hmac.digest(session, value, name)
            if self.transform:
                key = hmac.digest(key, own.encode() + b"NVMe-over-Fabrics", HASHES[self.transform])
            tail = struct.pack("<IHB", sequence, self.transaction, self.concatenation)
            return hmac.digest(key, value + tail + role + own.encode() + b"\0" + other.encode(), name)

        proof = respond(self.key, HOST_NQN, self.subsystem, b"HostHost", value, sequence)
        mutual = self.controller_key is not None
        own_value = secrets.token_bytes(size) if mutual else bytes(size)
        if mutual:
            self.proof = respond(self.controller_key, self.subsystem, HOST_NQN, b"Controller", own_value, 99)
        head = struct.pack(
            "<BBHHBBBBHI", 1, 2, 0, self.transaction, size, 0, mutual, 0, len(public), 99 if mutual else 0
        )
        return head + proof + own_value + public

    @staticmethod
    def send(queue: Queue, message: bytes) -> Reply:
        return queue.write(FABRICS, message, SEND, dwords=(PROTOCOL, len(message)))

    @staticmethod
    def receive(queue: Queue, room: int = 4096) -> Reply:
        return queue.read(FABRICS, room, RECEIVE, dwords=(PROTOCOL, room))
