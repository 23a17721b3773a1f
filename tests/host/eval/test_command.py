"""`kvdrive eval` as a user runs it, on a tiny byte_checkpoint with a byte-level tokenizer."""

import json
import re

import pytest
from pairs import some_quick
from typer.testing import CliRunner

from kvdrive.cli.main import app
from kvdrive.errors import InputError

pytest.importorskip("matplotlib", reason="the picture needs matplotlib")


def run(byte_checkpoint, tmp_path, *more):
    text, out = str(byte_checkpoint / "text.txt"), str(tmp_path / "out")
    options = ["--model", str(byte_checkpoint), "--text", text, "--report", out, "--threads", "1", "--windows", "2"]
    return CliRunner().invoke(app, ["eval", *options, "--targets", "4", "--cases", "1", *more])


@pytest.mark.parametrize(
    ("ratios", "contexts"), some_quick([("1,1/2", "400"), ("1,1/2,1/8", "400,600")], [("1,1/2", "400")])
)
def test_all_policies_at_some_ratios_and_lengths(byte_checkpoint, tmp_path, ratios, contexts):
    asked = ("--policies", "all", "--ratios", ratios, "--contexts", contexts)
    done = run(byte_checkpoint, tmp_path, *asked, "--json")
    assert done.exit_code == 0, done.output
    found = json.loads((tmp_path / "out" / "eval.json").read_text())
    assert json.loads(done.stdout) == found
    lengths = {int(one) for one in contexts.split(",")}
    assert len(found["points"]) == len(lengths) * (1 + 5 * ratios.count("/"))
    assert {point["context"] for point in found["points"]} == lengths
    assert all(set(point["accuracy"]) == {"passkey", "lines", "documents"} for point in found["points"])
    assert (tmp_path / "out" / "eval.png").read_bytes()[:4] == b"\x89PNG"


def test_the_table_names_what_was_asked(byte_checkpoint, tmp_path):
    done = run(byte_checkpoint, tmp_path, "--contexts", "150", "--tasks", "passkey", "--windows", "0")
    assert done.exit_code == 0, done.output
    assert "exact" in done.stdout
    (point,) = json.loads((tmp_path / "out" / "eval.json").read_text())["points"]
    assert point["perplexity"] is None
    assert list(point["accuracy"]) == ["passkey"]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--policies", "dense"], "is one of exact"),
        (["--policies", "sparf", "--ratios", "2"], r"outside \(0, 1\]"),
        (["--contexts", "12,x"], "write it as 512,8192"),
        (["--contexts", "4096"], "exceed the 1024 positions"),
        (["--contexts", "200", "--windows", "99", "--cases", "0"], "name longer text"),
        (["--contexts", "200", "--windows", "0", "--cases", "0"], "nothing to ask"),
        (["--tasks", "riddle", "--contexts", "200"], "choose among passkey, lines, documents"),
        (["--tasks", "lines", "--contexts", "200"], "take a longer context"),
    ],
)
def test_bad_options_are_one_sentence(byte_checkpoint, tmp_path, options, message):
    done = run(byte_checkpoint, tmp_path, *options)
    assert isinstance(done.exception, InputError)
    assert re.search(message, str(done.exception))
    assert not (tmp_path / "out").exists()
