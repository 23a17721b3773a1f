"""`kvdrive run` as a function and as a command: real text, a model made on the spot, tokens compared."""

import json

import pytest
import torch
from typer.testing import CliRunner

import kvdrive.run
from kvdrive.cli import app
from kvdrive.errors import InputError
from kvdrive.run import default_prompt, read_prompt, run


@pytest.fixture(scope="module")
def out(tmp_path_factory):
    return tmp_path_factory.mktemp("run")


@pytest.mark.parametrize(("engine", "new_tokens"), [("fast", 12), ("hls", 3)])
def test_tokens_equal_transformers(out, capsys, engine, new_tokens):
    assert run(None, new_tokens, engine, out) == 0
    printed = capsys.readouterr().out
    assert f"tokens identical to transformers: {new_tokens}/{new_tokens}" in printed
    report = json.loads((out / "report.json").read_text())
    assert report["engine"] == engine
    assert report["identical"] == report["new_tokens"] == new_tokens
    assert report["prompt_tokens"] == 512
    assert report["tokens"]["drive"] == report["tokens"]["transformers"]
    layers, kv_heads = 4, 2
    drive = report["drive"]
    assert drive["attention_jobs"] == (new_tokens - 1) * layers * kv_heads
    assert drive["failed_commands"] == 0
    # 512 tokens fill 16 pages of 32 tokens for K and for V of each head; every decode step reads them all again
    assert drive["pages_written"] == 2 * 16 * layers * kv_heads
    assert drive["pages_read"] == (new_tokens - 1) * drive["pages_written"]
    assert drive["bytes_read_inside"] == drive["pages_read"] * 4096 + drive["tail_bytes_read"]


def test_the_model_is_made_once(out):
    assert run(None, 1, "fast", out) == 0
    files = {path: path.stat().st_mtime_ns for path in out.glob("model-*/*")}
    assert files
    assert run(None, 1, "fast", out) == 0
    assert {path: path.stat().st_mtime_ns for path in out.glob("model-*/*")} == files


def test_different_tokens_are_counted_and_fail(out, capsys, monkeypatch):
    def other(model, ids, new_tokens, on_token):
        tokens = kvdrive.engine.generate.greedy(model, ids, new_tokens, on_token=on_token)
        tokens[0, -2] ^= 1
        return tokens

    monkeypatch.setattr(kvdrive.run, "greedy", other)
    assert run(None, 4, "fast", out) == 1
    printed = capsys.readouterr().out
    assert "tokens identical to transformers: 3/4" in printed
    assert "first difference: new token 3, " in printed
    assert json.loads((out / "report.json").read_text())["identical"] == 3


def test_own_text_and_short_prompts(out, tmp_path):
    prompt = tmp_path / "text.txt"
    prompt.write_bytes("Grüße".encode())
    assert run(prompt, 3, "fast", out) == 0
    report = json.loads((out / "report.json").read_text())
    assert report["prompt_tokens"] == 7
    assert report["prompt_file"] == str(prompt)


def test_the_command(out):
    result = CliRunner().invoke(app, ["run", "--new-tokens", "2", "--engine", "fast", "--out", str(out)])
    assert result.exit_code == 0, result.output
    assert "tokens identical to transformers: 2/2" in result.output


def test_unusable_prompts(tmp_path):
    with pytest.raises(InputError, match="cannot read"):
        read_prompt(tmp_path / "missing", 10)
    (tmp_path / "empty").touch()
    with pytest.raises(InputError, match="empty"):
        read_prompt(tmp_path / "empty", 10)


def test_the_default_prompt_is_real_text():
    prompt = read_prompt(default_prompt(), 512)
    assert len(prompt) == 512
    assert b"Apache License" in prompt


def test_the_model_does_not_disturb_the_random_state(tmp_path):
    state = torch.random.get_rng_state()
    kvdrive.run.small_model(tmp_path)
    assert torch.equal(torch.random.get_rng_state(), state)
