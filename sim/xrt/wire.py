# SPDX-License-Identifier: Apache-2.0
"""The protocol between XRT's emulation shim and a device process: calls over a Unix socket, fields as in protobuf.

A call is 14 bytes (body size, number of the call), then the body. A response is 9 bytes (body size), then the body.
Source: rpc_messages.proto and unix_socket.cxx of XRT 2.13, src/runtime_src/core/pcie/emulation.
"""

from __future__ import annotations

import socket
import struct
from enum import IntEnum

_CALL = struct.Struct("<BQBI")  # tag of field 1, size; tag of field 2, number
_RESPONSE = struct.Struct("<BQ")
_CALL_TAGS = (0x09, 0x15)
_VARINT, _FIXED64, _BYTES, _FIXED32 = 0, 1, 2, 5

Value = int | bytes
Fields = dict[int, list[Value]]


class Call(IntEnum):
    """The calls of the shims for software emulation (cpu_em) and hardware emulation (hw_em)."""

    CLOSE = 1
    LOAD_BITSTREAM = 3
    ALLOC_BUFFER = 4
    FREE_BUFFER = 5
    COPY_TO_DEVICE = 6
    COPY_TO_HOST = 7
    WRITE_RAM = 8
    WRITE_KERNEL = 9
    READ_RAM = 10
    READ_KERNEL = 11
    COPY_BO = 22
    IMPORT_BO = 27
    SETUP_INSTANCE = 28
    COPY_BO_FROM_FD = 50
    REGISTER_WRITE = 51
    REGISTER_READ = 52


class WireError(Exception):
    """The bytes are not of this protocol."""


def decode(body: bytes) -> Fields:
    """The fields of a message by number. Raises WireError."""
    fields: Fields = {}
    at = 0
    try:
        while at < len(body):
            tag, at = _read_varint(body, at)
            value: Value
            kind = tag & 7
            if kind == _VARINT:
                value, at = _read_varint(body, at)
            elif kind == _BYTES:
                size, at = _read_varint(body, at)
                value, at = body[at : at + size], at + size
                if len(value) != size:
                    raise WireError("a field is longer than its message")
            elif kind in (_FIXED32, _FIXED64):
                size = 4 if kind == _FIXED32 else 8
                value, at = int.from_bytes(body[at : at + size], "little"), at + size
            else:
                raise WireError(f"no field has type {kind}")
            fields.setdefault(tag >> 3, []).append(value)
    except IndexError:
        raise WireError("a message ends within a number") from None
    return fields


def encode(*fields: tuple[int, Value]) -> bytes:
    """A message of these fields, in order."""
    parts = bytearray()
    for number, value in fields:
        if isinstance(value, int):
            parts += _varint(number << 3 | _VARINT) + _varint(value)
        else:
            parts += _varint(number << 3 | _BYTES) + _varint(len(value)) + value
    return bytes(parts)


class Message:
    """A decoded call. Missing fields are 0 or empty, as in protobuf."""

    def __init__(self, body: bytes) -> None:
        self._fields = decode(body)

    def number(self, field: int) -> int:
        value = self._fields.get(field, [0])[0]
        if not isinstance(value, int):
            raise WireError(f"field {field} is no number")
        return value

    def data(self, field: int) -> bytes:
        value = self._fields.get(field, [b""])[0]
        if isinstance(value, int):
            raise WireError(f"field {field} holds no bytes")
        return value

    def text(self, field: int) -> str:
        return self.data(field).decode()

    def messages(self, field: int) -> list[Message]:
        return [Message(value) for value in self._fields.get(field, []) if isinstance(value, bytes)]


def receive(connection: socket.socket) -> tuple[int, bytes]:
    """The next call: its number and body. Raises EOFError when the host is gone, WireError."""
    size_tag, size, number_tag, number = _CALL.unpack(_exactly(connection, _CALL.size))
    if (size_tag, number_tag) != _CALL_TAGS:
        raise WireError("a call does not begin with its size and number")
    return number, _exactly(connection, size)


def respond(connection: socket.socket, body: bytes) -> None:
    connection.sendall(_RESPONSE.pack(_CALL_TAGS[0], len(body)) + body)


def _exactly(connection: socket.socket, size: int) -> bytes:
    data = bytearray(size)
    view, filled = memoryview(data), 0
    while filled < size:
        count = connection.recv_into(view[filled:])
        if count == 0:
            raise EOFError
        filled += count
    return bytes(data)


def _read_varint(data: bytes, at: int) -> tuple[int, int]:
    value = shift = 0
    while True:
        byte = data[at]
        value |= (byte & 0x7F) << shift
        at, shift = at + 1, shift + 7
        if byte < 0x80:
            return value, at


def _varint(value: int) -> bytes:
    out = bytearray()
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    return bytes([*out, value])
