"""A drive served by another process, over NVMe/TCP or rings, gives the same bits as one in this process."""

import base64
import threading
import time
import zlib
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
import torch
from small_models import CONFIGS, prompts, random_model, step_logits

from kvdrive import abi
from kvdrive._native import Drive, RingServer, Subsystem, TcpServer
from kvdrive.errors import InputError, TargetError
from kvdrive.kvcache.session import Session
from kvdrive.nvme import admin, commands, namespaces, wire
from kvdrive.nvme.fabrics import dhchap
from kvdrive.nvme.fabrics.association import RemoteOptions
from kvdrive.nvme.fabrics.identity import HostIdentity, host_identity
from kvdrive.nvme.fabrics.pdu import Digests
from kvdrive.plugins.transformers import attach
from kvdrive.targets.emulator import Emulator
from kvdrive.targets.remote import SocketDrive, TcpDrive
from kvdrive.targets.served import check_identity

NQN = "nqn.2026-01.org.kvdrive:remote-test"
HOST = "nqn.2014-08.org.nvmexpress:uuid:11111111-2222-3333-4444-555555555555"


def secret_text(key: bytes, transform: int = 0) -> str:
    return f"DHHC-1:{transform:02}:{base64.b64encode(key + zlib.crc32(key).to_bytes(4, 'little')).decode()}:"


class Served:
    """A drive in this process with a server that others may use."""

    def __init__(self, path, **options):
        self.drive = Drive(path, "fast", 1, 1 << 26)
        self.subsystem = Subsystem(self.drive, nqn=NQN)
        self.server = TcpServer(self.subsystem, "127.0.0.1", 0, **options)
        self.address = ("127.0.0.1", self.server.port)

    def restart(self, **options):
        """Replace the server by another one at the same address: all controllers are lost, sessions stay."""
        self.server = None
        self.server = TcpServer(self.subsystem, *self.address, **options)


@pytest.fixture
def served(tmp_path):
    return Served(tmp_path / "served.kv")


@pytest.fixture
def remote(served):
    with TcpDrive(served.address, RemoteOptions(timeout=60, reconnect=60)) as drive:
        yield drive


@pytest.fixture(scope="module")
def model():
    return random_model(CONFIGS["qwen3"])


def filled(drive, tokens=100, heads=2, d=64):
    """A session with K and V of random rows, and its number."""
    rng = np.random.default_rng(5)
    session = drive.new_session()
    for sequence, kind in enumerate((abi.KvKind.KEYS, abi.KvKind.VALUES)):
        rows = rng.standard_normal((heads, tokens, d)).astype(np.float16)
        drive.execute(commands.kv_append(session, 0, 0, kind, 0, sequence, rows))
    return session


def query(session, tokens=100, heads=2, d=64):
    q = np.random.default_rng(6).standard_normal((heads, 1, d)).astype(np.float16)
    return commands.attn_submit(session, 0, 0, q, tokens, 0x3E000000)


def result(drive, session):
    ticket = drive.execute(query(session)).result
    return drive.execute(commands.attn_fetch(ticket, 2, 1, 64)).data.tobytes()


# ---- same bits ----


@pytest.mark.parametrize(
    "digests", [Digests(), Digests(header=True), Digests(True, True)], ids=["none", "header", "both"]
)
def test_generation_over_tcp_has_the_emulators_bits(served, target, model, digests):
    with TcpDrive(served.address, RemoteOptions(digests=digests)) as drive:
        assert torch.equal(step_logits(model, drive, spill=3), step_logits(model, target, spill=3))
        assert drive.stats().attention_jobs == target.stats().attention_jobs > 0
        assert drive.device_ns() > 0


def test_generation_over_a_socket_has_the_emulators_bits(served, target, model, tmp_path):
    server = RingServer(served.subsystem, tmp_path / "drive.sock")
    thread = threading.Thread(target=server.run)
    thread.start()
    try:
        with SocketDrive(tmp_path / "drive.sock") as drive:
            assert torch.equal(
                step_logits(model, drive, attention="sparf"), step_logits(model, target, attention="sparf")
            )
            assert drive.sessions() == set()  # trimmed when the model was detached
    finally:
        server.stop()
        thread.join()
    with pytest.raises(TargetError, match="closed"):
        drive.submit(commands.flush())


