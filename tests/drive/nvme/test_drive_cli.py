# SPDX-License-Identifier: Apache-2.0
"""`kvdrive drive`: files, a served drive, and mistakes of users."""

import contextlib
import io
import json
import os
import re
import signal
import socket as socketlib
import subprocess
import sys
from dataclasses import dataclass
from unittest import mock

import numpy as np
import pytest
from stored_bytes import occurrences, stored

from kvdrive import abi
from kvdrive._native import Drive, QueuePairs, Subsystem
from kvdrive.cli.main import main
from kvdrive.nvme import commands, namespaces
from kvdrive.nvme.completions import decode


@dataclass
class Result:
    returncode: int
    stdout: str
    stderr: str


def kvdrive(*arguments):
    """The command line in this process."""
    out, err = io.StringIO(), io.StringIO()
    with (
        mock.patch.object(sys, "argv", ["kvdrive", "drive", *map(str, arguments)]),
        contextlib.redirect_stdout(out),
        contextlib.redirect_stderr(err),
        pytest.raises(SystemExit) as end,
    ):
        main()
    return Result(end.value.code or 0, out.getvalue(), err.getvalue())


def test_create_info_and_fsck(tmp_path):
    path = tmp_path / "drive.kv"
    assert json.loads(kvdrive("create", path, "--capacity", "64M", "--json").stdout)["capacity_bytes"] == 1 << 26
    again = kvdrive("create", path)
    assert (again.returncode, "--force" in again.stderr) == (2, True)
    found = json.loads(kvdrive("info", path, "--json").stdout)
    assert found["file_bytes_on_disk"] == path.stat().st_blocks * 512 < found["file_bytes"]
    assert (found["preset"], found["sessions"], found["blocks_used"]) == ("970pro", [], 0)
    assert json.loads(kvdrive("fsck", path, "--json").stdout)["disagreements"] == []


@pytest.mark.parametrize("command", ["info", "fsck"])
def test_looking_at_a_drive_neither_writes_nor_creates(tmp_path, command):
    path, missing = tmp_path / "drive.kv", tmp_path / "missing.kv"
    kvdrive("create", path, "--capacity", "64M")
    os.utime(path, (1, 1))
    before = list(stored(path))
    path.chmod(0o444)
    assert kvdrive(command, path).returncode == 0
    assert kvdrive(command, missing).returncode == 2
    assert list(stored(path)) == before
    assert path.stat().st_mtime == 1
    assert sorted(tmp_path.iterdir()) == [path]


def test_budgets_and_wear_of_a_new_drive(tmp_path):
    """Budgets are stored on the drive and shown by info. 0 means no limit for sessions."""
    path = tmp_path / "drive.kv"
    sizes = ("--staged-budget", "1M", "--session-budget", "2M", "--metadata-budget", "3M", "--worn-erases", 7)
    want = {
        "staged_budget_bytes": 1 << 20,
        "session_budget_bytes": 2 << 20,
        "metadata_budget_bytes": 3 << 20,
        "least_erases": 7,
        "most_erases": 7,
    }
    assert want.items() <= json.loads(kvdrive("create", path, "--capacity", "64M", *sizes, "--json").stdout).items()
    assert want.items() <= json.loads(kvdrive("info", path, "--json").stdout).items()
    assert "1,048,576" in kvdrive("info", path).stdout
    plain = tmp_path / "plain.kv"
    found = json.loads(kvdrive("create", plain, "--capacity", "64M", "--json").stdout)
    assert (found["staged_budget_bytes"], found["session_budget_bytes"], found["most_erases"]) == (256 << 20, 0, 0)
    assert found["metadata_budget_bytes"] == (16 << 20) + (64 << 20) // abi.PAGE_BYTES
    assert "no limit" in kvdrive("info", plain).stdout


def test_erase_leaves_nothing_of_a_session(tmp_path):
    path = tmp_path / "drive.kv"
    drive = Drive(path, "fast", 1, 1 << 26)
    pairs = QueuePairs(Subsystem(drive), 1 << 24)
    values = {3: 1.125, 4: 2.25, 5: 4.5}
    marks = {session: np.full(8, value, np.float16).tobytes() for session, value in values.items()}
    for session, value in values.items():
        for sequence, kind in enumerate(abi.KvKind):
            command = commands.kv_append(session, 0, 0, kind, 0, sequence, np.full((2, 400, 64), value, np.float16))
            decode(*pairs.execute(1, command.entry, command.data)).check(command.opcode)
    del pairs, drive
    result = json.loads(kvdrive("erase", path, 3, 4, "--json").stdout)
    assert (result["sessions"], result["blocks_erased"] > 0) == ([5], True)
    assert [occurrences(path, marks[session]) > 0 for session in values] == [False, False, True]
    assert kvdrive("erase", path, "--all").returncode == 0
    assert occurrences(path, marks[5]) == 0
    assert json.loads(kvdrive("fsck", path, "--json").stdout)["disagreements"] == []


