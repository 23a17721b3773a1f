"""`--overflow trim` where users meet it: generate, chat and serve go on when the positions are used up."""

import json

import pytest
from server_process import PROMPT, Server
from typer.testing import CliRunner

from kvdrive.cli.main import app

LONG = PROMPT * 14  # more tokens than the context of the server
TRIM = ("--overflow", "trim", "--context", 256)
SERVED = ("--overflow", "trim", "--context", 384)


@pytest.fixture
def call(checkpoint, tmp_path):
    def run(command, *arguments, **options):
        given = [command, "--model", checkpoint, "--threads", 1, "--drive", tmp_path / "drive", *arguments]
        return CliRunner().invoke(app, list(map(str, given)), **options)

    return run


def test_generate_says_what_left_and_when(call):
    result = call("generate", "--prompt", PROMPT, "--max-new-tokens", 250, "--ignore-stop", "--json", *TRIM)
    assert result.exit_code == 0, result.output
    report = json.loads(result.stdout)
    assert len(report["tokens"][0]) == 250
    assert report["removals"][0]["at"] == 256
    assert all(one["tokens"] > 0 for one in report["removals"])
    shown = call("generate", "--prompt", PROMPT, "--max-new-tokens", 250, "--ignore-stop", "-v", *TRIM)
    assert "tokens that left because the positions were used up" in shown.stderr


def test_without_trim_the_text_is_refused_with_the_remedy(call):
    result = call("generate", "--prompt", PROMPT, "--max-new-tokens", 500, "--context", 384)
    assert result.exit_code != 0
    assert "--overflow trim" in str(result.exception)


def test_a_session_that_lost_tokens_continues_in_another_process(call):
    arguments = ("--session", "story", "--ignore-stop", "--json", *TRIM)
    first = json.loads(call("generate", "--prompt", PROMPT, "--max-new-tokens", 250, *arguments).stdout)
    second = json.loads(call("generate", "--prompt", " And then", "--max-new-tokens", 150, *arguments).stdout)
    assert first["removals"]
    assert len(second["removals"]) > len(first["removals"])
    assert second["removals"][: len(first["removals"])] == first["removals"]


def test_a_conversation_continues_beyond_the_positions(call):
    questions = "\n".join(f"{PROMPT} {number}?" for number in range(4))
    result = call("chat", "--max-new-tokens", 60, *TRIM, input=f"{questions}\n")
    assert result.exit_code == 0, result.output
    assert "positions" not in result.stderr
    assert result.stderr.count("tokens computed") == 4
    refused = call("chat", "--max-new-tokens", 120, "--context", 256, input="One more?\n")
    assert "start anew with /new" in refused.stderr


@pytest.mark.slow
def test_the_server_continues_and_finds_what_is_left_after_kill_9(checkpoint, tmp_path):
    server = Server(checkpoint, tmp_path, "--drive", tmp_path / "drives", *SERVED)
    try:
        asked = {"prompt": LONG, "max_tokens": 30, "session": "talk", "temperature": 0}
        first = server.complete(**asked).json()
        assert first["usage"]["prompt_tokens"] > 384
        assert first["kvdrive"]["removed_tokens"] > 0
        assert server.metric("kvdrive_removed_tokens_total") == first["kvdrive"]["removed_tokens"]
    finally:
        server.process.kill()
        server.process.wait()
        server.process.stdout.close()
        server.client.close()
    server = Server(checkpoint, tmp_path, "--drive", tmp_path / "drives", *SERVED)
    try:
        request = {"model": "tiny", "prompt": LONG + first["choices"][0]["text"], "max_tokens": 8, "session": "talk"}
        with server.client.stream("POST", "/v1/completions", json=request | {"stream": True}) as response:
            events = [json.loads(line[6:]) for line in response.iter_lines() if line.startswith("data: {")]
        assert events[-1]["choices"][0]["finish_reason"]
        assert events[-1]["kvdrive"]["resume"] == "attend"  # without include_usage as well
        assert events[-1]["kvdrive"]["removed_tokens"] >= first["kvdrive"]["removed_tokens"]
        assert server.metric("kvdrive_cached_prompt_tokens_total") > 384
    finally:
        server.process.terminate()
        server.process.wait()
        server.process.stdout.close()
        server.client.close()
