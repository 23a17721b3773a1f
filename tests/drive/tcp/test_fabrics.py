"""Connect and its refusals, properties, resets, discovery, allowed hosts."""

import struct

import pytest
from tcp.initiator import (
    CAP,
    CC,
    CONNECT,
    CSTS,
    DISCONNECT,
    DISCOVERY_NQN,
    FABRICS,
    HOST_NQN,
    PROPERTY_GET,
    PROPERTY_SET,
    VS,
)

from kvdrive._native import TcpServer

FLUSH, IDENTIFY, GET_LOG, KEEP_ALIVE = 0x00, 0x06, 0x02, 0x18
IN_DATA = 1 << 16
AUTHENTICATION_SEND, AUTHENTICATION_RECEIVE = 0x05, 0x06


def test_properties(target):
    queue = target.open()
    assert queue.connect(target.nqn).status == 0
    cap = queue.get_property(CAP, 8).result
    assert cap & 0xFFFF >= 127
    assert cap >> 16 & 1 == 1  # queues are contiguous
    assert cap >> 37 & 1 == 1  # NVM command set
    assert cap >> 43 & 1 == 1  # command sets of other kinds
    assert queue.get_property(VS).result == 0x20100
    assert queue.get_property(CSTS).result == 0
    assert queue.read(IDENTIFY, 4096, 0, dwords=(1,)).status == 0x00C  # not ready yet
    queue.enable()
    assert queue.get_property(CAP, 4).status == 0x002
    assert queue.get_property(0x30).status == 0x002
    assert queue.set_property(CAP, 1).status == 0x002


@pytest.mark.parametrize(
    ("fields", "status", "where"),
    [
        ({"format": 1}, 0x180, 0),
        ({"entries": 0}, 0x182, 44),
        ({"nqn": "nqn.2026-01.org.kvdrive:other"}, 0x182, 256 | IN_DATA),
        ({"nqn": "x"}, 0x182, 256 | IN_DATA),
        ({"host": ""}, 0x182, 512 | IN_DATA),
        ({"host": "nqn." + "x" * 240}, 0x182, 512 | IN_DATA),
        ({"controller": 1}, 0x182, 16 | IN_DATA),
        ({"queue": 1, "controller": 99}, 0x182, 16 | IN_DATA),
        ({"queue": 1}, 0x182, 16 | IN_DATA),
    ],
)
def test_connects_that_cannot_be(target, fields, status, where):
    queue = target.open()
    reply = queue.connect(**({"nqn": target.nqn} | fields))
    assert (reply.status, reply.result, reply.retry) == (status, where, False)
    assert queue.connect(target.nqn).status == 0  # the same connection may try again


def test_io_queues_belong_to_their_host(target):
    _, controller = target.admin()
    stranger = {"host": "nqn.2026-01.org.kvdrive:stranger"}
    for fields in (stranger, {"host_id": bytes(16)}):
        reply = target.open().connect(target.nqn, 1, controller, **fields)
        assert (reply.status, reply.result) == (0x182, 16 | IN_DATA)
    target.io(controller, 1)
    again = target.open().connect(target.nqn, 1, controller)
    assert (again.status, again.result) == (0x182, 42)


def test_io_queues_need_a_ready_controller(target):
    admin = target.open()
    controller = admin.connect(target.nqn).result
    assert target.open().connect(target.nqn, 1, controller).status == 0x00C


def test_commands_before_connect_and_a_second_connect(target):
    queue = target.open()
    assert queue.plain(FLUSH).status == 0x00C
    assert queue.get_property(CSTS).status == 0x00C
    assert queue.connect(target.nqn).status == 0
    assert queue.connect(target.nqn).status == 0x00C
    assert queue.plain(FABRICS, 0x77).status == 0x001


