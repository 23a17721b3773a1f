"""One generation on every kind of target gives the same tokens: those of stock transformers."""

import subprocess
import sys
from contextlib import contextmanager

import pytest
import torch
from small_models import prompts

import kvdrive
from kvdrive.generation.generate import greedy

TOKENS = 24
PROMPT = prompts(1, 70)


@contextmanager
def served(folder, *where):
    """A process that serves a new drive, and what it says about the place."""
    kvdrive_drive = [sys.executable, "-m", "kvdrive", "drive"]
    subprocess.run([*kvdrive_drive, "create", folder / "served.kv"], check=True, capture_output=True)
    command = [*kvdrive_drive, "serve", folder / "served.kv", *where]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        try:
            yield process.stdout.readline()
        finally:
            process.terminate()


@contextmanager
def place(kind, folder):
    """The name of a target as `attach` and `--target` take it."""
    if kind == "rings":
        with served(folder, "--socket", folder / "drive.sock"):
            yield str(folder / "drive.sock")
    elif kind == "tcp":
        with served(folder, "--nvme-tcp", "127.0.0.1:0") as said:
            yield "tcp://127.0.0.1:" + said.split("nvme-tcp 127.0.0.1:")[1].split(",")[0]
    else:
        yield kind


@pytest.mark.parametrize("kind", ["emulator", "cpu", "rings", "tcp"])
def test_every_target_gives_the_tokens_of_transformers(llama, tmp_path, kind):
    expected = greedy(llama, PROMPT, TOKENS)
    with place(kind, tmp_path) as target, kvdrive.attach(llama, target):
        assert torch.equal(greedy(llama, PROMPT, TOKENS), expected)
