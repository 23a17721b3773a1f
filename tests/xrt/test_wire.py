# SPDX-License-Identifier: Apache-2.0
"""The protocol between XRT's shim and the device process."""

import socket

import pytest
from hypothesis import given
from hypothesis import strategies as st

from xrt import wire

FIELDS = st.lists(st.tuples(st.integers(1, 500), st.integers(0, 2**64 - 1) | st.binary(max_size=300)), max_size=8)


@given(FIELDS)
def test_what_is_encoded_is_decoded(fields: list) -> None:
    expected: dict = {}
    for number, value in fields:
        expected.setdefault(number, []).append(value)
    assert wire.decode(wire.encode(*fields)) == expected


@given(st.binary(max_size=64))
def test_any_bytes_are_fields_or_refused(body: bytes) -> None:
    try:
        fields = wire.decode(body)
    except wire.WireError:
        return
    assert all(values for values in fields.values())


def test_calls_and_responses_have_the_headers_of_the_shim() -> None:
    host, device = socket.socketpair()
    with host, device:
        body = wire.encode((1, 7))
        host.sendall(
            bytes.fromhex("09")
            + len(body).to_bytes(8, "little")
            + bytes.fromhex("15")
            + (11).to_bytes(4, "little")
            + body
        )
        assert wire.receive(device) == (wire.Call.READ_KERNEL, body)
        wire.respond(device, body)
        assert host.recv(100) == bytes.fromhex("09") + len(body).to_bytes(8, "little") + body
        host.sendall(bytes(14))
        with pytest.raises(wire.WireError):
            wire.receive(device)
        host.close()
        with pytest.raises(EOFError):
            wire.receive(device)
