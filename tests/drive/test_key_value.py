# SPDX-License-Identifier: Apache-2.0
"""The key-value namespace through its client: in this process, behind a socket and over NVMe/TCP."""

from __future__ import annotations

import threading
from contextlib import contextmanager

import numpy as np
import pytest
from stored_bytes import place_of
from stored_values import KEYS, put, read_value, stored_keys

from kvdrive import abi
from kvdrive._native import Drive, QueuePairs, RingServer, Subsystem, TcpServer
from kvdrive.errors import InputError
from kvdrive.nvme import admin, values, wire
from kvdrive.nvme.completions import decode
from kvdrive.nvme.errors import KeyExistsError, MissingKeyError, ValueCommandError
from kvdrive.nvme.fabrics.association import RemoteOptions
from kvdrive.targets.emulator import Emulator
from kvdrive.targets.key_value import KeyValueNamespace
from kvdrive.targets.remote import SocketDrive, TcpDrive

SC = wire.StatusCode


class Host:
    """A drive with queue pairs in this process."""

    def __init__(self, path):
        self.drive = Drive(path, "fast", 1, 1 << 26)
        self.pairs = QueuePairs(Subsystem(self.drive), 1 << 24)

    def send(self, command, queue=1):
        return decode(*self.pairs.execute(queue, command.entry, command.data, command.room))

    def ok(self, command, queue=1):
        done = self.send(command, queue)
        assert done.status == 0, hex(done.status)
        return done


@contextmanager
def connected(place, folder):
    """A target of each kind, and the native drive behind it (None where the target owns it)."""
    if place == "process":
        with Emulator(folder / "drive.kv", engine="fast") as target:
            yield target, None
        return
    drive = Drive(folder / "drive.kv", "fast", 1, 1 << 28)
    subsystem = Subsystem(drive)
    if place == "tcp":
        server = TcpServer(subsystem, "127.0.0.1", 0)
        with TcpDrive(("127.0.0.1", server.port), RemoteOptions(timeout=3)) as target:
            yield target, server
        return
    rings = RingServer(subsystem, folder / "drive.sock")
    thread = threading.Thread(target=rings.run)
    thread.start()
    try:
        with SocketDrive(folder / "drive.sock") as target:
            yield target, None
    finally:
        rings.stop()
        thread.join()


@pytest.mark.parametrize("place", ["process", "sock", "tcp"])
def test_values_of_all_sizes_come_back(tmp_path, place):
    rng = np.random.default_rng(1)
    with connected(place, tmp_path) as (target, _):
        namespace = KeyValueNamespace(target)
        stored = {f"key {size}".encode(): rng.bytes(size) for size in (0, 1, 4096, 1 << 20, (1 << 20) + 1, 17_000_001)}
        for key, value in stored.items():
            namespace.store(key, value, "not-exist")
        assert list(namespace.keys()) == sorted(stored)
        for key, value in stored.items():
            assert (namespace.retrieve(key) == value, namespace.size(key)) == (True, len(value)), key
            assert namespace.retrieve(key, 5) == value[5:]
        largest = stored[b"key 17000001"]
        buffer = np.zeros(3 << 20, np.uint8)
        assert namespace.retrieve(b"key 17000001", 4097, into=buffer) == buffer.size
        assert buffer.tobytes() == largest[4097 : 4097 + buffer.size]
        assert namespace.retrieve(b"key 1", into=buffer) == 1
        namespace.store(b"key 1", memoryview(bytearray(b"other")), "exist")
        assert namespace.retrieve(b"key 1") == b"other"
        namespace.delete(b"key 4096")
        namespace.delete(b"key 4096")
        assert (namespace.exists(b"key 4096"), namespace.exists(b"key 0")) == (False, True)


def test_what_the_client_refuses_and_raises(tmp_path):
    with Emulator(tmp_path / "drive.kv", engine="fast") as target:
        namespace = KeyValueNamespace(target)
        namespace.store(b"there", b"1")
        with pytest.raises(KeyExistsError, match="STORE failed: SC_KEY_EXISTS"):
            namespace.store(b"there", b"2", "not-exist")
        for call in (
            lambda: namespace.store(b"gone", b"2", "exist"),
            lambda: namespace.retrieve(b"gone"),
            lambda: namespace.size(b"gone"),
        ):
            with pytest.raises(MissingKeyError, match="the key does not exist"):
                call()
        for key in (b"", b"x" * 17):
            with pytest.raises(InputError, match="a key has 1 to 16 bytes"):
                namespace.exists(key)
        with pytest.raises(InputError, match="writable"):
            namespace.retrieve(b"there", into=b"1234")
        assert namespace.retrieve(b"there") == b"1"


