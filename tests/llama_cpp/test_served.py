"""Drives that another process serves at a socket: the same results, and sessions of several hosts side by side."""

import threading

import numpy as np
import pytest
from llama_host import Host, decode, divergences, one_by_one, tokens

from kvdrive._native import Drive, RingServer, Subsystem

HERE = {"KVDRIVE_THREADS": ""}  # the server decides


@pytest.fixture
def served(tmp_path):
    """A drive at a socket: the drive, and the socket's path."""
    drive = Drive(tmp_path / "served.kv", "fast", 1, 1 << 28)
    server = RingServer(Subsystem(drive), tmp_path / "drive.sock")
    thread = threading.Thread(target=server.run)
    thread.start()
    yield drive, tmp_path / "drive.sock"
    server.stop()
    thread.join()


def test_a_served_drive_gives_the_bits_of_a_file(host, drive, served):
    numbers = tokens(300)
    commands = [
        decode(numbers[:250]),
        "cp 0 1",
        *one_by_one(numbers[250:256], 250),
        *one_by_one(numbers[256:260], 250, 1),
    ]
    own = host.run(commands, drive=drive, seqs=2)
    elsewhere = host.run(commands, drive=served[1], seqs=2, **HERE)
    assert elsewhere.lines == ["ok"] * len(commands), elsewhere.errors
    assert np.array_equal(own.logits, elsewhere.logits)
    assert served[0].sessions() == []  # they end with their process


def test_two_processes_use_a_served_drive_at_once(host, parts, tmp_path, served):
    numbers = tokens(300)
    commands = [decode(numbers[:250]), *one_by_one(numbers[250:256], 250)]
    (tmp_path / "other").mkdir()
    hosts, found = (host, Host(*parts, tmp_path / "other")), {}

    def run(which):
        found[which] = hosts[which].run(commands, drive=served[1], **HERE)

    threads = [threading.Thread(target=run, args=(which,)) for which in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert found[0].lines == found[1].lines == ["ok"] * len(commands), found
    assert np.array_equal(found[0].logits, found[1].logits)


def test_groups_of_a_served_drive(host, served):
    numbers = (tokens(64) * 20)[:1208]
    commands = [decode(numbers[:1200]), *one_by_one(numbers[1200:], 1200)]
    exact = host.run(commands, drive=served[1], ctx=2048, **HERE)
    chosen = host.run(commands, drive=served[1], ctx=2048, KVDRIVE_ATTENTION="groups", KVDRIVE_RATIO="1/4", **HERE)
    assert 1e-9 < np.median(divergences(exact.logits[1:], chosen.logits[1:])) < 1e-3
    assert "% of the softmax unread" in chosen.errors
    assert "% of K and V" not in chosen.errors  # others may read, too


@pytest.mark.parametrize("name", ["KVDRIVE_CAPACITY", "KVDRIVE_CACHE", "KVDRIVE_THREADS"])
def test_what_the_server_decides_is_refused(host, served, name):
    done = host.run([decode(tokens(3))], drive=served[1], **HERE | {name: "4"})
    assert (done.code, done.lines) == (4, ["no context"])
    assert f"{name} is decided where the drive is served" in done.errors