def test_remote_and_local_drives_share_heads(served, target, model):
    with TcpDrive(served.address) as drive:
        assert torch.equal(step_logits(model, [target, drive], spill=3), step_logits(model, target, spill=3))


def test_appends_larger_than_a_transfer_are_cut_into_whole_groups(served, target):
    with TcpDrive(served.address) as drive:
        assert drive.max_transfer_bytes == 1 << 20
        session = _session_of(drive, tokens=5000)
        appends = served.server.counters()["commands"]
        assert (
            session.attend(0, _q(), 5000, 0x3E000000).out.tobytes()
            == _session_of(target, 5000).attend(0, _q(), 5000, 0x3E000000).out.tobytes()
        )
        assert appends > 4


def _q():
    return np.random.default_rng(8).standard_normal((4, 2, 128)).astype(np.float16)


def _session_of(drive, tokens):
    rng = np.random.default_rng(7)
    session = Session(drive)
    for kind in (abi.KvKind.KEYS, abi.KvKind.VALUES):
        session.append(0, kind, 0, rng.standard_normal((4, tokens, 128)).astype(np.float16))
    return session


def test_many_commands_in_flight_come_back_in_order(remote):
    blocks = np.arange(64 * wire.LBA_BYTES, dtype=np.uint64).view(np.uint8)[: 64 * wire.LBA_BYTES]
    writes = [namespaces.write_blocks(i, blocks[i * wire.LBA_BYTES :][: wire.LBA_BYTES]) for i in range(64)]
    assert all(done.status == 0 for done in remote.submit_many(writes * 5))
    reads = remote.submit_many([namespaces.read_blocks(i, 1 + i % 7) for i in range(50)])
    for i, done in enumerate(reads):
        assert done.data.tobytes() == blocks[i * wire.LBA_BYTES :][: (1 + i % 7) * wire.LBA_BYTES].tobytes()