def test_more_keys_than_one_list_takes_are_iterated_in_order(tmp_path):
    with Emulator(tmp_path / "drive.kv", engine="fast") as target:
        namespace = KeyValueNamespace(target)
        keys = sorted(f"{number * 7919 % 10007}".encode().ljust(number % 12 + 5, b"\xff") for number in range(6000))
        target.submit_many([values.store(key, np.zeros(0, np.uint8)) for key in keys])
        assert list(namespace.keys()) == keys
        assert list(namespace.keys(keys[4321])) == keys[4321:]
        assert list(namespace.keys(b"\xff")) == []


def test_a_value_that_is_replaced_while_it_is_read_is_read_again(tmp_path):
    """A reader in several commands never returns a mixture of two values."""
    with Emulator(tmp_path / "drive.kv", engine="fast") as target:
        old, new = b"a" * 9_000_000, b"b" * 9_000_000
        KeyValueNamespace(target).store(b"key", old)

        class Replacing:
            max_transfer_bytes, replaced = 1 << 20, 0

            def submit(self, command):
                return target.submit(command)

            def submit_many(self, commands):
                if self.replaced == 0:
                    KeyValueNamespace(target).store(b"key", new)
                self.replaced += 1
                return target.submit_many(commands)

        reader = Replacing()
        assert KeyValueNamespace(reader).retrieve(b"key") == new
        assert reader.replaced == 2


@pytest.mark.parametrize("fault", ["drop_connection", "lose_completion"])
def test_a_lost_connection_in_the_middle_of_an_upload(tmp_path, fault):
    with connected("tcp", tmp_path) as (target, server):
        namespace, value = KeyValueNamespace(target), np.random.default_rng(2).bytes(5 << 20)
        namespace.store(b"key", b"old")
        server.inject(fault)
        namespace.store(b"key", value)
        assert namespace.retrieve(b"key") == value


