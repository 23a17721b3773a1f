"""`--target`: this machine's disk, drives that are served elsewhere, and errors for options that a target lacks."""

import json
import threading

import pytest
from typer.testing import CliRunner

from kvdrive._native import Drive, RingServer, Subsystem, TcpServer
from kvdrive.cli.main import app
from kvdrive.errors import InputError, KvdriveError

RUNNER = CliRunner()


def test_generate_on_this_machines_disk(checkpoint, tmp_path):
    options = ["--threads", "1", "--prompt", "The drive keeps the keys", "--max-new-tokens", "12", "--ignore-stop"]
    arguments = ["--target", "cpu", "--check", "--json", "--drive", str(tmp_path)]
    result = RUNNER.invoke(app, ["generate", "--model", str(checkpoint), *options, *arguments])
    assert result.exit_code == 0, result.output
    report = json.loads(result.stdout)
    assert report["check"]["identical"] == 12
    assert report["options"]["target"] == "cpu"
    assert report["modelled"]["device_ns_per_token"] is None
    assert "file_bytes_read" in report["counted"]["decode"]


@pytest.mark.parametrize("command", ["run", "serve --port 0"])
def test_options_of_the_other_target_are_refused(command):
    for options in ("--target cpu --preset zn540", "--cache 1G"):
        result = RUNNER.invoke(app, f"{command} {options} --model mini".split())
        assert isinstance(result.exception, InputError)
        assert "does not go with --target" in str(result.exception)


@pytest.fixture
def served(tmp_path):
    """Two served drives."""
    made = [
        Subsystem(Drive(tmp_path / f"{n}.kv", "fast", 1, 1 << 26), nqn=f"nqn.2026-01.org.kvdrive:{n}") for n in "ab"
    ]
    return made


def generated(checkpoint, *arguments):
    options = ["--threads", "1", "--prompt", "The drive keeps the keys", "--max-new-tokens", "12", "--ignore-stop"]
    result = RUNNER.invoke(app, ["generate", "--model", str(checkpoint), *options, "--check", "--json", *arguments])
    assert result.exit_code == 0, result.output
    return json.loads(result.stdout)


def test_generate_on_two_drives_over_tcp(checkpoint, served):
    servers = [TcpServer(one) for one in served]
    target = "tcp://" + ",".join(f"127.0.0.1:{server.port}" for server in servers)
    report = generated(checkpoint, "--target", target)
    assert report["check"]["identical"] == 12
    assert report["options"]["target"] == target
    assert report["counted"]["decode"]["attention_jobs"] > 0
    assert report["modelled"]["device_ns_per_token"] > 0
    assert all(server.counters()["commands"] > 10 for server in servers)


def test_generate_on_a_drive_behind_a_socket(checkpoint, served, tmp_path):
    server = RingServer(served[0], tmp_path / "drive.sock")
    thread = threading.Thread(target=server.run)
    thread.start()
    try:
        assert generated(checkpoint, "--target", str(tmp_path / "drive.sock"))["check"]["identical"] == 12
    finally:
        server.stop()
        thread.join()


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ("--target ssd", "there is no target 'ssd'"),
        ("--target tcp://127.0.0.1:1 --preset zn540", "leave --preset out"),
        (f"--identity {__file__}", "only drives at tcp://"),
        (f"--target a.sock --identity {__file__}", "only drives at tcp://"),
        ("--target tcp://127.0.0.1:99999", "is no address"),
        ("--target nvme:/dev/sda", "no NVMe character device"),
        ("--target nvme:/dev/ng77n3", "there is no such device"),
    ],
)
def test_what_an_address_cannot_be_is_a_sentence(checkpoint, options, message):
    arguments = f"generate --model {checkpoint} --prompt a --threads 1 {options}".split()
    result = RUNNER.invoke(app, arguments)
    assert isinstance(result.exception, KvdriveError)
    assert message in str(result.exception)
