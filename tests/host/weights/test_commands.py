"""`kvdrive convert`, and `kvdrive generate --weights flash`."""

import json
import shutil
import sys
from concurrent.futures import ThreadPoolExecutor
from fractions import Fraction
from pathlib import Path

import forked
import moe_models
import pytest
from server_process import Server
from typer.testing import CliRunner

from kvdrive.cli.main import app
from kvdrive.config.sizes import share_or_bytes
from kvdrive.errors import InputError


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return moe_models.save("mixtral", tmp_path_factory.mktemp("mixtral"))


@pytest.fixture(autouse=True)
def cache(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))


def run(*arguments):
    return CliRunner().invoke(app, [str(one) for one in arguments])


GENERATE = ("--prompt", "def main():", "--max-new-tokens", "12", "--ignore-stop", "--threads", "1")


def test_a_converted_checkpoint_generates_the_tokens_of_transformers(folder, tmp_path):
    done = run("convert", "--model", folder, "--json")
    assert done.exit_code == 0, done.output
    made = json.loads(done.stdout)
    assert (made["experts"], made["resumed"]) == (24, 0)
    assert str(tmp_path / "cache") in made["path"]
    for path in folder.glob("*.kvw"):
        raise AssertionError(f"{path} is in the checkpoint")
    memory = ("--weights", "flash", "--weights-memory", "60%")
    result = run("generate", "--model", folder, *GENERATE, *memory, "--check", "--json")
    assert result.exit_code == 0, result.output
    report = json.loads(result.stdout)
    weights = report["weights"]
    assert report["check"]["identical"] == report["check"]["total"] == 12
    assert weights["experts_in_memory"] < weights["experts"] == 24
    assert weights["hits"] + weights["hits_ahead"] + weights["misses"] >= 12 * 3 * 2
    assert weights["flash_bytes"] > 0
    assert 0 < weights["recall"] <= 1
    assert report["options"]["weights_memory"] == "3/5"


@pytest.fixture(scope="module")
def converted(folder, tmp_path_factory):
    """A folder for caches that holds the experts in 8 bits."""
    there = tmp_path_factory.mktemp("converted")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("XDG_CACHE_HOME", str(there))
        assert run("convert", "--model", folder, "--weights-format", "int8").exit_code == 0
    return there


@pytest.fixture
def flash(converted, tmp_path):
    shutil.copytree(converted, tmp_path / "cache")
    return "--weights", "flash", "--weights-memory", "60%"


def test_check_compares_with_the_same_numbers_in_memory(folder, flash):
    result = run("generate", "--model", folder, *GENERATE, *flash, "--check", "--json")
    assert result.exit_code == 0, result.output
    assert json.loads(result.stdout)["check"]["identical"] == 12


def test_eval_chat_and_batch_read_weights_from_flash(folder, flash, tmp_path):
    text = tmp_path / "text.txt"
    text.write_text("All work and no play makes Jack a dull boy.\n" * 10)
    rated = ("eval", "--model", folder, "--text", text, "--contexts", "20", "--windows", "1", "--targets", "8")
    rows = []
    for options in (flash, ()):
        result = run(*rated, *options, "--cases", "0", "--report", tmp_path / "out", "--json", "--threads", "1")
        assert result.exit_code == 0, result.output
        rows.append(json.loads(result.stdout)["points"][0]["perplexity"])
    assert rows[0] != rows[1]
    assert rows[0] == pytest.approx(rows[1], rel=0.1)

    chat = ("chat", "--model", folder, "--drive", tmp_path / "chat", "--max-new-tokens", "4", "--threads", "1", *flash)
    result = CliRunner().invoke(app, [str(one) for one in chat], input="Who?\n")
    assert result.exit_code == 0, result.output
    assert "on the drive" in result.stderr

    asked = tmp_path / "asked.jsonl"
    asked.write_text("".join(json.dumps({"id": str(i), "prompt": f"def f{i}("}) + "\n" for i in range(2)))
    out = tmp_path / "answers.jsonl"
    result = run("batch", asked, "--model", folder, "--out", out, "--max-new-tokens", "6", "--threads", "1", *flash)
    assert result.exit_code == 0, result.output
    one = run("generate", "--model", folder, "--prompt", "def f1(", "--max-new-tokens", "6", *flash, "--json")
    assert json.loads(out.read_text().splitlines()[1])["text"] == json.loads(one.stdout)["text"][0]


def test_a_server_shares_weights_on_flash_between_sequences(folder, flash, tmp_path):
    """Three requests at once; SIGTERM lets the server keep what its cache has learned."""
    prompts = ("def main():", "All work", "and no play makes")
    expected = []
    for prompt in prompts:
        asked = ("--prompt", prompt, "--max-new-tokens", "8", "--ignore-stop", "--threads", "1")
        expected.append(json.loads(run("generate", "--model", folder, *asked, *flash, "--json").stdout)["text"][0])
    cache = tmp_path / "cache"
    server = Server(folder, cache, *flash, "--weights-cache", "prior")
    with ThreadPoolExecutor(3) as threads:
        answers = list(threads.map(lambda prompt: server.complete(prompt=prompt, max_tokens=8), prompts))
    assert [answer.json()["choices"][0]["text"] for answer in answers] == expected
    server.process.terminate()
    server.process.wait(30)
    assert list(cache.rglob("*.counts.json"))


