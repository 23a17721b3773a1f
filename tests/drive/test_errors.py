"""Invalid commands are refused with the right status and change nothing."""

import resource

import numpy as np
import pytest
from random_halves import halves

import golden
from kvdrive import abi
from kvdrive.nvme import wire
from kvdrive.nvme.command_set import COMMANDS

S = abi.NvmeStatus
TOKENS, D = 70, 64


class Stored:
    """A drive that holds one session of two heads. `unchanged` checks that it still does."""

    def __init__(self, host, check, tokens=TOKENS):
        rng = np.random.default_rng(4)
        self.host, self.check, self.tokens = host, check, tokens
        self.k, self.v = halves(rng, 2, tokens, D), halves(rng, 2, tokens, D)
        self.q, self.more = halves(rng, 2, 4, D), halves(rng, 2, 3, D)
        host.store(self.k, self.v)

    def unchanged(self):
        tokens = self.tokens
        self.check(self.host.attend(self.q, tokens), self.q, self.k, self.v)
        for kind in abi.KvKind:
            assert self.host.append(self.more, kind=kind, first_token=tokens).status == S.SUCCESS
        k, v = (np.concatenate([old, self.more], axis=1) for old in (self.k, self.v))
        self.check(self.host.attend(self.q, tokens + 3), self.q, k, v)


@pytest.fixture
def stored(host, check):
    return Stored(host, check)


@pytest.mark.parametrize(
    ("fields", "status"),
    [
        ({"nsid": 0}, S.INVALID_NAMESPACE),
        ({"nsid": abi.Namespace.CP}, S.INVALID_NAMESPACE),
        ({"flags": 1}, S.INVALID_FIELD),
        ({"kind": 2}, S.INVALID_FIELD),
        ({"type": 1}, S.INVALID_FIELD),
        ({"options": 4}, S.INVALID_FIELD),
        ({"options": abi.AppendOption.APPEND_SPARSE}, S.INVALID_FIELD),
        ({"head": 255}, S.INVALID_FIELD),
        ({"first_token": abi.MAX_TOKENS - 2}, S.INVALID_FIELD),
        ({"first_token": 0xFFFFFFFF}, S.INVALID_FIELD),
        ({"tokens": 4}, S.DATA_LENGTH),
        ({"heads": 1}, S.DATA_LENGTH),
        ({"heads": 1, "tokens": 6, "row_bytes": 2 * D + 2, "crc32c": 0}, S.DATA_LENGTH),
        ({"row_bytes": 24, "tokens": 16}, S.INVALID_FIELD),
        ({"crc32c": 0}, S.CRC_MISMATCH),
        ({"sequence": 1}, S.OUT_OF_SEQUENCE),
        ({"sequence": 3}, S.OUT_OF_SEQUENCE),
        ({"session": 9, "sequence": 0}, S.UNKNOWN_SESSION),
        ({"session": 9, "sequence": 1, "first_token": 0}, S.OUT_OF_SEQUENCE),
        ({"first_token": TOKENS - 1}, S.TOKEN_GAP),
        ({"first_token": TOKENS + 1}, S.TOKEN_GAP),
        ({"layer": 1}, S.TOKEN_GAP),
        ({"head": 1}, S.TOKEN_GAP),
        ({"row_bytes": D, "tokens": 6}, S.ROW_MISMATCH),
    ],
    ids=str,
)
def test_append_is_refused(stored, fields, status):
    reply = stored.host.append(stored.more, **({"first_token": TOKENS} | fields))
    assert reply.status == status
    assert reply.retry == (status == S.CRC_MISMATCH)
    stored.unchanged()


def test_append_without_data_is_refused(stored):
    for fields in ({}, {"heads": 2}, {"heads": 2, "row_bytes": 2 * D}):
        reply = stored.host.raw(stored.host.entry("append", session=1, sequence=2, first_token=TOKENS, **fields))
        assert reply.status == S.INVALID_FIELD
    stored.unchanged()


def test_append_to_some_full_heads_changes_none(make_drive, check):
    rng = np.random.default_rng(6)
    host = make_drive(capacity_bytes=3 * 4096)
    k, v, q = halves(rng, 2, 31, D), halves(rng, 2, 31, D), halves(rng, 2, 1, D)
    host.store(k, v)
    one = halves(rng, 2, 1, D)
    assert host.append(one, kind=0, first_token=31).status == S.SUCCESS  # a page for each head
    refused = host.append(one, kind=1, first_token=31)  # one page is left for two heads
    assert (refused.status, refused.retry) == (S.CAPACITY_EXCEEDED, False)
    assert host.submit(q, 32).status == S.TOKENS_MISSING
    check(host.attend(q, 31), q, k, v)
    assert host.append(one[:1], kind=1, first_token=31).status == S.SUCCESS
    check(
        host.attend(q[:1], 32),
        q[:1],
        np.concatenate([k, one], axis=1)[:1],
        np.concatenate([v, one], axis=1)[:1],
    )


