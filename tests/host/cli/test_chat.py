"""`kvdrive chat`: a conversation continues after its process was closed or killed, with its tokens on the drive."""

import json
import re
import signal
import subprocess
import sys
import time

import forked
import pytest
from typer.testing import CliRunner

from kvdrive.cli.main import app

QUESTIONS = ("Who keeps the keys?", "Und die Werte?", "And the host?")


@pytest.fixture
def chat(checkpoint, tmp_path):
    def call(*questions, folder="chat", options=(), model=checkpoint):
        arguments = ["--model", model, "--drive", tmp_path / folder, "--max-new-tokens", 10, "--threads", 1]
        return CliRunner().invoke(app, ["chat", *map(str, (*arguments, *options))], input="\n".join(questions) + "\n")

    return call


def messages(folder):
    return json.loads((folder / "messages.json").read_text())


def counts(result):
    """(computed, on the drive) after each answer."""
    return [tuple(map(int, one)) for one in re.findall(r"\((\d+) tokens computed, (\d+) on the drive\)", result.stderr)]


def test_a_closed_conversation_continues(chat, tmp_path):
    whole = chat(*QUESTIONS, folder="whole")
    assert whole.exit_code == 0, whole.output
    first = chat(QUESTIONS[0])
    assert first.exit_code == 0, first.output
    assert "going on" not in first.stderr
    rest = chat(*QUESTIONS[1:])
    assert re.search(r"going on after 2 messages, \d+ tokens on the drive", rest.stderr)
    assert messages(tmp_path / "chat") == messages(tmp_path / "whole")
    assert counts(first) + counts(rest) == counts(whole)
    assert first.stdout + rest.stdout == whole.stdout
    (asked, held), (computed, held_then), _ = counts(whole)
    assert asked < held  # the prompt and the answer are on the drive
    assert computed <= held_then - asked  # the first question is not computed again


def test_a_conversation_of_a_model_with_windows_continues(chat, hybrid_checkpoint, tmp_path):
    long, *others = QUESTIONS[0] * 30, *QUESTIONS[1:]
    whole = chat(long, *others, folder="whole", model=hybrid_checkpoint)
    assert whole.exit_code == 0, whole.output
    first = chat(long, model=hybrid_checkpoint)
    rest = chat(*others, model=hybrid_checkpoint)
    assert messages(tmp_path / "chat") == messages(tmp_path / "whole")
    assert counts(first) + counts(rest) == counts(whole)
    (asked, held), (computed, held_then), _ = counts(whole)
    assert asked < held
    assert held > 256
    assert computed <= held_then - asked  # a checkpoint before the answer, which a tokenizer may spell otherwise


def test_a_conversation_of_layer_inputs_says_the_same(chat, tmp_path):
    whole = chat(*QUESTIONS[:2], folder="whole")
    first = chat(QUESTIONS[0], options=("--xcache", "1"))
    rest = chat(QUESTIONS[1], options=("--xcache", "1"))
    assert messages(tmp_path / "chat") == messages(tmp_path / "whole")
    assert counts(first) + counts(rest) == counts(whole)
    refused = chat(QUESTIONS[2])
    assert "session 'chat' holds layer inputs (X-cache)" in str(refused.exception)


def test_new_starts_anew(chat, tmp_path):
    chat(QUESTIONS[0])
    result = chat("/new", QUESTIONS[1], "/quit", "never read")
    assert messages(tmp_path / "chat")[0]["content"] == QUESTIONS[1]
    assert len(messages(tmp_path / "chat")) == 2
    assert result.stdout == chat(QUESTIONS[1], folder="other").stdout


def test_a_killed_conversation_keeps_the_question_and_answers_it_again(chat, checkpoint, tmp_path):
    chat(QUESTIONS[0])
    kept = messages(tmp_path / "chat")
    command = [sys.executable, "-m", "kvdrive", "chat", "--model", str(checkpoint), "--drive", str(tmp_path / "chat")]
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}
    with forked.popen([*command, "--max-new-tokens", "200"], **pipes) as process:
        process.stdin.write(f"{QUESTIONS[1]}\n".encode())
        process.stdin.flush()
        assert process.stdout.read(1)  # the answer has begun
        time.sleep(0.05)
        process.send_signal(signal.SIGKILL)
    assert messages(tmp_path / "chat") == [*kept, {"role": "user", "content": QUESTIONS[1]}]
    again = chat(*QUESTIONS[2:])
    assert again.exit_code == 0, again.output
    assert "going on after 3 messages" in again.stderr
    assert f"the answer to your last message did not end, here it is again: {QUESTIONS[1]}" in again.stderr
    chat(*QUESTIONS, folder="whole")
    assert messages(tmp_path / "chat") == messages(tmp_path / "whole")


def test_a_conversation_that_is_too_long_is_one_sentence(chat, tmp_path):
    result = chat("key " * 3000, QUESTIONS[0])
    assert "start anew with /new" in result.stderr
    assert messages(tmp_path / "chat")[0]["content"] == QUESTIONS[0]


def test_another_model_cannot_continue(chat, tmp_path):
    chat(QUESTIONS[0])
    result = chat(QUESTIONS[1], options=["--dtype", "bfloat16"])
    assert result.exit_code != 0
    assert "another model, other weights or another precision" in str(result.exception)
    (tmp_path / "chat/messages.json").write_text("{")
    assert "remove it to start anew" in str(chat(QUESTIONS[1]).exception)
