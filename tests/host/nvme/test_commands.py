"""The place of each field in the 64-byte command, and the meaning of completions."""

import struct

import numpy as np
import pytest

from kvdrive import abi
from kvdrive._native import crc32c
from kvdrive.nvme import commands, wire
from kvdrive.nvme.completions import decode
from kvdrive.nvme.entries import EntryLayout
from kvdrive.nvme.errors import CommandError


def dwords(command):
    return struct.unpack("<16I", command.entry)


def test_append_layout():
    rows = np.arange(2 * 3 * 32).reshape(2, 3, 32).astype(np.float16)
    command = commands.kv_append(0x11223344, 5, 6, abi.KvKind.VALUES, 1000, 77, rows)
    words = dwords(command)
    assert words[0] == 0x81
    assert words[1] == abi.Namespace.NVM
    assert words[2] == 0x11223344
    assert words[3] == 5 << 16 | 2 << 8 | 6
    assert words[4:10] == (0,) * 6
    assert words[10:] == (1000, 0 << 24 | 1 << 16 | 3, 64, 77, crc32c(command.data), 0)
    assert command.data.tobytes() == rows.tobytes()


def test_append_sends_the_values_of_a_strided_view():
    rows = np.arange(4 * 2 * 32).reshape(4, 2, 32).astype(np.float16).transpose(1, 0, 2)
    assert commands.kv_append(1, 0, 0, abi.KvKind.KEYS, 0, 0, rows).data.tobytes() == rows.copy().tobytes()


def test_trim_layout():
    words = dwords(commands.session_trim(9, 1234))
    assert words == (0x84, abi.Namespace.NVM, 9, 0, *(0,) * 6, 1234, *(0,) * 5)


def test_append_options_flush_and_fork_layout():
    rows = np.ones((1, 1, 32), np.float16)
    options = abi.AppendOption.APPEND_FUA | abi.AppendOption.APPEND_SPARSE
    assert dwords(commands.kv_append(1, 0, 0, abi.KvKind.KEYS, 0, 0, rows, options))[15] == 3
    assert dwords(commands.flush()) == (0x00, abi.Namespace.NVM, *(0,) * 14)
    removed = commands.session_remove(9, range(32, 96), 500, layers=30)
    assert dwords(removed) == (0x90, abi.Namespace.NVM, 9, *(0,) * 7, 32, 64, 500, 30, 0, 0)
    assert dwords(commands.session_fork(9, 10, 500)) == (0x88, abi.Namespace.NVM, 9, *(0,) * 7, 10, 500, *(0,) * 4)


def test_submit_layout():
    q = np.ones((3, 4, 64), np.float16)
    command = commands.attn_submit(9, 2, 1, q, 1000, 0x3F800000)
    words = dwords(command)
    assert words[:4] == (0x85, abi.Namespace.CP, 9, 2 << 16 | 3 << 8 | 1)
    assert words[10:] == (1000, 4 << 8 | abi.Mode.EXACT, 0, 0, crc32c(command.data), 0x3F800000)
    assert command.data.size == 3 * 4 * 64 * 2


@pytest.mark.parametrize(("tokens", "beats"), [(1, 1), (512, 1), (513, 2)])
def test_submit_pads_the_bitmap_to_whole_beats(tokens, beats):
    valid = np.random.default_rng(tokens).random(tokens) < 0.5
    command = commands.attn_submit(1, 0, 0, np.ones((1, 1, 32), np.float16), tokens, 0, valid)
    bitmap = command.data[64:]
    assert bitmap.size == beats * 64
    bits = np.unpackbits(bitmap, bitorder="little")
    np.testing.assert_array_equal(bits[:tokens], valid)
    assert not bits[tokens:].any()
    assert dwords(command)[11] >> 16 & 0xFF == 1


def test_fetch_layout():
    assert dwords(commands.attn_fetch(7, 2, 4, 64))[10:12] == (7, 2 * (192 + 4 * 64 * 2))


def test_encode_changes_the_identifier_only():
    command = commands.session_trim(9, 0)
    entry = command.encode(0xABCD)
    assert struct.unpack_from("<H", entry, 2) == (0xABCD,)
    assert entry[:2] + bytes(2) + entry[4:] == command.entry


def completion(status, result=0, retry=False):
    word = status << 1 | (0 if retry else 0x8000)
    return decode(struct.pack("<QHHHH", result, 0, 0, 42, word), np.zeros(0, np.uint8))


def test_success_is_returned():
    done = completion(0, result=1 << 40).check(abi.Opcode.KV_APPEND)
    assert (done.identifier, done.status, done.result) == (42, 0, 1 << 40)


@pytest.mark.parametrize(
    ("status", "result", "text"),
    [
        (abi.NvmeStatus.CAPACITY_EXCEEDED, 0, "KV_APPEND failed: CAPACITY_EXCEEDED (the drive is full: trim"),
        (abi.NvmeStatus.TOKEN_GAP, 0, "KV_APPEND failed: TOKEN_GAP"),
        (abi.NvmeStatus.JOB_REFUSED, abi.Status.BAD_SCALE | abi.Status.BAD_LENGTH, "BAD_LENGTH|BAD_SCALE"),
        (0x7FE, 0, "KV_APPEND failed: NvmeStatus 0x7fe"),
    ],
)
def test_failures_are_sentences(status, result, text):
    with pytest.raises(CommandError) as caught:
        completion(status, result).check(abi.Opcode.KV_APPEND)
    assert text in str(caught.value)
    assert (caught.value.status, caught.value.result, caught.value.retry) == (status, result, False)


def test_retry_hint_is_read():
    with pytest.raises(CommandError) as caught:
        completion(abi.NvmeStatus.CRC_MISMATCH, retry=True).check(0xFF)
    assert caught.value.retry
    assert "Opcode 0xff" in str(caught.value)


@pytest.mark.parametrize("layout", [abi.Sqe, abi.Cqe, abi.KvAppend, abi.AttnSubmit, abi.AttnFetch, wire.SessionRemove])
def test_entries_are_packed_as_their_layout_says(layout):
    packed = EntryLayout(layout)
    rng = np.random.default_rng(1)
    want = np.zeros((), layout)
    for name in packed.names:
        want[name] = rng.integers(0, np.iinfo(layout[name]).max, endpoint=True, dtype=layout[name])
    fields = {name: int(want[name]) for name in packed.names}
    assert packed.pack(fields) == want.tobytes()
    assert packed.unpack(want.tobytes()) == tuple(fields.values())
    first = packed.names[0]
    assert packed.pack({first: fields[first]})[want.dtype[0].itemsize :].strip(b"\0") == b""
    with pytest.raises(struct.error):
        packed.pack({first: -1})


def test_half_of_the_inline_tokens_is_refused():
    q = np.zeros((2, 4, 64), np.float16)
    with pytest.raises(ValueError, match="scores and V"):
        commands.attn_submit(1, 0, 0, q, 10, 0x3E000000, inline_v=np.zeros((2, 3, 64), np.float16))
    scores = np.zeros((2, 4, 4), np.int32)
    with pytest.raises(ValueError, match="cannot have scores"):
        commands.attn_submit(
            1, 0, 0, q, 10, 0x3E000000, inline_scores=scores, inline_v=np.zeros((2, 3, 64), np.float16)
        )