@pytest.mark.parametrize(
    ("fields", "status"),
    [
        ({"nsid": abi.Namespace.NVM}, S.INVALID_NAMESPACE),
        ({"flags": 2}, S.INVALID_FIELD),
        ({"mode": abi.Mode.SPARF_ROWS}, S.INVALID_FIELD),
        ({"mode": abi.Mode.SPARF_ATTEND, "r": 8}, S.INVALID_FIELD),
        ({"mode": abi.Mode.SPARF_ATTEND, "k_top": 8}, S.INVALID_FIELD),
        ({"inline_tokens": 1}, S.DATA_LENGTH),
        ({"mode": 255}, S.INVALID_FIELD),
        ({"group": 0}, S.INVALID_FIELD),
        ({"group": 17}, S.INVALID_FIELD),
        ({"heads": 0}, S.INVALID_FIELD),
        ({"head": 255}, S.INVALID_FIELD),
        ({"tokens": 0}, S.INVALID_FIELD),
        ({"tokens": abi.MAX_TOKENS + 1}, S.INVALID_FIELD),
        ({"has_valid": 2}, S.INVALID_FIELD),
        ({"reserved0": 1}, S.INVALID_FIELD),
        ({"r": 1}, S.INVALID_FIELD),
        ({"k_top": 1}, S.INVALID_FIELD),
        ({"local": 1}, S.INVALID_FIELD),
        ({"session": 2}, S.UNKNOWN_SESSION),
        ({"layer": 1}, S.TOKENS_MISSING),
        ({"head": 1}, S.TOKENS_MISSING),
        ({"tokens": TOKENS + 1}, S.TOKENS_MISSING),
        ({"group": 2}, S.DATA_LENGTH),
        ({"heads": 1}, S.DATA_LENGTH),
        ({"has_valid": 1}, S.DATA_LENGTH),
        ({"crc32c": 0}, S.CRC_MISMATCH),
    ],
    ids=str,
)
def test_attention_is_refused(stored, fields, status):
    assert stored.host.submit(stored.q, **({"tokens": TOKENS} | fields)).status == status
    stored.unchanged()


def test_heads_of_different_size_are_refused(stored):
    rng = np.random.default_rng(7)
    narrow = halves(rng, 1, TOKENS, 32)
    stored.host.store(narrow, narrow, head=2)
    assert stored.host.submit(stored.q, TOKENS, head=1).status == S.ROW_MISMATCH
    stored.unchanged()


@pytest.mark.parametrize("scale", [float("inf"), float("nan")])
def test_engine_refusal_reaches_the_host(stored, scale):
    bits = int(np.float32(scale).view(np.uint32))
    reply = stored.host.attend(stored.q, TOKENS, scale_log2e=bits)
    assert (reply.status, reply.result, reply.data.size) == (S.JOB_REFUSED, abi.Status.BAD_SCALE, 0)
    stored.unchanged()


def test_a_query_that_is_not_finite(stored):
    q = stored.q.copy()
    q[0, 1, 5] = np.inf
    reply = stored.host.attend(q, TOKENS)
    assert (reply.status, reply.data.size) == (S.VALUE_NOT_FINITE, 0)
    stored.unchanged()


@pytest.mark.parametrize("kind", abi.KvKind)
@pytest.mark.parametrize("value", [np.inf, -np.inf, np.nan])
def test_rows_that_are_not_finite_are_never_stored(stored, kind, value):
    rows = stored.more.copy()
    rows[1, 2, D - 1] = value
    assert stored.host.append(rows, kind=kind, first_token=TOKENS).status == S.VALUE_NOT_FINITE
    stored.unchanged()


def test_mask_without_a_token(stored):
    reply = stored.host.attend(stored.q, TOKENS, np.zeros(TOKENS, bool))
    assert (reply.status, reply.data.size) == (S.NO_VALID_TOKEN, 0)
    stored.unchanged()


def test_a_failed_ticket_is_gone_after_its_fetch(stored):
    ticket = stored.host.submit(stored.q, TOKENS, np.zeros(TOKENS, bool)).result
    assert stored.host.fetch(ticket, 0).status == S.NO_VALID_TOKEN
    assert stored.host.fetch(ticket, 0).status == S.UNKNOWN_TICKET


def test_fetch_with_the_wrong_buffer_keeps_the_ticket(stored):
    host, q = stored.host, stored.q
    ticket = host.submit(q, TOKENS).result
    size = 2 * abi.AttentionResult.itemsize + q.size * 2
    for wrong in (0, size - 1, size + 1):
        assert host.fetch(ticket, wrong).status == S.DATA_LENGTH
    assert host.raw(host.entry("fetch", ticket=ticket, data_bytes=size, reserved1=(0, 0, 0, 1))).status == (
        S.INVALID_FIELD
    )
    stored.check(host.fetch(ticket, size), q, stored.k, stored.v)
    assert host.fetch(ticket, size).status == S.UNKNOWN_TICKET


