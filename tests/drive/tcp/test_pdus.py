"""Every invalid PDU ends its connection with the reason, and changes nothing else."""

import struct

import pytest
from tcp.initiator import (
    C2H_DATA,
    COMMAND,
    H2C_DATA,
    H2C_TERM,
    IC_REQ,
    LAST,
    R2T,
    RESPONSE,
    TerminatedError,
    ic_req,
)

HEADER_FIELD, SEQUENCE, DIGEST, RANGE, LIMIT, UNSUPPORTED = 1, 2, 3, 4, 5, 6
FLUSH, WRITE, BLOCK = 0x00, 0x01, 4096


def common(kind, flags=0, header=72, offset=0, length=72):
    return struct.pack("<BBBBI", kind, flags, header, offset, length)


def ends(queue, data, error, field=0):
    """Assert that the controller answers `data` with a termination request and closes the connection."""
    queue.send_raw(data)
    with pytest.raises(TerminatedError) as caught:
        queue.receive_pdu()
    assert caught.value.args == (error, field)
    queue.expect_end()


@pytest.mark.parametrize(
    ("request_", "error", "field"),
    [
        (ic_req(version=1), UNSUPPORTED, 8),
        (ic_req(alignment=32), HEADER_FIELD, 10),
        (ic_req(digests=4), UNSUPPORTED, 11),
        (ic_req(length=127), HEADER_FIELD, 4),
        (ic_req(length=132), HEADER_FIELD, 4),
        (common(COMMAND), SEQUENCE, 0),
        (common(H2C_DATA, header=24, length=24), SEQUENCE, 0),
        (common(IC_REQ, flags=1, header=128, length=128), HEADER_FIELD, 1),
        (common(IC_REQ, header=120, length=128), HEADER_FIELD, 2),
        (common(8), HEADER_FIELD, 0),
        (common(0xFF), HEADER_FIELD, 0),
    ],
)
def test_before_the_connection_is_initialized(target, request_, error, field):
    ends(target.open(initialize=False), request_, error, field)
    assert target.counters["terminated"] == 1


@pytest.mark.parametrize(
    ("data", "error", "field"),
    [
        (ic_req(), SEQUENCE, 0),
        *[(common(kind, header=24, length=24), SEQUENCE, 0) for kind in (1, 3, RESPONSE, C2H_DATA, R2T)],
        (common(COMMAND, header=71), HEADER_FIELD, 2),
        (common(COMMAND, length=71), HEADER_FIELD, 4),
        (common(COMMAND, length=0), HEADER_FIELD, 4),
        (common(COMMAND, flags=1), HEADER_FIELD, 1),
        (common(COMMAND, flags=LAST), HEADER_FIELD, 1),
        (common(COMMAND, flags=2, offset=72, length=80), HEADER_FIELD, 1),
        (common(COMMAND, offset=71, length=80), HEADER_FIELD, 3),
        (common(COMMAND, offset=74, length=80), HEADER_FIELD, 3),
        (common(COMMAND, offset=200, length=300), HEADER_FIELD, 3),
        (common(COMMAND, offset=72, length=72 + 8193), LIMIT, 0),
        (common(COMMAND, offset=72, length=0xFFFFFFFF), LIMIT, 0),
        (common(COMMAND, offset=76, length=76), HEADER_FIELD, 4),
        (common(H2C_DATA, header=24, length=24), HEADER_FIELD, 3),
        (common(H2C_DATA, header=24, offset=24, length=24), HEADER_FIELD, 4),
        (common(H2C_DATA, header=24, offset=24, length=24 + 131073), LIMIT, 0),
        (common(H2C_TERM, header=24, length=153), HEADER_FIELD, 4),
        (common(H2C_TERM, header=24, length=23), HEADER_FIELD, 4),
    ],
)
def test_headers_that_cannot_be(target, data, error, field):
    ends(target.open(), data, error, field)


@pytest.fixture
def waiting(target):
    """A queue with a write of two blocks that waits for its data: (queue, cid, tag)."""
    _, controller = target.admin()
    queue = target.io(controller)
    cid = queue.send_command(queue.entry(WRITE, 1, length=2 * BLOCK, dwords=(0, 0, 1)))
    kind, body = queue.receive_pdu()
    assert kind == R2T
    return queue, cid, struct.unpack_from("<HH", body)[1]


def piece(queue, cid, tag, offset, length, flags=0, size=None):
    header = struct.pack("<HHIII", cid, tag, offset, length, 0)
    return queue.pdu(H2C_DATA, header, bytes(length if size is None else size), flags)


@pytest.mark.parametrize(
    ("fields", "error", "field"),
    [
        ({"tag": 1}, HEADER_FIELD, 10),
        ({"cid": 1}, HEADER_FIELD, 8),
        ({"size": BLOCK - 4}, HEADER_FIELD, 16),
        ({"offset": BLOCK}, RANGE, 12),
        ({"offset": 0xFFFFFFFC}, RANGE, 12),
        ({"length": 2 * BLOCK + 4, "flags": LAST}, RANGE, 12),
        ({"flags": LAST}, HEADER_FIELD, 1),
        ({"length": 2 * BLOCK}, HEADER_FIELD, 1),
    ],
)
def test_data_that_were_not_asked_for(waiting, fields, error, field):
    queue, cid, tag = waiting
    fields = {"offset": 0, "length": BLOCK, "flags": 0} | fields
    wrong = {"cid": cid + fields.pop("cid", 0), "tag": tag + fields.pop("tag", 0)}
    ends(queue, piece(queue, **wrong, **fields), error, field)


def test_data_twice(waiting):
    queue, cid, tag = waiting
    queue.send_raw(piece(queue, cid, tag, 0, BLOCK))
    ends(queue, piece(queue, cid, tag, 0, BLOCK), RANGE, 12)


def test_a_wrong_header_digest_ends_the_connection(target):
    _, controller = target.admin(digests=1)
    queue = target.io(controller, digests=1)
    pdu = bytearray(queue.pdu(COMMAND, queue.entry(FLUSH, 1)))
    pdu[40] ^= 1
    digest = struct.unpack_from("<I", pdu, 72)[0]
    ends(queue, bytes(pdu), DIGEST, digest)


def test_the_report_holds_the_header_at_fault(target):
    queue = target.open()
    bad = common(COMMAND, flags=LAST) + bytes(range(64))
    queue.send_raw(bad)
    head = queue.receive_exactly(24)
    assert struct.unpack_from("<BBBBIHI", head) == (3, 0, 24, 0, 24 + 72, HEADER_FIELD, 1)
    assert queue.receive_exactly(72) == bad
    queue.expect_end()


def test_a_termination_request_of_the_host_closes(target):
    queue = target.open()
    queue.send_raw(common(H2C_TERM, header=24, length=24) + bytes(16))
    queue.expect_end()


def test_pdus_in_single_bytes_and_many_at_once(target):
    _, controller = target.admin(digests=3)
    queue = target.io(controller, digests=3)
    data = bytes(range(256)) * 16
    pdu = queue.pdu(COMMAND, queue.entry(WRITE, 1, length=BLOCK, kind=1), data, padding=12)
    for start in range(0, 120):
        queue.send_raw(pdu[start : start + 1])
    queue.send_raw(pdu[120:])
    assert queue.finish(queue.cid).status == 0
    entries = [queue.entry(FLUSH, 1) for _ in range(20)]
    queue.send_raw(b"".join(queue.pdu(COMMAND, entry) for entry in entries))
    for entry in entries:
        assert queue.finish(struct.unpack_from("<H", entry, 2)[0]).status == 0
