"""`kvdrive run`: a held-out module continued, compared with transformers (tokens) and the compiled kernels (bits)."""

import json

import pytest
from transformers import AutoTokenizer
from typer.testing import CliRunner

from kvdrive.cli.main import app
from kvdrive.cli.run import document
from kvdrive.errors import InputError
from kvdrive.eval.library import Module, held_out_modules
from kvdrive.generation import batches, checkpoints

RUNNER = CliRunner()
LAYERS, KV_HEADS = 2, 2


@pytest.fixture
def run(checkpoint, tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))

    def call(*arguments):
        options = ["--model", checkpoint, "--out", tmp_path / "out", "--threads", 1, *arguments]
        return RUNNER.invoke(app, ["run", *map(str, options)])

    return call


def test_text_table_report_and_comparisons(run, checkpoint, tmp_path):
    result = run("--prompt-tokens", 300, "--new-tokens", 12)
    assert result.exit_code == 0, result.output
    assert "tokens identical to transformers: 12/12" in result.output
    assert "decode steps bit-identical on the hls engine: 4/4" in result.output
    assert "bytes read inside the drive" in result.output
    report = json.loads((tmp_path / "out/report.json").read_text())
    assert report["prompts"] == [300]
    assert report["counted"]["decode"]["attention_jobs"] == 11 * LAYERS * KV_HEADS
    assert (
        AutoTokenizer.from_pretrained(checkpoint).decode(report["tokens"][0], skip_special_tokens=True) in result.output
    )
    assert {path.name for path in (tmp_path / "out").iterdir()} >= {"bytes.png", "times.png", "trace.json"}


def test_a_different_token_fails_and_is_explained(run, monkeypatch):
    def other(model, ids, new_tokens, *arguments, **options):
        tokens = greedy(model, ids, new_tokens, *arguments, **options)
        tokens[0, -2] ^= 1
        return tokens

    greedy = batches.greedy
    monkeypatch.setattr(batches, "greedy", other)
    result = run("--prompt-tokens", 40, "--new-tokens", 5)
    assert result.exit_code == 1
    assert "tokens identical to transformers: 4/5 (first difference: row 0, new token 4" in result.output


def test_different_bits_fail(run, monkeypatch):
    monkeypatch.setattr("kvdrive.generation.task.torch.equal", lambda a, b: False)
    result = run("--prompt-tokens", 40, "--new-tokens", 3)
    assert result.exit_code == 1
    assert "bit-identical on the hls engine: 0/2" in result.output


def test_the_document_is_held_out_and_as_long_as_asked(checkpoint, monkeypatch):
    loaded = checkpoints.load(str(checkpoint))
    names, ids = document(loaded, 1000)
    first = held_out_modules()[0]
    assert names == first.name
    assert ids == loaded.encode(first.text[:40000])[:1000]
    short = [Module("a.py", "import os\n"), Module("b.py", "import sys\n")]
    monkeypatch.setattr("kvdrive.eval.library.held_out_modules", lambda: short)
    assert document(loaded, len(loaded.encode(short[0].text)) + 1)[0] == "a.py, b.py"
    with pytest.raises(InputError, match="fewer --prompt-tokens"):
        document(loaded, 1000)


@pytest.mark.slow
def test_the_shipped_model_continues_8192_tokens(tmp_path):
    result = RUNNER.invoke(app, ["run", "--out", str(tmp_path)])
    assert result.exit_code == 0, result.output
    assert "tokens identical to transformers: 128/128" in result.output
