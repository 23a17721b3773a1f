"""llama.cpp in the decode benchmark: the file it reads, and what happens without it."""

import pytest
import torch
from small_models import CONFIGS, random_model

from bench.decode import llama_cpp


def test_without_llama_bench_there_is_no_row(monkeypatch, tmp_path):
    monkeypatch.setenv("PATH", "")
    assert llama_cpp.measure(random_model(CONFIGS["llama"]), 70, 1, 1, tmp_path) == []


def test_a_failing_llama_bench_is_an_error_with_its_words(tmp_path):
    with pytest.raises(RuntimeError, match="llama-bench failed: sort: invalid option"):
        llama_cpp.decode_seconds("sort", tmp_path / "model.gguf", 70, 1, 1)


@pytest.mark.parametrize(("kind", "error"), [("BF16", 0.0), ("Q8_0", 0.002)])
def test_the_file_holds_every_weight(tmp_path, kind, error):
    gguf = pytest.importorskip("gguf", reason="the Python package gguf is missing")
    model = random_model(CONFIGS["llama"])
    llama_cpp.write_gguf(model, tmp_path / "model.gguf", kind)
    reader = gguf.GGUFReader(tmp_path / "model.gguf")
    found = {tensor.name: tensor for tensor in reader.tensors}
    assert len(found) == len(model.state_dict())
    k = model.model.layers[1].self_attn.k_proj.weight.detach()
    stored = gguf.quants.dequantize(found["blk.1.attn_k.weight"].data, gguf.GGMLQuantizationType[kind])
    assert (torch.from_numpy(stored) - k.to(torch.bfloat16).float()).abs().max() <= error


def test_other_models_are_refused(tmp_path):
    pytest.importorskip("gguf", reason="the Python package gguf is missing")
    with pytest.raises(ValueError, match="this is opt"):
        llama_cpp.write_gguf(random_model(CONFIGS["opt"]), tmp_path / "model.gguf")
