"""Every drive that the project has conforms to the specification of its commands."""

from __future__ import annotations

import json
import threading
from contextlib import contextmanager
from dataclasses import replace

import pytest
from typer.testing import CliRunner

from kvdrive import abi
from kvdrive._native import Drive, RingServer, Subsystem, TcpServer
from kvdrive._native import commands as drive_table
from kvdrive.cli.main import app
from kvdrive.conformance import suite
from kvdrive.conformance.bench import Bench
from kvdrive.conformance.device import Device, OwnDevice, open_address
from kvdrive.nvme import namespaces
from kvdrive.nvme.command_set import COMMANDS
from kvdrive.nvme.fabrics.association import RemoteOptions

# Queues are created when a connection begins, outside of the checks, and programs cannot be loaded.
ONLY_REFUSED = {"CREATE_CQ", "CREATE_SQ", "LOAD_PROGRAM"}
run_cli = CliRunner().invoke


def failures(report):
    return [
        (name, one.sentence, one.reason)
        for name, outcomes in report.outcomes.items()
        for one in outcomes
        if one.state == "failed"
    ]


def test_the_specification_has_the_commands_of_the_drives_table():
    table = {row["name"]: row for row in drive_table()}
    assert set(COMMANDS) == set(table)
    for name, row in COMMANDS.items():
        found = table[name]
        assert (row.opcode, row.namespace, row.direction) == (found["opcode"], found["nsid"], found["direction"]), name


@pytest.mark.parametrize("preset", ["", "plain"], ids=["emulator", "cpu"])
def test_a_drive_in_this_process_conforms_and_answers_every_listed_status(tmp_path, preset):
    report = suite.run(OwnDevice(tmp_path / "drive.kv", fresh=True, preset=preset))
    assert (failures(report), report.count("skipped")) == ([], 0)
    for name, row in COMMANDS.items():
        assert set(row.statuses) <= report.seen[name], name
        assert ("SUCCESS" in report.seen[name]) != (name in ONLY_REFUSED), name
    assert Drive(tmp_path / "drive.kv").check() == []


@contextmanager
def served(subsystem, place, folder):
    """The address at which a server serves the drive."""
    if place == "tcp":
        tcp = TcpServer(subsystem, "127.0.0.1", 0)
        yield f"tcp://127.0.0.1:{tcp.port}"
        return
    server = RingServer(subsystem, folder / "drive.sock")
    thread = threading.Thread(target=server.run)
    thread.start()
    try:
        yield str(folder / "drive.sock")
    finally:
        server.stop()
        thread.join()


@pytest.mark.parametrize("place", ["tcp", "sock"])
def test_a_served_drive_conforms_and_keeps_what_it_held(tmp_path, place):
    drive = Drive(tmp_path / "drive.kv", "fast", 1, 1 << 24)
    subsystem = Subsystem(drive)
    with served(subsystem, place, tmp_path) as name:
        device = open_address(name, RemoteOptions())
        mine = Bench(device)
        stored, block = mine.store(tokens=40), mine.noise(1)
        mine.ok(namespaces.write_blocks(mine.size - 1, block))
        report = suite.run(device)
        assert failures(report) == []
        assert report.count("passed") > 70
        assert {one.reason for outcomes in report.outcomes.values() for one in outcomes if one.state == "skipped"}
        assert drive.rows(stored.number, 0, 0, abi.KvKind.KEYS).tobytes() == stored.k[0].tobytes()
        assert drive.sessions() == [stored.number]
        assert mine.ok(namespaces.read_blocks(mine.size - 1, 1)).data.tobytes() == block.tobytes()
        device.close()
    assert drive.check() == []


def test_the_command_line_reports(tmp_path):
    path = tmp_path / "report.json"
    done = run_cli(app, ["drive", "conformance", "emulator", "--only", "read", "--json", "--report", str(path)])
    values = json.loads(done.stdout)
    assert (done.exit_code, values["conforms"], values["target"]) == (0, True, "emulator")
    assert values == json.loads(path.read_text())
    assert set(values["commands"]["READ"]["statuses_answered"]) >= {"SUCCESS", "LBA_OUT_OF_RANGE"}
    assert "emulator conforms" in run_cli(app, ["drive", "conformance", "emulator", "--only", "copy"]).stdout


def test_the_command_line_says_what_failed(monkeypatch):
    send = OwnDevice.send

    def damaged(self, command, *, admin=False):
        done = send(self, command, admin=admin)
        reads = (command.opcode, admin) == (COMMANDS["READ"].opcode, False)
        return replace(done, data=done.data ^ 1) if reads else done

    monkeypatch.setattr(OwnDevice, "send", damaged)
    done = run_cli(app, ["drive", "conformance", "emulator", "--only", "write"])
    assert done.exit_code == 1
    assert "failed: WRITE: blocks read as they were written" in done.stdout
    assert "emulator does not conform" in done.stdout


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["nothing-here"], "there is no drive 'nothing-here'"),
        (["emulator", "--only", "READS"], "there is no command READS"),
        (["tcp://a:1,b:2"], "name one drive"),
        (["emulator", "--identity", __file__], "leave --identity out"),
    ],
)
def test_the_command_line_refuses(arguments, message):
    done = run_cli(app, ["drive", "conformance", *arguments])
    assert done.exit_code != 0
    assert message in str(done.exception)


def test_a_drive_that_exists_is_not_destroyed_unless_this_is_allowed(tmp_path):
    OwnDevice(tmp_path / "drive.kv", fresh=True).close()
    for destroy, skipped in ((False, 3), (True, 1)):
        device = OwnDevice(tmp_path / "drive.kv", destroy=destroy)
        report = suite.run(device, ["FORMAT_NVM"])
        assert (failures(report), report.count("skipped")) == ([], skipped)
        device.close()


def test_what_a_connection_cannot_do_is_an_error():
    class Nothing(Device):
        def send(self, command, *, admin=False): ...
        def send_many(self, commands, *, second=False): ...
        def reset(self): ...
        def close(self): ...

    device = Nothing("nothing")
    for call in (lambda: device.inject("full"), device.lose_power, device.open_again):
        with pytest.raises(NotImplementedError):
            call()
