"""Commands over TCP: data in capsules, after R2Ts and to the host, with and without digests, on several queues."""

import struct

import numpy as np
import pytest
from tcp.initiator import H2C_DATA, HOST_ID, R2T

import golden
from kvdrive import abi
from kvdrive._native import crc32c

READ, WRITE, FLUSH, IDENTIFY, GET_LOG, ASYNC_EVENT = 0x02, 0x01, 0x00, 0x06, 0x02, 0x0C
BLOCK = 4096


def pattern(blocks, seed=1):
    return np.random.default_rng(seed).bytes(blocks * BLOCK)


def write_blocks(queue, first, data, **how):
    return queue.write(WRITE, data, dwords=(first, 0, len(data) // BLOCK - 1), **how)


def read_blocks(queue, first, blocks):
    return queue.read(READ, blocks * BLOCK, dwords=(first, 0, blocks - 1))


@pytest.mark.parametrize("digests", [0, 1, 2, 3])
@pytest.mark.parametrize("alignment", [0, 31])
def test_blocks_come_back(target, digests, alignment):
    _, controller = target.admin(digests=digests)
    queue = target.io(controller, digests=digests, alignment=alignment)
    small, large = pattern(1), pattern(5, seed=2)
    before = target.counters
    assert write_blocks(queue, 3, small).status == 0
    assert write_blocks(queue, 4, large, in_capsule=False).status == 0
    after = target.counters
    assert after["in_capsule"] - before["in_capsule"] == 1
    assert after["ready_to_transfer"] - before["ready_to_transfer"] == 1
    assert [(offset, length) for _, offset, length in queue.requests] == [(0, len(large))]
    assert queue.plain(FLUSH).status == 0
    reply = read_blocks(queue, 3, 6)
    assert reply.status == 0
    assert reply.data == small + large


def test_a_megabyte_in_pieces_of_any_size(target):
    """Data from the host in pieces of odd sizes, and data to the host in several PDUs."""
    _, controller = target.admin()
    queue = target.io(controller)
    data = pattern(256)
    entry = queue.entry(WRITE, 1, length=len(data), dwords=(0, 0, 255))
    cid = queue.send_command(entry)
    kind, body = queue.receive_pdu()
    assert kind == R2T
    queue.serve_request(body, {cid: data}, piece=100_003)
    assert queue.finish(cid).status == 0
    assert read_blocks(queue, 0, 256).data == data


def test_more_than_the_largest_transfer_is_refused(target):
    _, controller = target.admin()
    queue = target.io(controller)
    assert write_blocks(queue, 0, bytes(257 * BLOCK), in_capsule=False).status == abi.NvmeStatus.INVALID_FIELD
    assert read_blocks(queue, 0, 257).status == abi.NvmeStatus.INVALID_FIELD
    assert queue.requests == []


def test_queues_share_a_controller_and_several_hosts_a_drive(target):
    first, controller = target.admin()
    _, second_controller = target.admin(host="nqn.2026-01.org.kvdrive:second")
    assert controller != second_controller
    queues = [target.io(controller, number) for number in (1, 2, 3)]
    queues.append(target.io(second_controller, 1, host="nqn.2026-01.org.kvdrive:second"))
    for number, queue in enumerate(queues):
        assert write_blocks(queue, number, pattern(1, number)).status == 0
    for queue in queues:
        assert read_blocks(queue, 0, 4).data == b"".join(pattern(1, number) for number in range(4))
    queues[0].close()  # the other queues continue
    assert read_blocks(queues[1], 0, 1).data == pattern(1, 0)
    assert first.get_property(0x1C).result & 1 == 1


def test_commands_wait_for_their_data_out_of_order(target):
    """Two writes are in flight. The second one's data come first, so it completes first."""
    _, controller = target.admin()
    queue = target.io(controller)
    one, two = pattern(2, 1), pattern(2, 2)
    cids = [queue.send_command(queue.entry(WRITE, 1, length=len(one), dwords=(first, 0, 1))) for first in (0, 2)]
    requests = [queue.receive_pdu() for _ in cids]
    assert [kind for kind, _ in requests] == [R2T, R2T]
    queue.serve_request(requests[1][1], {cids[1]: two})
    assert queue.finish(cids[1]).status == 0
    assert read_blocks(queue, 2, 2).data == two
    queue.serve_request(requests[0][1], {cids[0]: one})
    assert queue.finish(cids[0]).status == 0
    assert read_blocks(queue, 0, 4).data == one + two


def test_a_command_waits_until_the_pool_has_room(make_target):
    """With room for one transfer, the second command's R2T comes after the data of the first."""
    target = make_target(buffer_bytes=256 * BLOCK)
    _, controller = target.admin()
    queue = target.io(controller)
    data = {}
    for first in (0, 256):
        entry = queue.entry(WRITE, 1, length=256 * BLOCK, dwords=(first, 0, 255))
        data[queue.send_command(entry)] = pattern(256, first)
    one, two = data
    kind, body = queue.receive_pdu()
    assert (kind, struct.unpack_from("<H", body)[0]) == (R2T, one)
    assert target.counters["ready_to_transfer"] == 1
    queue.serve_request(body, data)
    assert queue.finish(one).status == 0
    assert queue.finish(two, data).status == 0
    assert read_blocks(queue, 0, 256).data + read_blocks(queue, 256, 256).data == data[one] + data[two]


def test_more_commands_than_the_queue_has_entries_end_the_connection(target):
    _, controller = target.admin()
    queue = target.io(controller, entries=3)
    for _ in range(5):
        queue.send_command(queue.entry(WRITE, 1, length=BLOCK))
    with pytest.raises(Exception, match=r"\(5, 0\)"):
        [queue.receive_pdu() for _ in range(5)]
    queue.expect_end()


def test_identifiers_in_use_are_refused(target):
    _, controller = target.admin()
    queue = target.io(controller)
    entry = queue.entry(WRITE, 1, length=BLOCK)
    cid = queue.send_command(entry)
    kind, body = queue.receive_pdu()
    assert kind == R2T
    assert queue.finish(queue.send_command(entry)).status == 0x003
    queue.serve_request(body, {cid: pattern(1)})
    assert queue.finish(cid).status == 0


@pytest.mark.parametrize(
    ("sgl", "status"),
    [
        ({"kind": 0x00, "length": BLOCK}, 0x011),
        ({"kind": 0x01, "length": BLOCK, "address": BLOCK + 1}, 0x016),
        ({"kind": 0x01, "length": BLOCK, "address": 4}, 0x00F),
        ({"kind": 0x01, "length": BLOCK - 4}, 0x00F),
        ({"kind": 0x01, "length": BLOCK, "flags": 0x00}, 0x002),
    ],
)
def test_data_pointers_that_cannot_be(target, sgl, status):
    _, controller = target.admin()
    queue = target.io(controller)
    assert queue.finish(queue.send_command(queue.entry(WRITE, 1, **sgl), pattern(1))).status == status
    assert write_blocks(queue, 0, pattern(1)).status == 0


def test_the_head_of_the_queue_moves_unless_the_host_goes_without(target):
    _, controller = target.admin()
    queue = target.io(controller, 1, entries=3)
    heads = [queue.plain(FLUSH).sq_head for _ in range(5)]
    assert heads == [(heads[0] + i) % 4 for i in range(5)]
    free = target.io(controller, 2, attributes=4)
    assert {free.plain(FLUSH).sq_head for _ in range(3)} == {0xFFFF}


def test_identify_and_log_pages(target):
    queue, controller = target.admin()
    page = queue.read(IDENTIFY, 4096, 0, dwords=(1,)).data
    assert struct.unpack_from("<H", page, 78)[0] == controller
    assert page[77] == 8  # MDTS: 2^8 * 4 KiB
    assert struct.unpack_from("<I", page, 536)[0] & 1 == 1  # SGLs
    assert struct.unpack_from("<IIH", page, 1792) == (64 // 16 + 8192 // 16, 1, 0)
    assert page[768:1024].rstrip(b"\0").decode() == target.nqn
    log = queue.read(GET_LOG, 512, 0xFFFFFFFF, dwords=(0xC0 | 127 << 16,))
    assert (log.status, len(log.data)) == (0, 512)


def test_async_event_requests_stay_open(target):
    queue, _ = target.admin()
    for _ in range(2):
        queue.send_command(queue.entry(ASYNC_EVENT))
    assert queue.get_property(0x1C).result & 1 == 1  # the next completion is this one's


def test_attention_over_tcp_is_golden(target):
    _, controller = target.admin(digests=3)
    queue = target.io(controller, digests=3)
    rng = np.random.default_rng(11)
    heads, tokens, d, group = 1, 40, 32, 2
    k, v = (rng.standard_normal((heads, tokens, d)).astype(np.float16) for _ in range(2))
    q = rng.standard_normal((heads, group, d)).astype(np.float16)

    def fields(layout, **values):
        entry = np.zeros((), layout)
        for name, value in values.items():
            entry[name] = value
        words = np.frombuffer(entry.tobytes(), "<u4")
        return {"cdw2": int(words[2]), "cdw3": int(words[3]), "dwords": tuple(int(w) for w in words[10:16])}

    for kind, rows in enumerate((k, v)):
        data = rows.tobytes()
        crc = crc32c(np.frombuffer(data, np.uint8))
        values = {"session": 1, "heads": heads, "tokens": tokens, "kind": kind, "row_bytes": 2 * d, "sequence": kind}
        append = fields(abi.KvAppend, crc32c=crc, **values)
        assert queue.write(abi.Opcode.KV_APPEND, data, in_capsule=kind == 0, **append).status == 0
    scale = golden.scale_bits(None, d)
    values = {"session": 1, "heads": heads, "tokens": tokens, "group": group, "scale_log2e": scale}
    submit = fields(abi.AttnSubmit, crc32c=crc32c(q.reshape(-1).view(np.uint8)), **values)
    ticket = queue.write(abi.Opcode.ATTN_SUBMIT, q.tobytes(), abi.Namespace.CP, **submit)
    assert ticket.status == 0
    size = heads * abi.AttentionResult.itemsize + q.nbytes
    fetch = fields(abi.AttnFetch, ticket=ticket.result, data_bytes=size)
    reply = queue.read(abi.Opcode.ATTN_FETCH, size, abi.Namespace.CP, **fetch)
    assert reply.status == 0
    want = golden.attention(q[0], k[0], v[0], scale_log2e=scale)
    got = np.frombuffer(reply.data[abi.AttentionResult.itemsize :], np.uint16).reshape(group, d)
    np.testing.assert_array_equal(got, want.out.view(np.uint16))


def test_damaged_data_fail_the_command_only(target):
    """A wrong data digest, in a capsule and in an H2CData PDU. The command may be retried; nothing is written."""
    _, controller = target.admin(digests=2)
    queue = target.io(controller, digests=2)
    data = pattern(1)
    assert write_blocks(queue, 0, data).status == 0
    entry = queue.entry(WRITE, 1, length=BLOCK, kind=1)
    pdu = bytearray(queue.pdu(4, entry, pattern(1, 2)))
    pdu[-1] ^= 1
    queue.send_raw(bytes(pdu))
    reply = queue.finish(queue.cid)
    assert (reply.status, reply.retry) == (0x022, True)

    cid = queue.send_command(queue.entry(WRITE, 1, length=2 * BLOCK, dwords=(0, 0, 1)))
    _, body = queue.receive_pdu()
    _, tag, _, _ = struct.unpack_from("<HHII", body)
    pdu = bytearray(queue.pdu(H2C_DATA, struct.pack("<HHIII", cid, tag, 0, BLOCK, 0), pattern(1, 3)))
    pdu[-1] ^= 1
    queue.send_raw(bytes(pdu))
    queue.send_data(cid, tag, BLOCK, pattern(1, 4), last=True)
    reply = queue.finish(cid)
    assert (reply.status, reply.retry) == (0x022, True)
    assert target.counters["data_digest_errors"] == 2
    assert read_blocks(queue, 0, 1).data == data


def test_only_the_long_host_identifier_goes_over_fabrics(target):
    admin, _ = target.admin()
    get_features, host_id = 0x0A, 0x81
    assert admin.read(get_features, 8, 0, dwords=(host_id, 0)).status == 0x002
    assert admin.read(get_features, 16, 0, dwords=(host_id, 1)).data == HOST_ID
