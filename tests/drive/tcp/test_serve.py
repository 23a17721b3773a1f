"""Addresses and the file of hosts."""

import re
import signal
import subprocess
import sys

import pytest
from tcp.conftest import NQN
from tcp.dhchap_host import Host, secret
from tcp.initiator import HOST_NQN, Queue

from kvdrive._native import Drive
from kvdrive.errors import InputError, TargetError
from kvdrive.nvme.tcp import parse_address, read_hosts, serve_tcp

KEY = bytes(32)


@pytest.fixture
def hosts_file(tmp_path):
    def write(text):
        path = tmp_path / "hosts.toml"
        path.write_text(text)
        path.chmod(0o600)
        return path

    return write


@pytest.mark.parametrize(
    ("text", "address"),
    [
        ("127.0.0.1:4421", ("127.0.0.1", 4421)),
        ("127.0.0.1", ("127.0.0.1", 4420)),
        ("localhost:0", ("127.0.0.1", 0)),
        ("[::1]:4420", ("::1", 4420)),
        ("10.1.2.3:65535", ("10.1.2.3", 65535)),
    ],
)
def test_addresses(text, address):
    assert parse_address(text) == address


@pytest.mark.parametrize(
    "text", ["", "4420", ":4420", "127.0.0.1:", "127.0.0.1:65536", "::1:4420", "[::1", "a:b", "1.2.3.4:-1"]
)
def test_what_is_no_address(text):
    with pytest.raises(InputError, match="no address"):
        parse_address(text)


def test_a_host_of_the_file_comes_in(target, hosts_file):
    path = hosts_file(f'[[host]]\nnqn = "{HOST_NQN}"\nsecret = "{secret(KEY)}"\n[[host]]\nnqn = "nqn.other"\n')
    server = serve_tcp(target.subsystem, "127.0.0.1:0", path)
    queue = Queue(server.port)
    assert queue.connect(NQN).status == 0
    assert Host(KEY, NQN).run(queue).data[1] == 0x03
    queue.enable()
    queue.close()
    with pytest.raises(InputError, match="secret"):  # one host has none
        serve_tcp(target.subsystem, "0.0.0.0:0", path)


def test_ipv6(target):
    server = serve_tcp(target.subsystem, "[::1]:0")
    assert server.port > 0


@pytest.mark.parametrize(
    ("text", "match"),
    [
        ("x", "no TOML"),
        ("", "names no host"),
        ("[[host]]\nsecret = 'x'", "has nqn"),
        ("[[host]]\nnqn = 'nqn.a'\npassword = 'x'", "has nqn"),
        ("[[host]]\nnqn = 1", "strings"),
        ("host = 3", "has nqn"),
        ("[[host]]\nnqn = 'nqn.a'\nsecret = 'x'", "DHHC-1"),
    ],
)
def test_files_that_cannot_be(target, hosts_file, text, match):
    with pytest.raises(InputError, match=match):
        serve_tcp(target.subsystem, "127.0.0.1:0", hosts_file(text))


def test_a_file_that_others_can_read(hosts_file, tmp_path):
    path = hosts_file("")
    path.chmod(0o640)
    with pytest.raises(InputError, match="chmod 600"):
        read_hosts(path)
    with pytest.raises(InputError, match="cannot read"):
        read_hosts(tmp_path / "missing")


def test_addresses_that_cannot_be_had(target):
    with pytest.raises(TargetError, match="cannot listen"):
        serve_tcp(target.subsystem, f"127.0.0.1:{target.server.port}")
    with pytest.raises(InputError, match="numeric"):
        serve_tcp(target.subsystem, "example:4420")


def test_the_command_serves_until_it_is_interrupted(tmp_path):
    path = tmp_path / "drive.kv"
    Drive(path, "fast", 1, 1 << 26)
    command = [sys.executable, "-m", "kvdrive", "drive", "serve", path, "--nvme-tcp", "127.0.0.1:0"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as server:
        try:
            port, nqn = re.search(r"nvme-tcp 127.0.0.1:(\d+), ([^ ;]+)", server.stdout.readline()).groups()
            queue = Queue(int(port))
            assert queue.connect(nqn).status == 0
            queue.enable()
            server.send_signal(signal.SIGINT)
            assert server.wait(20) == 0
            queue.close()
        finally:
            server.kill()