@pytest.mark.parametrize("on_io_queue", [False, True])
def test_fabrics_commands_that_are_none_are_refused(target, on_io_queue):
    admin, controller = target.admin()
    queue = target.io(controller) if on_io_queue else admin
    known = {PROPERTY_SET, CONNECT, PROPERTY_GET, AUTHENTICATION_SEND, AUTHENTICATION_RECEIVE, DISCONNECT}
    for kind in set(range(256)) - known:
        assert queue.plain(FABRICS, kind).status == 0x001, hex(kind)
    assert queue.plain(FABRICS, AUTHENTICATION_SEND).status == 0x00C  # the controller did not request it
    assert queue.plain(FABRICS, CONNECT).status == 0x00C


def test_a_reset_ends_the_io_queues(target):
    admin, controller = target.admin()
    queue = target.io(controller)
    assert admin.set_property(CC, 0).status == 0
    queue.expect_end()
    assert admin.get_property(CSTS).result & 1 == 0
    admin.enable()
    assert target.io(controller).plain(FLUSH).status == 0


def test_the_association_ends_with_its_admin_queue(target):
    admin, controller = target.admin()
    queue = target.io(controller)
    admin.close()
    queue.expect_end()
    assert target.open().connect(target.nqn, 1, controller).status == 0x182


def test_disconnect_of_an_io_queue(target):
    admin, controller = target.admin()
    queue = target.io(controller)
    assert queue.plain(FABRICS, DISCONNECT).status == 0
    queue.expect_end()
    assert admin.plain(FABRICS, DISCONNECT).status == 0x001
    assert target.io(controller).plain(FLUSH).status == 0


def test_discovery(target):
    queue, _ = target.admin(DISCOVERY_NQN)
    page = queue.read(IDENTIFY, 4096, 0, dwords=(1,)).data
    assert page[111] == 2  # a discovery controller
    assert page[768:1024].rstrip(b"\0").decode() == DISCOVERY_NQN
    whole = queue.read(GET_LOG, 2048, 0, dwords=(0x70 | 511 << 16,)).data
    assert struct.unpack_from("<QQH", whole) == (1, 1, 0)
    entry = whole[1024:]
    assert entry[:3] == bytes([3, 1, 2])  # TCP, IPv4, NVM subsystem
    assert entry[32:64].decode().strip() == str(target.server.port)
    assert entry[256:512].rstrip(b"\0").decode() == target.nqn
    assert entry[512:768].decode().strip() == "127.0.0.1"
    part = queue.read(GET_LOG, 1024, 0, dwords=(0x70 | 255 << 16, 0, 1024)).data
    assert part == entry
    assert queue.read(GET_LOG, 1024, 0, dwords=(0x70 | 255 << 16, 0, 2052)).status == 0x002
    assert queue.read(GET_LOG, 512, 0, dwords=(0x02 | 127 << 16,)).status == 0x109
    assert queue.plain(KEEP_ALIVE, 0).status == 0
    assert queue.plain(0xF5, 0).status == 0x001


def test_only_hosts_of_the_list_come_in(make_target):
    target = make_target(hosts=[(HOST_NQN, None, None)])
    stranger = "nqn.2026-01.org.kvdrive:stranger"
    reply = target.open().connect(target.nqn, host=stranger)
    assert (reply.status, reply.retry) == (0x184, False)
    assert target.counters["refused_hosts"] == 1
    queue, _ = target.admin(DISCOVERY_NQN, host=stranger)
    log = queue.read(GET_LOG, 2048, 0, dwords=(0x70 | 511 << 16,)).data
    assert struct.unpack_from("<QQH", log) == (1, 0, 0)  # other hosts see no drive
    target.admin()


@pytest.mark.parametrize("hosts", [[], [(HOST_NQN, None, None)]])
def test_other_addresses_want_secrets(target, hosts):
    with pytest.raises(ValueError, match="DH-HMAC-CHAP secret"):
        TcpServer(target.subsystem, "0.0.0.0", 0, hosts=hosts)


def test_addresses_that_cannot_be(target):
    with pytest.raises(ValueError, match="numeric"):
        TcpServer(target.subsystem, "localhost", 0)
    with pytest.raises(RuntimeError, match="cannot listen at"):
        TcpServer(target.subsystem, "127.0.0.1", target.server.port)
