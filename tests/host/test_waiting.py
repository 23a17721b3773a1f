"""What a command waits for is shown on a terminal, with its time, and nowhere else."""

import io

import pytest
from rich.console import Console

from kvdrive.waiting import waiting_for


@pytest.mark.parametrize("terminal", [True, False])
def test_waiting_is_shown_on_terminals_only(terminal):
    console = Console(file=io.StringIO(), force_terminal=terminal, width=80)
    with waiting_for("importing much", console):
        pass
    text = console.file.getvalue()
    assert ("importing much" in text) == terminal
    assert ("0:00:00" in text) == terminal


@pytest.mark.parametrize(
    ("command", "shown"),
    [
        (["generate", "--model", "nowhere", "--prompt", "x"], "importing torch"),
        (["generate", "--model", "nowhere", "--prompt", "x"], "loading nowhere"),
        (["eval", "--model", "nowhere"], "importing torch"),
        (["eval", "--model", "nowhere"], "loading nowhere"),
        (["chat", "--model", "nowhere"], "loading nowhere"),
        (["serve", "--model", "nowhere"], "loading nowhere"),
        (["doctor", "--model", "nowhere"], "reading nowhere"),
    ],
)
def test_commands_say_what_they_wait_for(monkeypatch, command, shown):
    from typer.testing import CliRunner

    from kvdrive.cli.main import app

    monkeypatch.setenv("FORCE_COLOR", "1")  # rich takes any stream for a terminal
    assert shown in CliRunner().invoke(app, command).stderr
