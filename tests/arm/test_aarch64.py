"""The drive library for 64-bit ARM, under QEMU's user emulation. This machine is the host of a drive on a board."""

from __future__ import annotations

import base64
import fcntl
import os
import shutil
import signal
import subprocess
import zlib
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import pytest

from kvdrive import abi
from kvdrive.conformance import suite
from kvdrive.conformance.bench import Bench
from kvdrive.conformance.device import ServedDevice
from kvdrive.conformance.queries import Query, ask
from kvdrive.errors import TargetError
from kvdrive.nvme.fabrics.association import RemoteOptions
from kvdrive.nvme.fabrics.identity import host_identity
from kvdrive.nvme.fabrics.pdu import Digests
from kvdrive.targets.remote import TcpDrive

ROOT = Path(__file__).resolve().parents[2]
NATIVE = ROOT / "build/arm/native"
EMULATOR = "qemu-aarch64-static"
HOST = "nqn.2014-08.org.nvmexpress:uuid:11111111-2222-3333-4444-555555555555"
# One worker: all tests need the same build, which takes minutes.
pytestmark = [pytest.mark.xdist_group("arm"), pytest.mark.slow]


@pytest.fixture(scope="module")
def programs() -> Path:
    """The folder of the programs for ARM, built when something changed."""
    missing = [program for program in ("aarch64-linux-gnu-g++", EMULATOR) if shutil.which(program) is None]
    if missing:
        pytest.skip(f"{', '.join(missing)} missing: scripts/arm_build.sh installs it")
    (ROOT / "build/arm").mkdir(parents=True, exist_ok=True)
    with (ROOT / "build/arm/lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        done = subprocess.run([ROOT / "scripts/arm_build.sh"], capture_output=True, text=True, check=False)
    if done.returncode == 3:
        pytest.skip(f"the libraries for ARM could not be fetched: {done.stderr.splitlines()[-1]}")
    assert done.returncode == 0, done.stdout[-4000:] + done.stderr[-4000:]
    return NATIVE


@contextmanager
def board(programs, path, *options, isa=""):
    """The address at which a drive is served under emulation."""
    command = [EMULATOR, programs / "kvdrive-drive", path, "127.0.0.1:0", *options]
    environment = os.environ | ({"KVDRIVE_ISA": isa} if isa else {})
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=environment) as process:
        try:
            said = process.stdout.readline()
            assert said.startswith(f"serving {path} (engine fast) at 127.0.0.1:"), said
            yield "127.0.0.1", int(said.split("127.0.0.1:")[1].split(",")[0])
        finally:
            process.send_signal(signal.SIGTERM)
            assert process.wait(timeout=60) == 0


def conforms(address, options=None):
    """The bench of a board's drive, all of whose checks pass."""
    device = ServedDevice("board", lambda: TcpDrive(address, options), destroy=True)
    report = suite.run(device)
    wrong = [one for outcomes in report.outcomes.values() for one in outcomes if one.state == "failed"]
    assert wrong == []
    assert report.count("passed") > 70
    return Bench(device)


def test_programs_are_for_arm_and_need_no_library(programs):
    for name in ("kvdrive-drive", "kvdrive-crash"):
        head = (programs / name).read_bytes()[:20]
        assert (head[:4], int.from_bytes(head[18:20], "little")) == (b"\x7fELF", 183)  # AArch64
        text = subprocess.run(["readelf", "-l", programs / name], capture_output=True, text=True, check=True).stdout
        assert "INTERP" not in text


@pytest.mark.parametrize("isa", ["neon", "scalar"])
def test_the_drive_conforms_bit_for_bit(programs, tmp_path, isa):
    with board(programs, tmp_path / "board.kv", isa=isa) as address:
        conforms(address)


@pytest.mark.parametrize("isa", ["neon", "scalar"])
def test_every_shape_has_the_golden_models_bits(programs, tmp_path, isa):
    with board(programs, tmp_path / "board.kv", isa=isa) as address:
        bench = Bench(ServedDevice("board", lambda: TcpDrive(address)))
        for group, d in [*((g, 64) for g in (*range(1, 17), 64)), *((3, d) for d in range(8, 257, 24))]:
            stored = bench.store(tokens=130, d=d, heads=1, options=int(abi.AppendOption.APPEND_SPARSE))
            query = Query(bench.halves(1, group, d), 130, valid=bench.rng.random(130) < 0.8)
            ask(bench, stored, query)
            ask(bench, stored, Query(query.q, 130, mode=abi.Mode.PARTIAL))
            ask(bench, stored, Query(query.q, 130, mode=abi.Mode.SPARF_ATTEND, r=4, k_top=20, local=3))


@pytest.mark.parametrize("steps", [25, 150])
def test_power_cuts_leave_a_durable_state(programs, tmp_path, steps):
    command = [EMULATOR, programs / "kvdrive-crash", tmp_path, str(steps)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout
    assert int(done.stdout.split()[0]) > steps // 2


def test_hosts_prove_their_secrets_and_data_have_digests(programs, tmp_path):
    key = np.random.default_rng(1).integers(0, 256, 32, np.uint8).tobytes()
    secret = f"DHHC-1:00:{base64.b64encode(key + zlib.crc32(key).to_bytes(4, 'little')).decode()}:"
    hosts, mine = tmp_path / "hosts", tmp_path / "host.toml"
    hosts.write_text(f"# NQN and secret\n{HOST} {secret}\n")
    mine.write_text(f'[[host]]\nnqn = "{HOST}"\nsecret = "{secret}"\n')
    for path in (hosts, mine):
        path.chmod(0o600)
    with board(programs, tmp_path / "board.kv", "--hosts", hosts) as address:
        options = RemoteOptions(identity=host_identity(mine), digests=Digests(header=True, data=True))
        with TcpDrive(address, options) as drive:
            assert drive.sessions() == set()
        with pytest.raises(TargetError):
            TcpDrive(address, RemoteOptions(reconnect=0))


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ([], "say which file and where"),
        (["x.kv", "here"], "is no address"),
        (["x.kv", "127.0.0.1:0", "--speed", "9"], "no option --speed"),
        (["x.kv", "127.0.0.1:0", "--capacity", "-1"], "is no number"),
        (["x.kv", "127.0.0.1:0", "--hosts", "nothing-here"], "cannot read nothing-here"),
        (["x.kv", "0.0.0.0:0"], "loopback"),
    ],
)
def test_the_program_refuses(programs, tmp_path, arguments, message):
    command = [EMULATOR, programs / "kvdrive-drive", *arguments]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode != 0
    assert message in done.stderr


def test_what_a_board_stored_is_there_when_it_starts_again(programs, tmp_path):
    with board(programs, tmp_path / "board.kv", "--capacity", str(1 << 26)) as address:
        bench = Bench(ServedDevice("board", lambda: TcpDrive(address)))
        stored = bench.store(tokens=100)
    with board(programs, tmp_path / "board.kv") as address:
        bench = Bench(ServedDevice("board", lambda: TcpDrive(address)))
        ask(bench, stored, Query(bench.halves(2, 3, 64), 100))
