"""Sequences that llama.cpp computes outlive their process: found by their tokens, continued without moving a row."""

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import forked
import pytest
from llama_host import tokens
from test_generate import PLACES, models, run  # noqa: F401 (a fixture)

HOST = Path(__file__).with_name("session_host.py")
LAYERS = 4


@pytest.fixture
def session_host(parts, tmp_path):
    """A function that executes commands of session_host.py in a new process; returns their results."""

    def execute(*commands, model=None, options=()):
        done = forked.run(
            [sys.executable, HOST, model or parts[1], tmp_path, *options],
            input="".join(json.dumps(command) + "\n" for command in commands),
            capture_output=True,
            text=True,
            env=os.environ | PLACES,
            timeout=300,
        )
        assert done.returncode in (0, -signal.SIGKILL), done.stderr
        return [json.loads(line) for line in done.stdout.splitlines()]

    return execute


def test_a_killed_process_is_continued_by_the_next_one(session_host):
    """The second process goes on with the tokens that the first one kept, and with no others; the tokens are those of
    a process that never ended. Nothing is read or written for what is there.
    """
    numbers = tokens(300)
    *_, whole, _ = session_host(
        ["extend", numbers[:200]], ["keep", "one"], ["extend", numbers[200:]], ["fork"], ["die"]
    )
    left, found, before, after, counted, kept, left_then = session_host(
        ["sessions"],
        ["resume", numbers],
        ["counters"],
        ["extend", numbers[200:]],
        ["counters"],
        ["keep", "one"],
        ["sessions"],
    )
    assert len(left) == 1  # the kept one: the running one and the copy that had no mark are gone
    assert found == 200
    assert (before["appended_rows"], before["reads"]) == (0, 0)
    assert after == whole
    assert counted["appended_rows"] == 2 * LAYERS * 100
    assert kept
    assert len(left_then) == 2  # the running one, and the one that took the name


@pytest.mark.slow
def test_a_text_that_differs_goes_on_behind_the_common_part(session_host):
    numbers, others = tokens(300), tokens(100, seed=2)
    session_host(["extend", numbers[:250]], ["keep", ""])
    diverged = [*numbers[:117], *others]
    found, after, _ = session_host(["resume", diverged], ["extend", diverged[117:]], ["keep", ""])
    [whole] = session_host(["extend", numbers[:117]], ["truncate", 117], ["extend", others])[2:]
    assert (found, after) == (117, whole)
    assert session_host(["resume", [*numbers, 5]], ["sessions"])[0] == 250  # both are there
    assert session_host(["resume", [*diverged, 5]])[0] == 217


@pytest.mark.slow
def test_a_sequence_that_was_cut_is_kept_as_it_is(session_host):
    numbers, others = tokens(300), tokens(60, seed=3)
    session_host(
        ["extend", numbers[:200]], ["keep", "x"], ["truncate", 100], ["extend", others], ["keep", "x"], ["die"]
    )
    found, after = session_host(["resume", [*numbers[:100], *others, 7]], ["extend", [7]])
    fresh = session_host(["extend", numbers[:100]], ["extend", others], ["extend", [7]])
    assert (found, after) == (160, fresh[2])
    assert session_host(["resume", [*numbers[:200], 7]])[0] == 100


@pytest.mark.slow
def test_sessions_of_another_model_or_format_are_not_found(session_host, parts, tmp_path):
    numbers = tokens(100)
    session_host(["extend", numbers], ["keep", ""])
    other = tmp_path / "other.gguf"
    content = bytearray(parts[1].read_bytes())
    content[-2] ^= 1  # a weight
    other.write_bytes(content)
    assert session_host(["resume", [*numbers, 5]], model=other) == [0]
    assert session_host(["resume", [*numbers, 5]], options=["kv_format=int8"]) == [0]
    assert session_host(["resume", [*numbers, 5]]) == [100]


@pytest.mark.slow
def test_a_quantised_sequence_goes_on_with_its_bits(session_host):
    numbers, options = tokens(300), ["kv_format=int8"]
    whole = session_host(["extend", numbers[:200]], ["keep", ""], ["extend", numbers[200:]], options=options)
    assert session_host(["resume", numbers], ["extend", numbers[200:]], options=options) == [200, whole[2]]


@pytest.mark.slow
def test_a_killed_chat_goes_on(models, tmp_path):  # noqa: F811
    """kill -9 behind an answer: the next process computes only what is new, and says what one process would say."""
    command = ["chat", "-m", models(), "-n", 6, "--threads", 1, "--drive"]
    whole = run(*command, tmp_path / "whole", given="def one():\ndef two():\n")
    chat = subprocess.Popen(
        [sys.executable, "-m", "kvdrive", *map(str, [*command, tmp_path / "chat"])],
        stdin=subprocess.PIPE,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
        env=os.environ | PLACES,
    )
    chat.stdin.write("def one():\n")
    chat.stdin.flush()
    while "tokens computed" not in chat.stderr.readline():
        assert chat.poll() is None
    chat.kill()
    chat.wait()
    again = run(*command, tmp_path / "chat", given="def two():\n")
    assert whole.returncode == again.returncode == 0, whole.stderr + again.stderr
    assert "going on after 2 messages, 15 tokens on the drive" in again.stderr
    assert [line for line in again.stderr.splitlines() if "computed" in line] == [
        line for line in whole.stderr.splitlines() if "computed" in line
    ][1:]
    first, second = (json.loads((tmp_path / name / "messages.json").read_text()) for name in ("whole", "chat"))
    assert first == second


@pytest.mark.slow
def test_a_named_session_goes_on_in_another_process(models, tmp_path):  # noqa: F811
    options = ["-m", models(), "-n", 4, "--threads", 1, "--drive", tmp_path / "here", "--session", "mine"]
    first = run("generate", *options, "-p", "def append(self):")
    second = run("generate", *options, "-p", "\n")
    assert first.returncode == second.returncode == 0, first.stderr + second.stderr
    assert "going on after 0 tokens" in first.stderr
    held = int(second.stderr.split("going on after ")[1].split()[0])
    assert held > 4
    listed = run("sessions", "list", tmp_path / "here", "--json")
    assert [one["name"] for one in json.loads(listed.stdout)] == ["mine"]