def test_large_data_both_ways(remote):
    data = np.random.default_rng(3).integers(0, 256, 1 << 20, np.uint8)
    assert remote.submit(namespaces.write_blocks(0, data)).status == 0
    assert remote.submit(namespaces.read_blocks(0, data.size // wire.LBA_BYTES)).data.tobytes() == data.tobytes()


def test_threads_share_a_drive(remote):
    session, errors = filled(remote), []
    expected = result(remote, session)

    def ask():
        try:
            for _ in range(10):
                assert result(remote, session) == expected
        except BaseException as error:
            errors.append(error)

    threads = [threading.Thread(target=ask) for _ in range(5)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert errors == []


def test_session_numbers_are_new_to_the_drive(remote, served):
    numbers = {filled(remote, tokens=3) for _ in range(5)}
    assert remote.sessions() == numbers == set(served.drive.sessions())
    assert remote.new_session() not in numbers


# ---- lost connections ----


def test_a_lost_io_queue_comes_back_to_the_same_controller(served, remote):
    session = filled(remote)
    expected = result(remote, session)
    served.server.inject("drop_connection")
    assert result(remote, session) == expected
    counters = served.server.counters()
    assert counters["associations"] == 2  # the discovery service's and one controller's


def _lose_completion(path, lost):
    """Runs a sequence of commands on a drive at `path`. The completion of the command number `lost` is lost."""
    served = Served(path)
    with TcpDrive(served.address, RemoteOptions(timeout=0.5, reconnect=60)) as drive:
        session = drive.new_session()
        rows = np.ones((1, 100, 64), np.float16)
        fork = drive.new_session()
        steps = [
            lambda: drive.execute(commands.kv_append(session, 0, 0, abi.KvKind.KEYS, 0, 0, rows)),
            lambda: drive.execute(commands.kv_append(session, 0, 0, abi.KvKind.VALUES, 0, 1, rows)),
            lambda: drive.execute(commands.session_fork(session, fork, 100)),
            lambda: drive.execute(commands.session_remove(fork, range(32, 64), 100)),
            lambda: drive.execute(commands.session_trim(fork, 0)),
            lambda: drive.execute(namespaces.write_blocks(3, np.full(wire.LBA_BYTES, 9, np.uint8))),
            lambda: drive.execute(commands.session_erase(session)),
        ]
        for number, step in enumerate(steps, 1):
            if number == lost:
                served.server.inject("lose_completion")
            step()
        assert served.drive.sessions() == []
        assert drive.submit(namespaces.read_blocks(3, 1)).data.tobytes() == bytes([9]) * wire.LBA_BYTES


def test_a_lost_completion_is_no_second_execution(tmp_path):
    """The completion of each command of a sequence is lost once. No command is executed twice.

    Each has a drive of its own, so that all wait at the same time.
    """
    with ThreadPoolExecutor(7) as pool:
        ended = [pool.submit(_lose_completion, tmp_path / f"{lost}.kv", lost) for lost in range(1, 8)]
    for lost, one in enumerate(ended, 1):
        assert one.exception() is None, f"command {lost}"


@pytest.mark.parametrize("which", ["submit", "fetch"])
def test_a_lost_attention_result_is_computed_again(served, which):
    with TcpDrive(served.address, RemoteOptions(timeout=0.5, reconnect=60)) as drive:
        session = filled(drive)
        expected = result(drive, session)
        if which == "submit":
            served.server.inject("lose_completion")
        ticket = drive.execute(query(session)).result
        if which == "fetch":
            served.server.inject("lose_completion")
        assert drive.execute(commands.attn_fetch(ticket, 2, 1, 64)).data.tobytes() == expected


def test_damaged_data_are_asked_for_again(served):
    with TcpDrive(served.address, RemoteOptions(digests=Digests(True, True), reconnect=60)) as drive:
        session = filled(drive)
        expected = result(drive, session)
        ticket = drive.execute(query(session)).result
        served.server.inject("corrupt_digest")
        assert drive.execute(commands.attn_fetch(ticket, 2, 1, 64)).data.tobytes() == expected


def test_a_server_that_comes_back_is_found_again(served, remote):
    session = filled(remote)
    expected = result(remote, session)
    served.server = None
    threading.Timer(0.5, served.restart).start()
    assert result(remote, session) == expected


def test_a_server_that_stays_away_is_a_sentence(served, remote):
    session = filled(remote)
    served.server = None
    remote._association.options = RemoteOptions(timeout=0.5, reconnect=0.5)
    with pytest.raises(TargetError, match=r"127\.0\.0\.1:\d+: "):
        result(remote, session)


def test_a_dead_drive_of_four_is_left_out(tmp_path, model, target):
    """One of four remote drives is lost in the middle. Its tokens are computed again on the others."""
    served = [Served(tmp_path / f"{number}.kv") for number in range(4)]
    expected = step_logits(model, target, spill=3)
    drives = [TcpDrive(one.address, RemoteOptions(timeout=60, reconnect=0.3)) for one in served]
    ids, nexts = prompts(3, 20), prompts(3, 8, seed=3)
    with attach(model, drives, spill=3, on_failure="recompute") as attached, torch.no_grad():
        cache = attached.cache()
        found = [model(ids, past_key_values=cache).logits]
        for i in range(8):
            if i == 4:
                served[1].server = None
            found.append(model(nexts[:, i : i + 1], past_key_values=cache).logits)
        assert attached.recoveries == 1
    assert torch.equal(torch.cat(found, dim=1), expected)
    for drive in drives:
        drive.close()


def test_keep_alive_keeps_a_silent_host(tmp_path):
    served = Served(tmp_path / "quiet.kv")
    with TcpDrive(served.address, RemoteOptions(keep_alive=2.0)) as drive:
        before = served.server.counters()
        while served.server.counters()["commands"] < before["commands"] + 4:  # the host sends keep-alives by itself
            time.sleep(0.05)
        assert drive.submit(commands.flush()).status == 0
        assert served.server.counters()["keep_alive_expired"] == before["keep_alive_expired"]


# ---- who is there ----


def test_both_sides_prove_their_secrets(tmp_path):
    keys = secret_text(bytes(range(32))), secret_text(bytes(range(48)), transform=2)
    served = Served(tmp_path / "guarded.kv", hosts=[(HOST, *keys)])
    identity = _identity(tmp_path, *keys)
    with TcpDrive(served.address, RemoteOptions(identity=identity)) as drive:
        assert drive.submit(commands.flush()).status == 0


@pytest.mark.parametrize(
    ("keys", "message"),
    [
        ((None, None), "wants a secret"),
        ((secret_text(bytes(48)), None), "refused this host's secret"),
        ((secret_text(bytes(range(32))), secret_text(bytes(48))), "could not prove"),
    ],
    ids=["none", "wrong", "controller"],
)
def test_a_wrong_secret_is_a_sentence(tmp_path, keys, message):
    served = Served(
        tmp_path / "guarded.kv", hosts=[(HOST, secret_text(bytes(range(32))), secret_text(bytes(range(48))))]
    )
    with pytest.raises(TargetError, match=message):
        TcpDrive(served.address, RemoteOptions(identity=_identity(tmp_path, *keys), reconnect=0.5))


def test_a_host_that_the_drive_does_not_know_is_a_sentence(tmp_path):
    served = Served(tmp_path / "guarded.kv", hosts=[(HOST + "1", secret_text(bytes(range(32))), None)])
    with pytest.raises(TargetError, match="lists no drive for this host"):
        TcpDrive(served.address, RemoteOptions(identity=_identity(tmp_path, None, None), reconnect=0.5))


def _identity(folder, secret, controller_secret):
    lines = [f'nqn = "{HOST}"']
    lines += [f'secret = "{secret}"'] if secret else []
    lines += [f'controller_secret = "{controller_secret}"'] if controller_secret else []
    path = folder / "host.toml"
    path.write_text("[[host]]\n" + "\n".join(lines) + "\n")
    path.chmod(0o600)
    return host_identity(path)


def test_an_identity_is_exactly_one_host(tmp_path):
    path = tmp_path / "hosts.toml"
    path.write_text('[[host]]\nnqn = "nqn.a"\n[[host]]\nnqn = "nqn.b"\n')
    path.chmod(0o600)
    with pytest.raises(InputError, match="names 2 hosts"):
        host_identity(path)


@pytest.mark.parametrize(
    "text", ["", "DHHC-1:00:!!!!:", "DHHC-1:04:AAAA:", secret_text(bytes(32))[:-3] + "A=:", "DHHC-1:00:AAAA:"]
)
def test_a_broken_secret_is_not_repeated(text):
    with pytest.raises(InputError) as error:
        dhchap.Secret.parse(text)
    assert not text or text not in str(error.value)


def test_the_prime_is_that_of_its_definition():
    """RFC 7919: 2^2048 - 2^1984 + (floor(2^1918 e) + 560316) 2^64 - 1."""
    e, term, n = 0, 1 << 1918 + 64, 1
    while term:
        e, term, n = e + term, term // n, n + 1
    assert (1 << 2048) - (1 << 1984) + ((e >> 64) + 560316 << 64) - 1 == dhchap._PRIME


def test_own_identity_is_stable():
    assert host_identity() == host_identity()
    assert isinstance(host_identity(), HostIdentity)


def test_no_drive_at_an_address_is_a_sentence():
    with pytest.raises(TargetError, match=r"no drive answers at 127\.0\.0\.1:1"):
        TcpDrive(("127.0.0.1", 1), RemoteOptions(timeout=1, reconnect=0))


def test_a_controller_without_engine_or_of_another_version_is_refused(remote):
    identity = admin.decode(wire.IdentifyController, remote.admin(admin.identify(wire.Cns.CNS_CONTROLLER)).data)
    check_identity(identity, "here")
    with pytest.raises(TargetError, match="has no attention engine"):
        check_identity(identity | {"engine": ""}, "here")
    with pytest.raises(TargetError, match="speaks version 0"):
        check_identity(identity | {"abi_version": 0}, "here")


def test_a_closed_drive_says_so(served):
    drive = TcpDrive(served.address)
    drive.close()
    drive.close()
    for call in (lambda: drive.submit(commands.flush()), drive.stats):
        with pytest.raises(TargetError, match="closed"):
            call()


def test_emulator_keeps_its_own_transfer_limit(tmp_path):
    with Emulator(tmp_path / "own.kv", "fast", capacity_bytes=1 << 26) as drive:
        assert drive.max_transfer_bytes == 1 << 32