def test_fsck_finds_damage(tmp_path):
    path = tmp_path / "drive.kv"
    drive = Drive(path, "fast", 1, 1 << 26)
    layout = drive.layout()
    QueuePairs(Subsystem(drive), 1 << 24).execute(
        1, *write(np.random.default_rng(1).integers(0, 256, 4096 * 900).astype(np.uint8))
    )
    del drive
    with path.open("r+b") as file:
        file.seek(layout["unit_offset"] + 100)
        file.write(b"damage")
    result = kvdrive("fsck", path)
    assert result.returncode == 1
    assert "contents are damaged" in result.stdout


def write(data):
    command = namespaces.write_blocks(0, data)
    return command.entry, command.data


def test_serve_stats_and_a_clean_end(tmp_path):
    path, socket = tmp_path / "drive.kv", tmp_path / "drive.sock"
    kvdrive("create", path, "--capacity", "64M")
    arguments = [sys.executable, "-m", "kvdrive", "drive", "serve", path, "--socket", socket]
    options = ["--fault", "read_uncorrectable:0:1", "--nvme-tcp", "127.0.0.1:0", "--trace", tmp_path / "trace.json"]
    with subprocess.Popen([*arguments, *options], stdout=subprocess.PIPE, text=True) as server:
        try:
            told = server.stdout.readline()
            assert "serving" in told
            with socketlib.create_connection(("127.0.0.1", int(re.search(r"127\.0\.0\.1:(\d+)", told)[1]))):
                pass
            pairs = QueuePairs.connect(socket, 1 << 22)
            pairs.execute(1, *write(np.full(4096, 5, np.uint8)))
            del pairs
            assert json.loads(kvdrive("stats", socket, "--json").stdout)["block_writes"] == 1
            os.kill(server.pid, signal.SIGTERM)
            assert server.wait(20) == 0
        finally:
            server.kill()
    assert not socket.exists()
    assert ("queue", 1 << 16 | 1, "WRITE") in spans_of(tmp_path / "trace.json")
    assert json.loads(kvdrive("info", path, "--json").stdout)["blocks_used"] == 1


def test_the_kernels_are_made_before_a_host_can_come(tmp_path, monkeypatch):
    """A compiler that fails ends `serve` before there is a socket."""
    tool = tmp_path / "tree/sim/compiled"
    tool.mkdir(parents=True)
    (tool / "__main__.py").write_text(f"import sys; open({str(tmp_path / 'said')!r}, 'w').write(sys.argv[1]); exit(1)")
    monkeypatch.setattr("kvdrive.kernels.compiled.ROOT", tmp_path / "tree")
    monkeypatch.delenv("KVDRIVE_KERNELS", raising=False)
    Drive(tmp_path / "drive.kv", "fast", 1, 1 << 26)
    result = kvdrive("serve", tmp_path / "drive.kv", "--socket", tmp_path / "socket", "--engine", "hls")
    assert (result.returncode, "kernels of engine hls cannot be compiled" in result.stderr) == (2, True)
    assert (tmp_path / "said").read_text() == "--all"
    assert not (tmp_path / "socket").exists()


def spans_of(path):
    """(kind of track, track, name) of every span of a timeline."""
    events = json.loads(path.read_text())["traceEvents"]
    kinds = {event["pid"]: event["args"]["name"] for event in events if event["name"] == "process_name"}
    return [(kinds[event["pid"]], event["tid"], event["name"]) for event in events if event["ph"] == "X"]


SMALL = ("--tokens", 512, "--heads", 2, "--head-dim", 64, "--layers", 3, "--group", 2, "--preset", "instcsd")


