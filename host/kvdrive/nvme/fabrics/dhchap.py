"""DH-HMAC-CHAP, the host's side (NVM Express Base Specification 2.1, 8.3.4.5).

The host proves that it knows its secret. If it has the controller's secret as well, it asks the controller for the same
proof. Secrets are written as `nvme gen-dhchap-key` prints them: DHHC-1:<hash>:<base64 of key and CRC-32>:
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import hmac
import secrets
import struct
import zlib
from collections.abc import Callable
from dataclasses import dataclass

from kvdrive.errors import InputError, TargetError

_HASHES = {1: "sha256", 2: "sha384", 3: "sha512"}
_NO_GROUP, _FFDHE2048 = 0, 1
_NEGOTIATE, _CHALLENGE, _REPLY, _SUCCESS1, _SUCCESS2, _FAILURE1 = 0x00, 0x01, 0x02, 0x03, 0x04, 0xF1
_COMMON, _DHCHAP = 0, 1  # message types
_GENERATOR = 2
# The prime of RFC 7919, appendix A.1.
_PRIME = int(
    "FFFFFFFFFFFFFFFFADF85458A2BB4A9AAFDC5620273D3CF1D8B9C583CE2D3695A9E13641146433FBCC939DCE249B3EF9"
    "7D2FE363630C75D8F681B202AEC4617AD3DF1ED5D5FD65612433F51F5F066ED0856365553DED1AF3B557135E7F57C935"
    "984F0C70E0E68B77E2A689DAF3EFE8721DF158A136ADE73530ACCA4F483A797ABC0AB182B324FB61D108A94BB2C8E3FB"
    "B96ADAB760D7F4681D4F42A3DE394DF4AE56EDE76372BB190B07A7C8EE0A6D709E02FCE1CDF7E2ECC03404CD28342F61"
    "9172FE9CE98583FF8E4F1232EEF28183C3FE3B1B4C6FAD733BB5FCBC2EC22005C58EF1837D1683B2C6F34A26C1B2EFFA"
    "886B423861285C97FFFFFFFFFFFFFFFF",
    16,
)
_PRIVATE_BITS = 512
_PUBLIC_BYTES = 256


@dataclass(frozen=True)
class Secret:
    """A DHHC-1 secret. `transform`: the hash that binds the key to its owner's NQN; 0: the key is used as it is."""

    key: bytes
    transform: int = 0

    @classmethod
    def parse(cls, text: str) -> Secret:
        """Parse a secret. Raises InputError; the message does not repeat the secret."""
        parts = text.strip().split(":")
        if len(parts) != 4 or parts[0] != "DHHC-1" or parts[3] or parts[1] not in {"00", "01", "02", "03"}:
            raise InputError("a secret looks like DHHC-1:00:...: as `nvme gen-dhchap-key` prints it")
        try:
            raw = base64.b64decode(parts[2], validate=True)
        except binascii.Error as error:
            raise InputError("the secret is no base64: copy it once more") from error
        key, checksum = raw[:-4], raw[-4:]
        if len(key) not in (32, 48, 64) or zlib.crc32(key).to_bytes(4, "little") != checksum:
            raise InputError("the secret's checksum is wrong: copy it once more")
        return cls(key, int(parts[1]))

    def of(self, nqn: str) -> bytes:
        """The key, transformed for its owner `nqn`."""
        if not self.transform:
            return self.key
        return hmac.digest(self.key, nqn.encode() + b"NVMe-over-Fabrics", _HASHES[self.transform])


@dataclass(frozen=True)
class Parties:
    """Names and secrets of both sides. `controller`: the secret that the controller must prove to know."""

    host_nqn: str
    subsystem_nqn: str
    host: Secret
    controller: Secret | None = None


