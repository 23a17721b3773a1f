"""`kvdrive run`: a held-out module continued, compared with transformers (tokens) and the compiled kernels (bits)."""

import json
import re

import pytest
from transformers import AutoTokenizer
from typer.testing import CliRunner

from kvdrive.cli.main import app
from kvdrive.errors import InputError
from kvdrive.eval.library import Module, held_out_modules
from kvdrive.generation import batches, checkpoints
from kvdrive.generation.demonstration import demonstration, held_out

RUNNER = CliRunner()
LAYERS, KV_HEADS = 2, 2


@pytest.fixture
def run(checkpoint, tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))

    def call(*arguments):
        options = ["--model", checkpoint, "--report", tmp_path / "out", "--threads", 1, *arguments]
        return RUNNER.invoke(app, ["run", *map(str, options)])

    return call


def test_text_table_report_and_comparisons(run, checkpoint, tmp_path):
    result = run("--prompt-tokens", 300, "--max-new-tokens", 12)
    assert result.exit_code == 0, result.output
    assert "tokens identical to transformers: 12/12" in result.output
    assert "decode steps bit-identical on the hls engine: 4/4" in result.output
    assert "read inside the drive" in result.output
    text, question, goes_on = result.output.splitlines()[:3]
    assert re.fullmatch(r"text: 300 tokens of .*, with a pass key in a comment", text)
    assert question == "question: # What is the pass key? The pass key is"
    assert goes_on == "the model goes on:"
    assert "stock transformers: tokens/s of decode" in result.output
    assert re.search(r"│ model +│ ", result.output)
    assert "LlamaForCausalLM, float32" in re.sub(r"\s*│\n│\s*│\s*", " ", result.output)  # the cell may be folded
    assert re.search(r"attention +│ exact", result.output)
    for cell in re.findall(r"│ ([^│]*) +│$", result.output, re.M):
        assert len(re.findall(r"\d[\d,.]*", cell)) <= 1 or "LlamaForCausalLM" in cell  # one number in a cell
    assert "the answer, " in result.output
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
    result = run("--prompt-tokens", 140, "--max-new-tokens", 5)
    assert result.exit_code == 1
    assert "tokens identical to transformers: 4/5 (first difference: row 0, new token 4" in result.output


def test_different_bits_fail(run, monkeypatch):
    monkeypatch.setattr("kvdrive.generation.task.torch.equal", lambda a, b: False)
    result = run("--prompt-tokens", 140, "--max-new-tokens", 3)
    assert result.exit_code == 1
    assert "bit-identical on the hls engine: 0/2" in result.output


def test_a_pass_key_is_hidden_in_held_out_text(checkpoint, monkeypatch):
    loaded = checkpoints.load(str(checkpoint))
    shown = demonstration(loaded, 1000)
    names, ids = held_out(loaded, 500)
    first = held_out_modules()[0]
    assert names == first.name
    assert ids == loaded.encode(first.text[:40000])[:500]
    assert len(shown.ids) == 1000
    text = loaded.tokenizer.decode(shown.ids)
    assert text.count(shown.answer) == 1
    assert text.endswith("# What is the pass key? The pass key is ")
    back = loaded.tokenizer.decode(shown.ids[-shown.tokens_back :])
    assert back.startswith(f"# The pass key is {shown.answer}")
    assert shown.verdict(f"{shown.answer}.").endswith(f"stands {shown.tokens_back} tokens back: found")
    assert shown.verdict("else").endswith("not found")
    short = [Module("a.py", "import os\n"), Module("b.py", "import sys\n")]
    monkeypatch.setattr("kvdrive.eval.library.held_out_modules", lambda: short)
    assert held_out(loaded, len(loaded.encode(short[0].text)) + 1)[0] == "a.py, b.py"
    for tokens in (1000, 4):
        with pytest.raises(InputError, match="`prompt_tokens`"):
            demonstration(loaded, tokens)


def test_a_chat_model_is_asked_in_its_own_words():
    loaded = checkpoints.load("mini")
    loaded.tokenizer.chat_template = (
        "<{% for m in messages %}{{ m['role'] }}: {{ m['content'] }}{% endfor %}>assistant:"
    )
    shown = demonstration(loaded, 1500)
    assert len(shown.ids) == 1500
    text = loaded.tokenizer.decode(shown.ids)
    assert text.startswith("<user: Read the text below")
    assert text.endswith("mentioned in the text?>assistant:The special magic number for Lima is")
    assert text.count(shown.answer) == 1
    back = loaded.tokenizer.decode(shown.ids[-shown.tokens_back :])
    assert back.startswith(f"\nThe special magic number for Lima is {shown.answer}.\n")
    with pytest.raises(InputError, match="change `prompt_tokens`"):
        demonstration(loaded, 10)


@pytest.mark.slow
def test_the_shipped_model_finds_a_pass_key_6144_tokens_back(tmp_path):
    result = RUNNER.invoke(app, ["run", "--report", str(tmp_path)])
    assert result.exit_code == 0, result.output
    assert "tokens identical to transformers: 48/48" in result.output
    assert "tokens back: found" in result.output
