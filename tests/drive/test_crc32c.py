"""CRC-32C against published vectors (RFC 3720, B.4) and a bitwise definition."""

import numpy as np
import pytest

from kvdrive._native import crc32c, crc32c_portable


def bitwise(data: bytes) -> int:
    crc = 0xFFFFFFFF
    for byte in data:
        crc ^= byte
        for _ in range(8):
            crc = crc >> 1 ^ (0x82F63B78 if crc & 1 else 0)
    return crc ^ 0xFFFFFFFF


def of(data: bytes) -> int:
    return crc32c(np.frombuffer(data, np.uint8))


@pytest.mark.parametrize(
    ("data", "value"),
    [
        (b"", 0),
        (b"123456789", 0xE3069283),
        (bytes(32), 0x8A9136AA),
        (b"\xff" * 32, 0x62A8AB43),
        (bytes(range(32)), 0x46DD794E),
    ],
)
def test_published_vectors(data, value):
    assert of(data) == value


def test_every_length_up_to_four_words():
    data = np.random.default_rng(3).bytes(33)
    for length in range(34):
        assert of(data[:length]) == bitwise(data[:length])


@pytest.mark.parametrize("length", [4079, 4080, 4081, 4096, 8160, 12289])
def test_long_data_with_and_without_the_instruction(length):
    data = np.random.default_rng(length).integers(0, 256, length, np.uint8)
    assert crc32c(data) == crc32c_portable(data) == bitwise(data.tobytes())