def test_a_full_drive_refuses_and_keeps_the_earlier_value(make_drive):
    host = make_drive(capacity_bytes=1 << 22)
    first = bytes(300_000)
    assert put(host, b"key", first) == 0
    assert put(host, b"key", bytes(4_000_000)) == abi.NvmeStatus.CAPACITY_EXCEEDED
    assert read_value(host.drive, b"key") == first
    live = host.drive.flash_stats()["groups_live"]
    assert live == -(-300_000 // 4096)  # nothing of the refused value is left
    assert host.drive.check() == []


def test_keys_take_drive_memory_up_to_its_budget(make_drive):
    host = make_drive(capacity_bytes=1 << 24, metadata_bytes=40_000)
    statuses = []
    while not statuses or statuses[-1] == 0:
        statuses.append(put(host, b"%08d" % len(statuses), b""))
    assert statuses[-1] == abi.NvmeStatus.CAPACITY_EXCEEDED
    assert host.drive.flash_stats()["metadata_bytes"] <= 40_000
    assert host.raw(values.delete(b"%08d" % 3).entry).status == 0
    assert put(host, b"again", b"") == 0


def test_replaced_and_deleted_values_are_collected(make_drive):
    """Twenty times the drive's capacity goes through it; some values stay and are moved."""
    host = make_drive(pages_per_block=1, capacity_bytes=4096 * 700)
    rng = np.random.default_rng(3)
    cold = {b"cold %d" % i: rng.bytes(20_000) for i in range(60)}
    for key, value in cold.items():
        assert put(host, key, value) == 0
    for number in range(700):
        assert put(host, KEYS[number % 4], rng.bytes(80_000)) == 0
        if number % 5 == 0:
            assert host.raw(values.delete(KEYS[number % 4]).entry).status == 0
    assert host.drive.flash_stats()["groups_moved"] > 0
    assert all(read_value(host.drive, key) == value for key, value in cold.items())
    host.reopen()
    assert all(read_value(host.drive, key) == value for key, value in cold.items())
    assert host.drive.check() == []


def test_a_corrupt_page_is_never_served(make_drive):
    host = make_drive()
    value = np.random.default_rng(4).bytes(1 << 20)
    assert put(host, b"key", value) == 0
    assert put(host, b"other", bytes(1 << 23)) == 0  # so that the value is in flash
    assert host.flush().status == 0
    at = place_of(host.path, value[40_960:45_056])
    host.drive = None
    with host.path.open("r+b") as file:
        file.seek(at + 17)
        file.write(bytes([value[40_960 + 17] ^ 4]))
    host.drive = Drive(host.path, "fast", 1)
    for size, offset, status in (
        (1 << 20, 0, SC.SC_UNRECOVERED_ERROR),
        (4096, 40_960, SC.SC_UNRECOVERED_ERROR),
        (4096, 0, 0),
    ):
        reply = host.raw(values.retrieve(b"key", size, offset).entry)
        assert (reply.status, reply.data.tobytes()) == (status, b"" if status else value[:4096])
    assert host.drive.flash_stats()["lost_groups"] == 2


def test_a_client_is_told_of_a_lost_page_in_a_later_part(tmp_path):
    value, path = np.random.default_rng(5).bytes(1 << 20), tmp_path / "drive.kv"
    with Emulator(path, engine="fast") as target:
        namespace = KeyValueNamespace(target)
        namespace.store(b"key", value)
        namespace.store(b"other", bytes(1 << 23))  # so that the value is in flash
        namespace.flush()
    at = place_of(path, value[700_416:704_512])
    with path.open("r+b") as file:
        file.seek(at)
        file.write(bytes([value[700_416] ^ 1]))
    with Emulator(path, engine="fast") as target, pytest.raises(ValueCommandError) as error:
        KeyValueNamespace(target).retrieve(b"key")
    assert error.value.status == SC.SC_UNRECOVERED_ERROR


def test_no_version_is_used_again_after_a_power_cut(make_drive):
    """A reader that goes on behind a power cut does not take the new value for the one that it began to read."""
    host = make_drive()
    versions = []
    for value in (b"first", b"second", b"third"):
        assert put(host, b"key", value) == 0
        versions.append(values.value_version(host.raw(values.retrieve(b"key", 5).entry).result))
        host.drive.inject("power_cut")
        host.reopen()
        assert stored_keys(host.drive) == []  # nothing was flushed
    assert len(set(versions)) == 3


def test_deleted_keys_and_ended_sessions_do_not_wait_for_a_flush_without_end(make_drive):
    """A drive keeps their names in memory until the journal has them, so it commits by itself when there are many."""
    host = make_drive()
    row = np.zeros((1, 1, 64), np.float16)

    def delete_a_key(number):
        key = b"%08d" % number
        assert put(host, key, b"") == 0
        assert host.raw(values.delete(key).entry).status == 0

    def end_a_session(number):
        assert host.append(row, session=number).status == 0
        assert host.trim(number).status == 0

    for work in (delete_a_key, end_a_session):
        written = host.drive.flash_stats()["file_writes"]
        for number in range(1, 5000):
            work(number)
        assert host.drive.flash_stats()["file_writes"] > written
    host.drive.inject("power_cut")
    host.reopen()
    assert (stored_keys(host.drive), host.drive.sessions(), host.drive.check()) == ([], [], [])


def test_a_read_only_drive_serves_values_and_refuses_changes(make_drive):
    host = make_drive()
    assert put(host, b"key", b"value") == 0
    host.drive = None
    host.drive = Drive(host.path, "fast", 1, read_only=True)
    assert read_value(host.drive, b"key") == b"value"
    assert put(host, b"key", b"other") == SC.SC_NAMESPACE_WRITE_PROTECTED
    assert host.raw(values.delete(b"key").entry).status == SC.SC_NAMESPACE_WRITE_PROTECTED
    assert read_value(host.drive, b"key") == b"value"


def test_uploads_are_bounded_and_leave_nothing_behind(tmp_path):
    host = Host(tmp_path / "drive.kv")
    page, part = np.ones(4096, np.uint8), wire.StoreOption.STORE_PART

    def begin(key):
        return host.ok(values.store(key, page, part, total=8192)).result

    uploads = [begin(b"key %d" % number) for number in range(wire.MAX_UPLOADS + 3)]
    assert host.drive.flash_stats()["groups_live"] == wire.MAX_UPLOADS
    for number, status in ((2, SC.SC_COMMAND_SEQUENCE), (3, 0)):
        last = values.store(b"key %d" % number, page, part, upload=uploads[number], offset=4096, total=8192)
        assert host.send(last).status == status
    assert stored_keys(host.drive) == [b"key 3"]
    host.ok(values.delete(b"key 3"))
    assert host.drive.flash_stats()["groups_live"] == wire.MAX_UPLOADS - 1
    del host.pairs  # the host goes
    assert host.drive.flash_stats()["groups_live"] == 0
    assert host.drive.check() == []


def test_the_counters_count_values(tmp_path):
    host = Host(tmp_path / "drive.kv")
    for key in (b"one", b"two"):
        host.ok(values.store(key, np.zeros(5000, np.uint8)))
    host.ok(values.retrieve(b"one", 8192))
    page = host.ok(admin.get_log_page(wire.LogPage.LOG_STATISTICS, 512), 0).data
    found = admin.decode(wire.DriveStatistics, page)
    names = ("values", "value_bytes", "value_stores", "value_retrieves")
    assert [found[name] for name in names] == [2, 2 * 5003, 2, 1]
    smart = admin.decode(wire.SmartLog, host.ok(admin.get_log_page(wire.LogPage.LOG_SMART, 512), 0).data)
    assert (smart["host_writes"], smart["host_reads"]) == (2, 1)


def test_the_error_of_a_value_is_a_sentence():
    error = ValueCommandError("RETRIEVE", SC.SC_UNRECOVERED_ERROR)
    assert str(error) == (
        "RETRIEVE failed: SC_UNRECOVERED_ERROR (the drive lost a page of the value: delete the key or store it again)"
    )
