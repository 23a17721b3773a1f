"""^C ends every long command with one sentence that says what was kept, and with exit status 130."""

import json
import os
import signal
import sys

import forked
import pytest
import torch
from typer.testing import CliRunner

from kvdrive._native import Drive
from kvdrive.cli import main
from kvdrive.cli.main import app
from kvdrive.errors import Stopped
from kvdrive.generation import batches, checkpoints, progress
from kvdrive.generation.conversation import Conversation, as_text
from kvdrive.generation.generate import greedy
from kvdrive.kvcache.on_drives import DriveLayer

ENDING = """
import os, signal, sys
from kvdrive.generation import progress
from kvdrive.cli.main import main
shown = progress.Display.on_step
def on_step(self, step):
    shown(self, step)
    os.kill(os.getpid(), signal.SIGINT)
progress.Display.on_step = on_step
main()
"""


@pytest.fixture(autouse=True)
def cache(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    return tmp_path / "cache" / "kvdrive"


def generate(checkpoint, *more):
    options = ["--prompt", "The drive keeps the keys", "--max-new-tokens", "20", "--ignore-stop", "--threads", "1"]
    return ["generate", "--model", str(checkpoint), *options, *map(str, more)]


def test_a_signal_ends_a_process_with_a_sentence(checkpoint, tmp_path):
    folder = tmp_path / "drives"
    arguments = generate(checkpoint, "--drive", folder, "--report", tmp_path / "report")
    ended = forked.run([sys.executable, "-c", ENDING, *arguments], capture_output=True, text=True)
    assert ended.returncode == 130
    sentence = f"kvdrive: stopped: there is only the text so far; the drives in {folder} hold what they held before\n"
    assert ended.stderr.endswith(sentence)
    assert "Traceback" not in ended.stderr
    assert ended.stdout.strip()
    assert not (tmp_path / "report").exists()
    assert Drive(folder / "drive.kv", "fast", read_only=True).sessions() == []


def test_a_temporary_drive_is_removed(checkpoint, cache, monkeypatch):
    def stop(*arguments, **options):
        assert len(list(cache.glob("*/drive.kv"))) == 1
        raise KeyboardInterrupt

    monkeypatch.setattr(batches, "generate", stop)
    result = CliRunner().invoke(app, generate(checkpoint))
    assert isinstance(result.exception, Stopped)
    assert str(result.exception) == "stopped: there is only the text so far; no drive is left behind"
    assert list(cache.iterdir()) == []


def test_a_session_keeps_the_text_so_far(checkpoint, tmp_path, monkeypatch):
    def stop(self, step):
        raise KeyboardInterrupt

    def tokens():
        (session,) = json.loads(CliRunner().invoke(app, ["sessions", "list", str(tmp_path), "--json"]).stdout)
        return session["tokens"]

    arguments = generate(checkpoint, "--drive", tmp_path, "--session", "talk")
    CliRunner().invoke(app, arguments)
    before = tokens()
    with monkeypatch.context() as patched:
        patched.setattr(progress.Display, "on_step", stop)
        result = CliRunner().invoke(app, arguments)
    assert str(result.exception) == "stopped: the session talk keeps the text so far"
    prompt = before - 20  # both texts begin with it
    assert tokens() == before + prompt  # the one token that followed was not computed


@pytest.fixture
def chat(checkpoint, tmp_path):
    def call(*questions):
        arguments = ["--model", checkpoint, "--drive", tmp_path / "chat", "--max-new-tokens", 10, "--threads", 1]
        return CliRunner().invoke(app, ["chat", *map(str, arguments)], input="".join(f"{q}\n" for q in questions))

    return call


def test_a_conversation_that_is_left_with_c_continues(chat, tmp_path, monkeypatch):
    def read(self):
        raise KeyboardInterrupt

    assert chat("Who keeps the keys?").exit_code == 0
    before = (tmp_path / "chat/messages.json").read_text()
    with monkeypatch.context() as patched:
        patched.setattr("kvdrive.cli.chat._ask", lambda: read(None))
        result = chat("never read")
    assert str(result.exception) == "stopped: all answers so far are kept; the same command goes on after them"
    assert (tmp_path / "chat/messages.json").read_text() == before
    assert "going on after 2 messages" in chat().stderr


@pytest.mark.parametrize("earlier", [0, 1])
def test_an_answer_that_is_stopped_in_its_prefill_harms_nothing(chat, checkpoint, tmp_path, monkeypatch, earlier):
    """^C while the second layer computes. The next answer is that of transformers."""
    if earlier:
        assert chat("Who keeps the keys?").exit_code == 0
    answer, prefilled = Conversation.answer, DriveLayer.update

    def update(self, *arguments, **options):
        if self.stored.index == 1:
            raise KeyboardInterrupt
        return prefilled(self, *arguments, **options)

    def stopped(self, text, *arguments):
        with monkeypatch.context() as patched:
            if text == "Stop here":
                patched.setattr(DriveLayer, "update", update)
            yield from answer(self, text, *arguments)

    monkeypatch.setattr(Conversation, "answer", stopped)
    result = chat("Stop here", "And the host?")
    assert result.exit_code == 0, result.output
    *before, last = json.loads((tmp_path / "chat/messages.json").read_text())
    assert [one["content"] for one in before[2 * earlier :]] == ["Stop here", "", "And the host?"]
    loaded = checkpoints.load(str(checkpoint))
    ids = torch.tensor([loaded.encode(as_text(loaded.tokenizer, before))])
    stock = greedy(loaded.model, ids, 10)[0, ids.shape[1] :]
    assert last["content"] == loaded.tokenizer.decode(stock, skip_special_tokens=True)


def test_commands_without_anything_to_keep_say_that_they_stopped(monkeypatch, capsys):
    def read(*arguments):
        os.kill(os.getpid(), signal.SIGINT)

    monkeypatch.setattr("kvdrive.kernels.files.load", read)
    monkeypatch.setattr(sys, "argv", ["kvdrive", "kernel", "run", "softmax", "--in", "x.npz", "--out", "y.npz"])
    with pytest.raises(SystemExit) as ended:
        main.main()
    assert ended.value.code == 130
    assert capsys.readouterr().err == "kvdrive: stopped\n"
