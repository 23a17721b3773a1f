"""The programs in examples/ run and print the expected output."""

import sys
from pathlib import Path

import forked

from kvdrive._native import Drive, Subsystem, TcpServer

EXAMPLES = Path(__file__).resolve().parents[2] / "examples"


def run(name: str, *arguments: str) -> str:
    command = [sys.executable, str(EXAMPLES / name), *arguments]
    done = forked.run(command, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_attach() -> None:
    assert "the same tokens as without a drive: True" in run("attach.py")


def test_own_policy() -> None:
    exact, eighth, whole = (line.split(": ", 1) for line in run("own_policy.py").splitlines())
    assert [exact[0], eighth[0], whole[0]] == ["exact 1", "ends 1/8", "ends 1"]
    assert whole[1] == exact[1]  # at ratio 1 it attends to every token


def test_sessions_goes_on_in_another_process(tmp_path: Path) -> None:
    first, second = (run("sessions.py", str(tmp_path / "drive.kv")) for _ in range(2))
    assert first.startswith("0 of ")
    found, _, tokens, *_ = second.split()
    assert int(found) == int(tokens) - 1


def test_remote_drive(tmp_path: Path) -> None:
    drive = Drive(tmp_path / "drive.kv", "fast", 1, 1 << 26)
    server = TcpServer(Subsystem(drive, nqn="nqn.2026-01.org.kvdrive:example"))
    assert "attention jobs" in run("remote_drive.py", f"tcp://127.0.0.1:{server.port}")
    assert server.counters()["commands"] > 100