def authenticate(parties: Parties, send: Callable[[bytes], None], receive: Callable[[], bytes]) -> None:
    """Run one exchange over a queue: `send` and `receive` carry messages. Raises TargetError where it fails."""
    transaction = secrets.randbits(16)
    send(_negotiation(transaction))
    challenge = _Challenge.parse(_expect(receive(), _CHALLENGE, transaction))
    proof, message = _answer(parties, challenge, transaction)
    send(message)
    success = _expect(receive(), _SUCCESS1, transaction)
    if parties.controller is None:
        return
    if (
        len(success) < 16 + len(proof)
        or success[8] != 1
        or not hmac.compare_digest(success[16 : 16 + len(proof)], proof)
    ):
        raise TargetError("the drive could not prove that it knows the controller's secret: it may be another one")
    send(struct.pack("<BBHH10x", _DHCHAP, _SUCCESS2, 0, transaction))


@dataclass(frozen=True)
class _Challenge:
    hash_id: int
    group: int
    sequence: int
    value: bytes
    public: bytes

    @classmethod
    def parse(cls, message: bytes) -> _Challenge:
        size, _, hash_id, group, public_bytes, sequence = struct.unpack_from("<BBBBHI", message, 6)
        value, public = message[16 : 16 + size], message[16 + size : 16 + size + public_bytes]
        known = hash_id in _HASHES and group in (_NO_GROUP, _FFDHE2048)
        if not known or len(value) != size or len(public) != public_bytes or bool(group) != bool(public):
            raise TargetError("the drive's challenge cannot be answered: it asks for what this host did not offer")
        return cls(hash_id, group, sequence, value, public)


def _negotiation(transaction: int) -> bytes:
    hashes, groups = bytes(_HASHES), bytes((_NO_GROUP, _FFDHE2048))
    head = struct.pack("<BBHHBB", _COMMON, _NEGOTIATE, 0, transaction, 0, 1)
    offer = struct.pack("<BBBB", 1, 0, len(hashes), len(groups))
    return head + offer + hashes.ljust(30, b"\0") + groups.ljust(30, b"\0")


def _expect(message: bytes, wanted: int, transaction: int) -> bytes:
    if len(message) < 16:
        raise TargetError("the drive's authentication message is too short")
    kind, identifier, _, number = struct.unpack_from("<BBHH", message)
    if identifier == _FAILURE1:
        raise TargetError("the drive refused this host's secret: compare both sides' files of hosts")
    if (kind, identifier, number) != (_DHCHAP, wanted, transaction):
        raise TargetError("the drive answered authentication with an unexpected message")
    return message


def _answer(parties: Parties, challenge: _Challenge, transaction: int) -> tuple[bytes, bytes]:
    """The proof that is expected from the controller (empty if none is asked for), and the reply message."""
    name = _HASHES[challenge.hash_id]
    session, public = b"", b""
    if challenge.group:
        peer = int.from_bytes(challenge.public, "big")
        if not 1 < peer < _PRIME - 1:
            raise TargetError("the drive's public value is outside its group")
        private = secrets.randbits(_PRIVATE_BITS) | 1 << _PRIVATE_BITS
        public = pow(_GENERATOR, private, _PRIME).to_bytes(_PUBLIC_BYTES, "big")
        session = hashlib.new(name, pow(peer, private, _PRIME).to_bytes(_PUBLIC_BYTES, "big")).digest()

    def respond(secret: Secret, own: str, other: str, role: bytes, value: bytes, sequence: int) -> bytes:
        bound = hmac.digest(session, value, name) if session else value
        message = bound + struct.pack("<IHB", sequence, transaction, 0) + role + own.encode() + b"\0" + other.encode()
        return hmac.digest(secret.of(own), message, name)

    host, subsystem = parties.host_nqn, parties.subsystem_nqn
    proof = respond(parties.host, host, subsystem, b"HostHost", challenge.value, challenge.sequence)
    own_value, own_sequence, owed = bytes(len(proof)), 0, b""
    if parties.controller is not None:
        own_value, own_sequence = secrets.token_bytes(len(proof)), secrets.randbits(31) + 1
        owed = respond(parties.controller, subsystem, host, b"Controller", own_value, own_sequence)
    asks = parties.controller is not None
    sizes = (len(proof), 0, asks, 0, len(public), own_sequence)
    return owed, struct.pack("<BBHHBBBBHI", _DHCHAP, _REPLY, 0, transaction, *sizes) + proof + own_value + public
