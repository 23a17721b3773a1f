"""`kvdrive eval` that is killed or stopped keeps its answers; --resume goes on with them."""

import json
import os
import re
import signal
import sys

import forked
import pytest
from typer.testing import CliRunner

from kvdrive.cli.main import app
from kvdrive.errors import InputError
from kvdrive.eval import sweep
from kvdrive.eval.partial import NAME

pytest.importorskip("matplotlib", reason="the picture needs matplotlib")
TOTAL = 2 * 2 * 3  # contexts, questions of each, policies
ENDING = """
import os, sys
from kvdrive.eval import sweep
from kvdrive.cli.main import main
rate, count = sweep.rate_question, int(sys.argv.pop(2))
def ending(*arguments):
    global count
    count -= 1
    if count < 0:
        os.kill(os.getpid(), number)
    return rate(*arguments)
number, sweep.rate_question = int(sys.argv.pop(1)), ending
main()
"""


def options(byte_checkpoint, out, *more):
    chosen = {
        "model": byte_checkpoint, "text": byte_checkpoint / "text.txt", "out": out, "threads": 1, "windows": 1,
        "targets": 4, "cases": 1, "tasks": "passkey", "policies": "exact,sparf,h2o", "contexts": "200,300",
    }  # fmt: skip
    return ["eval", *(str(part) for name, value in chosen.items() for part in (f"--{name}", value)), *more]


def end_itself(number, answers, arguments):
    """Run the command in a process that sends itself the signal `number` after so many answers."""
    program = [sys.executable, "-c", ENDING, str(int(number)), str(answers), *arguments]
    return forked.run(program, capture_output=True, text=True, env=os.environ | {"COLUMNS": "80"})


@pytest.fixture(scope="module")
def whole(byte_checkpoint, tmp_path_factory):
    """The result of an evaluation that nothing has stopped."""
    out = tmp_path_factory.mktemp("whole")
    done = CliRunner().invoke(app, options(byte_checkpoint, out))
    assert done.exit_code == 0, done.output
    assert not (out / NAME).exists()
    return json.loads((out / "eval.json").read_text())


@pytest.fixture
def computed(monkeypatch):
    """A list that grows with each computed answer."""
    found, rate = [], sweep.rate_question
    monkeypatch.setattr(sweep, "rate_question", lambda *arguments: found.append(1) or rate(*arguments))
    return found


@pytest.mark.parametrize(
    ("number", "answers"), [(signal.SIGKILL, 5), pytest.param(signal.SIGINT, 4, marks=pytest.mark.slow)]
)
def test_a_run_that_ended_early_goes_on(byte_checkpoint, tmp_path, whole, computed, number, answers):
    arguments = options(byte_checkpoint, tmp_path)
    ended = end_itself(number, answers, arguments)
    if number == signal.SIGKILL:
        assert ended.returncode == -signal.SIGKILL
    else:
        assert ended.returncode == 130
        (line,) = ended.stderr.splitlines()
        assert line.startswith(f"kvdrive: stopped: {tmp_path / NAME} keeps {answers} of {TOTAL} answers; ")
    assert not (tmp_path / "eval.json").exists()
    done = CliRunner().invoke(app, [*arguments, "--resume"])
    assert done.exit_code == 0, done.output
    assert len(computed) == TOTAL - answers + 1, "the exact answer that the question's others are compared with"
    assert json.loads((tmp_path / "eval.json").read_text()) == whole
    assert not (tmp_path / NAME).exists()


@pytest.fixture
def stopped(byte_checkpoint, tmp_path, monkeypatch):
    """A folder with three answers of a stopped run."""
    rate, count = sweep.rate_question, iter(range(3))

    def some(*arguments):
        if next(count, None) is None:
            raise KeyboardInterrupt
        return rate(*arguments)

    with monkeypatch.context() as patched:
        patched.setattr(sweep, "rate_question", some)
        CliRunner().invoke(app, options(byte_checkpoint, tmp_path))
    assert len(json.loads((tmp_path / NAME).read_text())["answers"]) == 3
    return tmp_path


@pytest.mark.parametrize(
    ("more", "message"),
    [
        ([], "keeps 3 answers of a run that was stopped: --resume goes on with them"),
        (["--resume", "--contexts", "200"], "was begun with --contexts 200,300, not 200: give the same option"),
        (["--resume", "--seed", "2"], "was begun with --seed 1, not 2"),
        (["--resume", "--engine", "hls"], "was begun with --engine fast, not hls"),
    ],
)
def test_other_options_are_refused_and_the_answers_stay(byte_checkpoint, stopped, computed, more, message):
    before = (stopped / NAME).read_bytes()
    done = CliRunner().invoke(app, options(byte_checkpoint, stopped, *more))
    assert isinstance(done.exception, InputError)
    assert re.search(message, str(done.exception))
    assert (stopped / NAME).read_bytes() == before
    assert computed == []


def test_another_text_under_the_same_name_is_refused(byte_checkpoint, stopped, tmp_path, computed):
    text = byte_checkpoint / "text.txt"
    before = text.read_text()
    text.write_text(before.replace("Jack", "Jill"))
    try:
        done = CliRunner().invoke(app, options(byte_checkpoint, stopped, "--resume"))
    finally:
        text.write_text(before)
    assert isinstance(done.exception, InputError)
    assert "another text or other weights" in str(done.exception)
    assert computed == []


def test_a_damaged_file_is_one_sentence(byte_checkpoint, stopped):
    (stopped / NAME).write_text("{")
    done = CliRunner().invoke(app, options(byte_checkpoint, stopped, "--resume"))
    assert isinstance(done.exception, InputError)
    assert "is damaged: remove it to begin again" in str(done.exception)