def test_ticket_table_fills_and_empties(stored):
    host, q = stored.host, stored.q[:, :1]
    tickets = []
    while (reply := host.submit(q, 1)).status == S.SUCCESS:
        tickets.append(reply.result)
        assert len(tickets) <= 256
    assert (len(tickets), reply.status, reply.retry) == (256, S.TICKETS_EXHAUSTED, True)
    size = 2 * abi.AttentionResult.itemsize + q.size * 2
    for ticket in tickets:
        assert host.fetch(ticket, size).status == S.SUCCESS
    stored.unchanged()


@pytest.mark.parametrize(
    ("fields", "status"),
    [
        ({"nsid": abi.Namespace.CP}, S.INVALID_NAMESPACE),
        ({"session": 2}, S.UNKNOWN_SESSION),
        ({"reserved0": 1}, S.INVALID_FIELD),
        ({"reserved1": (0, 0, 0, 0, 1)}, S.INVALID_FIELD),
        ({"flags": 3}, S.INVALID_FIELD),
    ],
    ids=str,
)
def test_trim_is_refused(stored, fields, status):
    assert stored.host.raw(stored.host.entry("trim", **({"session": 1} | fields))).status == status
    stored.unchanged()


def test_data_with_a_command_that_takes_none(stored):
    data = np.zeros(64, np.uint8)
    assert stored.host.raw(stored.host.entry("trim", session=1), data).status == S.DATA_LENGTH
    assert stored.host.raw(stored.host.entry("fetch", ticket=1), data).status == S.DATA_LENGTH
    stored.unchanged()


def test_unknown_opcodes(stored):
    spaces = {number: {row.opcode for row in COMMANDS.values() if row.namespace == number} for number in range(1, 5)}
    for opcode in set(range(256)) - spaces[abi.Namespace.NVM] - {*wire.NvmOpcode}:
        reply = stored.host.raw(stored.host.entry("trim", opcode=opcode, session=1, cid=opcode))
        elsewhere = any(opcode in spaces[other] for other in spaces)
        status = S.INVALID_NAMESPACE if elsewhere else S.INVALID_OPCODE
        assert (reply.status, reply.identifier, reply.retry) == (status, opcode, False)
    stored.unchanged()


@pytest.fixture
def on_flash(make_drive, check):
    """A session whose pages are in the file, one page a program."""
    host = make_drive(preset="mqsim-default", pages_per_block=2, capacity_bytes=4096 * 600)
    return Stored(host, check, tokens=32 * 64)


def test_a_damaged_page_is_reported_not_used(on_flash):
    host = on_flash.host
    assert host.flush().status == S.SUCCESS
    offset = host.drive.layout()["unit_offset"]
    with host.path.open("r+b") as file:
        file.seek(offset + 100)
        byte = file.read(1)
        file.seek(offset + 100)
        file.write(bytes([byte[0] ^ 1]))
    reply = host.attend(on_flash.q, on_flash.tokens)
    assert (reply.status, reply.data.size) == (S.UNRECOVERED_READ, 0)
    assert len(host.drive.check()) == 1
    with host.path.open("r+b") as file:
        file.seek(offset + 100)
        file.write(byte)
    assert host.drive.check() == []
    on_flash.unchanged()


def test_a_backing_file_that_fails_changes_nothing(on_flash):
    host = on_flash.host
    assert host.flush().status == S.SUCCESS
    size = host.path.stat().st_size
    offset = host.drive.layout()["unit_offset"]
    with host.path.open("r+b") as file:
        file.seek(offset)
        contents = file.read()
        file.truncate(offset)
    assert host.submit(on_flash.q, on_flash.tokens).status == S.INTERNAL_ERROR
    with host.path.open("r+b") as file:
        file.truncate(size)
        file.seek(offset)
        file.write(contents)
    on_flash.unchanged()


def test_a_failed_flush_keeps_everything_for_the_next_one(stored):
    _, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (8192, hard))
    try:
        reply = stored.host.flush()
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (hard, hard))
    assert reply.status == S.INTERNAL_ERROR
    assert stored.host.flush().status == S.SUCCESS
    stored.host.reopen()
    stored.unchanged()


def test_commands_of_the_wrong_size(host):
    for size in (0, 63, 65):
        with pytest.raises(ValueError, match="64 bytes"):
            host.drive.submit(bytes(size))


def test_scale_of_the_job_is_used(stored):
    bits = golden.scale_bits(1.0, D)
    reply = stored.host.attend(stored.q, TOKENS, scale_log2e=bits)
    out = reply.data[2 * abi.AttentionResult.itemsize :].view(np.uint16).reshape(stored.q.shape)
    want = golden.attention(stored.q[0], stored.k[0], stored.v[0], scale_log2e=bits)
    np.testing.assert_array_equal(out[0], want.out.view(np.uint16))
