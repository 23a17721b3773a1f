"""DH-HMAC-CHAP against a host written with Python's primitives."""

import struct

import pytest
from tcp.conftest import NQN
from tcp.dhchap_host import Host, secret
from tcp.initiator import FABRICS, HOST_NQN

from kvdrive._native import TcpServer

KEY, OTHER = bytes(range(32)), bytes(range(48))
FAILURE1 = 0xF1
AUTHENTICATION_REQUEST = 1 << 17


@pytest.fixture
def guarded(make_target):
    """A target with one allowed host. Both the host and the controller have a secret."""
    return make_target(hosts=[(HOST_NQN, secret(KEY), secret(OTHER))])


def connected(target):
    queue = target.open()
    reply = queue.connect(target.nqn)
    assert (reply.status, reply.result & ~0xFFFF) == (0, AUTHENTICATION_REQUEST)
    return queue, reply.result & 0xFFFF


@pytest.mark.parametrize(
    ("hashes", "groups", "hash_seen", "group_seen"),
    [((1,), (0,), 1, 0), ((1, 2), (0,), 2, 0), ((1, 2, 3), (0, 1), 3, 1), ((2,), (1,), 2, 1)],
)
@pytest.mark.parametrize("mutual", [False, True])
def test_a_host_with_the_secret_comes_in(guarded, hashes, groups, hash_seen, group_seen, mutual):
    queue, controller = connected(guarded)
    assert queue.get_property(0x1C).status == 0x191  # refused before authentication
    host = Host(KEY, NQN, hashes=hashes, groups=groups, controller_key=OTHER if mutual else None)
    assert host.run(queue).status == 0
    assert (host.hash_seen, host.group_seen) == (hash_seen, group_seen)
    queue.enable()
    io = guarded.open()
    assert io.connect(NQN, 1, controller).result & AUTHENTICATION_REQUEST  # every queue authenticates separately
    assert io.plain(0x00).status == 0x191
    assert Host(KEY, NQN, hashes=hashes).run(io).status == 0
    assert io.plain(0x00).status == 0
    assert Host(KEY, NQN).run(queue).status == 0  # authenticate again, on a live queue


@pytest.mark.parametrize("transform", [1, 2, 3])
def test_transformed_secrets(make_target, transform):
    target = make_target(hosts=[(HOST_NQN, secret(KEY, transform), None)])
    queue, _ = connected(target)
    assert Host(KEY, NQN, transform=transform).run(queue).data[1] == 0x03
    queue.enable()


@pytest.mark.parametrize(
    ("host", "reason"),
    [
        (Host(OTHER, NQN), 1),
        (Host(KEY, "nqn.2026-01.org.kvdrive:other"), 1),
        (Host(KEY, NQN, transform=1), 1),
        (Host(KEY, NQN, hashes=(9,)), 4),
        (Host(KEY, NQN, groups=(9,)), 5),
        (Host(KEY, NQN, concatenation=1), 3),
    ],
)
def test_others_are_told_and_cut_off(guarded, host, reason):
    queue, _ = connected(guarded)
    end = host.run(queue)
    assert end.status == 0
    assert end.data[:8] == struct.pack("<BBHHBB", 1, FAILURE1, 0, host.transaction, 1, reason)
    queue.expect_end()
    assert guarded.counters["failed_authentications"] == 1


def test_a_controller_without_a_secret_cannot_prove_itself(make_target):
    target = make_target(hosts=[(HOST_NQN, secret(KEY), None)])
    queue, _ = connected(target)
    assert Host(KEY, NQN, controller_key=OTHER).run(queue).data[1] == FAILURE1


def test_messages_out_of_order(guarded):
    queue, _ = connected(guarded)
    assert Host.receive(queue).status == 0x00C  # the host has to send the next message
    host = Host(KEY, NQN)
    assert host.send(queue, host.negotiation()).status == 0
    challenge = host.receive(queue)
    answer = host.answer(challenge.data)
    assert host.send(queue, answer).status == 0
    assert host.send(queue, answer).status == 0  # an answer is valid only once
    assert host.receive(queue).data[1] == FAILURE1
    queue.expect_end()


@pytest.mark.parametrize("size", [8, 16, 40, 60])
def test_short_messages(guarded, size):
    queue, _ = connected(guarded)
    host = Host(KEY, NQN)
    assert host.send(queue, host.negotiation()[:size]).status == 0
    assert host.receive(queue).data[1] == FAILURE1


def test_messages_that_are_none(guarded):
    queue, _ = connected(guarded)
    assert Host.send(queue, bytes(4)).status == 0x002
    assert queue.write(FABRICS, bytes(64), 0x05, dwords=(0, 64)).status == 0x002
    host = Host(KEY, NQN)
    assert host.send(queue, host.negotiation()).status == 0
    assert host.receive(queue, 8).status == 0x002  # no room for the challenge


def test_no_secret_no_authentication(target):
    queue, _ = target.admin()
    assert Host.send(queue, Host(KEY, NQN).negotiation()).status == 0x00C


@pytest.mark.parametrize(
    "text",
    [
        "",
        "hunter2",
        "DHHC-1:00:AAAA:",
        "DHHC-1:04:" + secret(KEY)[10:],
        secret(KEY)[:-1],
        secret(KEY).replace("A", "B"),
    ],
)
def test_secrets_that_are_none(target, text):
    with pytest.raises(ValueError, match="DH-HMAC-CHAP") as caught:
        TcpServer(target.subsystem, hosts=[(HOST_NQN, text, None)])
    assert not text or text not in str(caught.value)


def test_all_addresses_with_secrets(target):
    server = TcpServer(target.subsystem, "0.0.0.0", 0, hosts=[(HOST_NQN, secret(KEY), None)])
    assert server.port > 0