@pytest.mark.parametrize(("workload", "jobs"), [("prefill", 0), ("exact", 3 * 2), ("sparf", 3 * 2 * 3)])
def test_the_timeline_of_a_workload(tmp_path, workload, jobs):
    out = tmp_path / "trace.json"
    result = kvdrive("trace", "--workload", workload, "--out", out, "--json", "--queues", 2, *SMALL)
    assert result.returncode == 0, result.stderr
    found, spans = json.loads(result.stdout), spans_of(out)
    assert found["events"] == len(spans)
    assert found["modelled_device_us"] == pytest.approx(found["modelled_to_us"] - found["modelled_from_us"], abs=0.01)
    assert found["modelled_device_us"] > 0
    assert found["tracks"]["queue"] == len({track for kind, track, _ in spans if kind == "queue"}) == 2
    assert sum(kind == "engine" for kind, _, _ in spans) == jobs
    sent = [name for kind, _, name in spans if kind == "queue"]
    expected = ["KV_APPEND"] * 6 + ["FLUSH"] if workload == "prefill" else ["ATTN_SUBMIT", "ATTN_FETCH"] * 3
    assert sent == expected
    again = tmp_path / "again.json"
    kvdrive("trace", "--workload", workload, "--out", again, "--queues", 2, *SMALL)
    assert again.read_bytes() == out.read_bytes()


def test_the_timeline_of_what_a_drive_holds(tmp_path):
    path, out = tmp_path / "drive.kv", tmp_path / "trace.json"
    drive = Drive(path, "fast", 1, 1 << 26)
    pairs = QueuePairs(Subsystem(drive), 1 << 24)
    heads, sequence = {0: 3, 1: 2}, 0  # by layer
    for layer, count in heads.items():
        for kind in abi.KvKind:
            command = commands.kv_append(9, layer, 0, kind, 0, sequence, np.ones((count, 100, 64), np.float16))
            decode(*pairs.execute(1, command.entry, command.data)).check(command.opcode)
            sequence += 1
    before = drive.heads(9)
    assert len(before) == 10
    del pairs, drive
    assert kvdrive("trace", path, "--out", out).returncode == 0
    assert Drive(path).heads(9) == before
    spans = spans_of(out)
    assert sum(kind == "engine" for kind, _, _ in spans) == 5
    assert sum(name == "ATTN_SUBMIT" for _, _, name in spans) == 2


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (("info", "{}/none.kv"), "there is no drive"),
        (("create", "{}/new.kv", "--capacity", "many"), "is no size"),
        (("create", "{}/new.kv", "--preset", "floppy"), "preset"),
        (("create", "{}/new.kv", "--staged-budget", "99999999T"), "is more than there is"),
        (("create", "{}/new.kv", "--staged-budget", "2T"), "at most 1 TiB"),
        (("create", "{}/new.kv", "--staged-budget", "4095"), "4096 at least"),
        (("create", "{}/new.kv", "--metadata-budget", "10"), "that the flash's blocks take"),
        (("create", "{}/new.kv", "--session-budget", "100"), "4096 bytes at least"),
        (("create", "{}/new.kv", "--session-budget", "-1"), "is no size"),
        (("create", "{}/new.kv", "--worn-erases", "-1"), "from 0 to 1000000"),
        (("erase", "{}/drive.kv"), "say what to erase"),
        (("erase", "{}/drive.kv", "3"), "has no session 3"),
        (("erase", "{}/drive.kv", "3", "--all"), "say what to erase"),
        (("stats", "{}/none.sock"), "no drive is served"),
        (("stats", "{}/none"), "is no address of a served drive"),
        (("serve", "{}/drive.kv", "--socket", "{}/s", "--fault", "flood"), "unknown fault"),
        (("serve", "{}/drive.kv", "--socket", "{}/s", "--fault", "full:x"), "is no fault"),
        (("serve", "{}/drive.kv"), "say where to serve"),
        (("trace",), "say what to trace"),
        (("trace", "{}/drive.kv"), "holds no K and V"),
        (("trace", "{}/drive.kv", "--workload", "exact"), "one of both"),
        (("trace", "--workload", "exact", "--head-dim", "33"), "multiples of 8"),
        (("trace", "--workload", "prefill", "--tokens", "8", "--out", "{}/none/trace.json"), "cannot write"),
        (("serve", "{}/drive.kv", "--nvme-tcp", "4420"), "is no address"),
        (("serve", "{}/drive.kv", "--nvme-tcp", "0.0.0.0:4420"), "secret"),
    ],
)
def test_mistakes_get_one_sentence(tmp_path, arguments, sentence):
    Drive(tmp_path / "drive.kv", "fast", 1, 1 << 26)
    result = kvdrive(*(argument.format(tmp_path) for argument in arguments))
    assert result.returncode == 2
    assert sentence in result.stderr
    assert len(result.stderr.strip().splitlines()) == 1
    assert not (tmp_path / "new.kv").exists()
