"""Thousands of random and mutated commands: each gets a known status, and stored data stay."""

import numpy as np
import pytest
from random_halves import halves

from kvdrive import abi
from kvdrive._native import crc32c

PROTECTED = 0x5EED
REACHED = {
    abi.NvmeStatus.SUCCESS,
    abi.NvmeStatus.INVALID_OPCODE,
    abi.NvmeStatus.INVALID_FIELD,
    abi.NvmeStatus.INVALID_NAMESPACE,
    abi.NvmeStatus.DATA_LENGTH,
    abi.NvmeStatus.CRC_MISMATCH,
    abi.NvmeStatus.OUT_OF_SEQUENCE,
    abi.NvmeStatus.UNKNOWN_SESSION,
    abi.NvmeStatus.TOKEN_GAP,
    abi.NvmeStatus.TOKENS_MISSING,
    abi.NvmeStatus.ROW_MISMATCH,
    abi.NvmeStatus.UNKNOWN_TICKET,
}


def random_command(rng, host):
    """Random bytes, or a command that could succeed, with up to two random bytes in it."""
    data = np.frombuffer(rng.bytes(int(rng.choice([0, 64, 128, 128, 256]))), np.uint8) & 0xBF  # finite values only
    if rng.random() < 0.2:
        entry = np.frombuffer(rng.bytes(64), abi.Sqe).copy()
        entry["opcode"] = rng.choice([*abi.Opcode, rng.integers(256)])
        entry["nsid"] = rng.integers(1, 4)
        return entry, data
    session = int(rng.integers(3))
    place = {"session": session, "heads": 1, "head": int(rng.integers(2)), "crc32c": crc32c(data)}
    rows = {"tokens": int(rng.integers(1, 4)), "row_bytes": int(rng.choice([64, 128])), "kind": int(rng.integers(2))}
    order = {"first_token": int(rng.integers(4)), "sequence": max(0, host.sequence.get(session, 0) - rng.integers(2))}
    name, fields = (
        ("append", place | rows | order),
        ("append", place | rows | order | {"first_token": 0}),
        ("trim", {"session": session, "from_token": int(rng.integers(4))}),
        ("submit", place | {"tokens": int(rng.integers(1, 4)), "group": int(rng.choice([1, 2]))}),
        ("fetch", {"ticket": int(rng.integers(300)), "data_bytes": 256}),
    )[rng.choice(5, p=(0.35, 0.25, 0.05, 0.25, 0.1))]
    entry = np.frombuffer(host.entry(name, **fields), abi.Sqe).copy()
    for _ in range(int(rng.choice([0, 0, 1, 2]))):
        entry.view(np.uint8)[rng.integers(64)] = rng.integers(256)
    return entry, data if name in ("append", "submit") else None


@pytest.mark.parametrize("seed", range(4))
def test_random_commands_never_harm(host, check, seed):
    rng = np.random.default_rng(seed)
    k, v, q = halves(rng, 1, 70, 64), halves(rng, 1, 70, 64), halves(rng, 1, 2, 64)
    host.store(k, v, session=PROTECTED)
    seen = set()
    for _ in range(3000):
        entry, data = random_command(rng, host)
        session = int(entry["cdw2"][0])
        if session == PROTECTED:
            continue
        reply = host.raw(entry.tobytes(), data)
        assert reply.identifier == entry["cid"][0]
        seen.add(reply.status)
        if reply.status != abi.NvmeStatus.SUCCESS:
            assert reply.data.size == 0
        elif entry["opcode"] == abi.Opcode.KV_APPEND:
            host.sequence[session] = host.sequence.get(session, 0) + 1
        elif entry["opcode"] == abi.Opcode.SESSION_TRIM and entry["cdw10"] == 0:
            host.sequence[session] = 0
    assert seen >= REACHED
    assert abi.NvmeStatus.INTERNAL_ERROR not in seen
    for ticket in range(1, 3000):
        host.fetch(ticket, 0)
    check(host.attend(q, 70, session=PROTECTED), q, k, v)


# Bytes that a drive does not interpret: command identifier, metadata and data pointers; bits 2 to 7 of the flags too.
IGNORED = {2, 3, *range(16, 40)}
RESULT_BYTES = abi.AttentionResult.itemsize + 2 * 2 * 32
FLAGS, KIND, OPTIONS, MODE, TOKENS, SCALE = 1, 46, 60, 44, range(40, 44), range(60, 64)
PARTIAL_BYTES = abi.AttentionResult.itemsize + 2 * 2 * 32 * 2


def flipped(entry, bit):
    raw = bytearray(entry)
    raw[bit // 8] ^= 1 << bit % 8
    return bytes(raw)


def ignored(bit):
    return bit // 8 in IGNORED or (bit // 8 == FLAGS and bit % 8 >= 2)


def test_every_flipped_bit_of_an_append(host, check):
    rng = np.random.default_rng(21)
    k, v, q, more = halves(rng, 1, 40, 32), halves(rng, 1, 40, 32), halves(rng, 1, 2, 32), halves(rng, 1, 4, 32)
    host.store(k, v)
    data = more.reshape(-1).view(np.uint8)
    for bit in range(512):
        fields = {"session": 1, "heads": 1, "first_token": 40, "tokens": 4, "row_bytes": 64, "crc32c": crc32c(data)}
        entry = host.entry("append", sequence=host.sequence[1], **fields)
        reply = host.raw(flipped(entry, bit), data)
        # the lowest bit of the kind selects V in place of K, the lowest bit of the options requests FUA
        taken = ignored(bit) or bit in (KIND * 8, OPTIONS * 8)
        assert (reply.status == abi.NvmeStatus.SUCCESS) == taken, (bit, reply.status)
        if taken:
            host.sequence[1] += 1
            assert host.trim(from_token=40).status == abi.NvmeStatus.SUCCESS
    check(host.attend(q, 40), q, k, v)


def test_every_flipped_bit_of_a_query(host, check):
    rng = np.random.default_rng(22)
    k, v, q = halves(rng, 1, 40, 32), halves(rng, 1, 40, 32), halves(rng, 1, 2, 32)
    host.store(k, v)
    data = q.reshape(-1).view(np.uint8)
    fields = {"session": 1, "heads": 1, "tokens": 40, "group": 2, "crc32c": crc32c(data), "scale_log2e": 0x3E800000}
    for bit in range(512):
        reply = host.raw(flipped(host.entry("submit", **fields), bit), data)
        fewer = bit // 8 in TOKENS and 0 < (40 ^ 1 << bit - TOKENS[0] * 8) < 40
        partial = bit == MODE * 8
        taken = ignored(bit) or fewer or partial or bit // 8 in SCALE
        assert (reply.status == abi.NvmeStatus.SUCCESS) == taken, (bit, reply.status)
        if taken:
            size = PARTIAL_BYTES if partial else RESULT_BYTES
            assert host.fetch(reply.result, size).status == abi.NvmeStatus.SUCCESS
    check(host.attend(q, 40), q, k, v)