@pytest.mark.slow
def test_chat_batch_and_serve_read_weights_from_a_drive_that_holds_k_and_v(folder, flash, tmp_path):
    """The same tokens as from a file."""
    drive = ("--drive", tmp_path / "drives")
    assert run("convert", "--model", folder, "--weights-format", "int8", *drive).exit_code == 0
    placed = ("--weights", "drive", "--weights-memory", "60%", *drive)
    chat = ("chat", "--model", folder, "--max-new-tokens", "4", "--threads", "1")
    said = [
        CliRunner().invoke(app, [str(one) for one in (*chat, *options)], input="Who?\n")
        for options in (placed, (*flash, "--drive", tmp_path / "chat"))
    ]
    assert said[0].exit_code == 0, said[0].output
    assert said[0].stdout == said[1].stdout

    asked = tmp_path / "asked.jsonl"
    asked.write_text(json.dumps({"id": "0", "prompt": "def f("}) + "\n")
    texts = []
    for name, options in (("drive", placed), ("flash", flash)):
        out = tmp_path / f"{name}.jsonl"
        result = run(
            "batch", asked, "--model", folder, "--out", out, "--max-new-tokens", "6", "--threads", "1", *options
        )
        assert result.exit_code == 0, result.output
        texts.append(json.loads(out.read_text())["text"])
    assert texts[0] == texts[1]

    server = Server(folder, tmp_path / "cache", *map(str, placed))
    answer = server.complete(prompt="def f(", max_tokens=6).json()
    assert answer["choices"][0]["text"] == texts[0]
    server.process.terminate()
    server.process.wait(30)
    fsck = run("drive", "fsck", tmp_path / "drives" / "drive.kv")
    assert fsck.exit_code == 0, fsck.output


def test_commands_without_weights_on_a_drive_say_so(folder, tmp_path):
    result = run("sparsify", "--model", folder, "--weights", "drive")
    assert isinstance(result.exception, InputError)
    assert "take --weights flash" in str(result.exception)


def test_the_table_says_how_much_was_in_memory(folder, tmp_path):
    file = tmp_path / "w.kvw"
    assert run("convert", "--model", folder, "--weights-file", file).exit_code == 0
    options = ["--weights", "flash", "--weights-file", file, "--verbose"]
    result = run("generate", "--model", folder, *GENERATE, *options)
    assert result.exit_code == 0, result.output
    assert "experts in memory at most" in result.stderr
    assert "bytes of weights read" in result.stderr


def test_the_weights_of_the_checkpoint_may_be_deleted(folder, tmp_path):
    copy = shutil.copytree(folder, tmp_path / "copy[1]")
    made = [Path(json.loads(run("convert", "--model", copy, "--json").stdout)["path"])]
    for path in copy.glob("*.safetensors"):
        path.unlink()
    flash = ("generate", "--model", copy, *GENERATE, "--weights", "flash", "--json")
    result = run(*flash)
    assert result.exit_code == 0, result.output
    made.append(shutil.copy(made[0], made[0].with_name(f"{copy.name}-0123456789ab.kvw")))
    result = run(*flash)
    assert result.exit_code != 0
    for path in made:
        assert path.name in str(result.exception)
        path.unlink()
    assert "`kvdrive convert --model" in str(run(*flash).exception)


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        (("--weights", "flash"), "`kvdrive convert --model"),
        (("--weights", "flash", "--weights-memory", "150%"), "'150%' is no share"),
        (("--weights", "flash", "--device", "cuda"), "computed on the cpu"),
    ],
)
def test_what_cannot_be_done_is_a_sentence(options, sentence, folder):
    result = run("generate", "--model", folder, *GENERATE, *options)
    assert result.exit_code != 0
    assert sentence in str(result.exception)


def test_shares_and_sizes():
    assert share_or_bytes("50%") == Fraction(1, 2)
    assert share_or_bytes("12.5 %") == Fraction(1, 8)
    assert share_or_bytes("8G") == 8 << 30
    for text in ("0%", "101%", "half"):
        with pytest.raises(InputError):
            share_or_bytes(text)


_PEAK = """
import resource, sys
from fractions import Fraction
from pathlib import Path
import torch
from kvdrive.weights.opening import load
from kvdrive.weights.options import FlashOptions
torch.set_num_threads(1)
load(sys.argv[1], "auto", FlashOptions(Path(sys.argv[2]), 24 << 20)).weights.close()  # what importing costs
before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
data = int(Path("/proc/self/statm").read_text().split()[5]) * 4096
resource.setrlimit(resource.RLIMIT_DATA, (data + (96 << 20), resource.RLIM_INFINITY))
checkpoint = load(sys.argv[3], "auto", FlashOptions(Path(sys.argv[4]), 24 << 20))
with torch.no_grad():
    checkpoint.model(torch.arange(200)[None])
report = checkpoint.weights.report()
checkpoint.weights.close()
print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before, report["bytes"] >> 10)
"""


def test_experts_never_are_in_memory_together(folder, tmp_path):
    """156 MiB of weights in a process that may allocate 96 MiB more, and takes less than 64."""
    small, large = tmp_path / "small.kvw", tmp_path / "large.kvw"
    big = moe_models.save("big", tmp_path / "big")
    for model, file in ((folder, small), (big, large)):
        assert run("convert", "--model", model, "--weights-file", file).exit_code == 0
    command = [sys.executable, "-c", _PEAK, folder, small, big, large]
    done = forked.run(command, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr
    peak_kib, whole_kib = map(int, done.stdout.split())
    assert whole_kib > 150 << 10
    assert peak_kib < 64 << 10
