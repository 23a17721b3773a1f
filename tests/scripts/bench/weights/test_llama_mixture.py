"""llama.cpp in the benchmark of experts: its file holds the same model, and its mapped pages stay within the bound."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from transformers import AutoModelForCausalLM

from bench.weights import experts, llama_mixture
from bench.weights.mapped_files import on_disk
from bench.weights.mixture import QUICK, VOCABULARY, Shape, make_checkpoint

gguf = pytest.importorskip("gguf", reason="gguf is not installed: pip install 'kvdrive[gguf]'")


@pytest.fixture
def needs_llama() -> None:
    if lacks := llama_mixture.missing():
        pytest.skip(f"llama.cpp is missing: {lacks}")


def tokens(count: int) -> torch.Tensor:
    return torch.randint(0, VOCABULARY, (1, count), generator=torch.Generator().manual_seed(7))


def test_the_file_has_the_experts_of_the_checkpoint(tmp_path):
    make_checkpoint(QUICK, tmp_path)
    path = tmp_path / "x.gguf"
    llama_mixture.write_gguf(QUICK, tmp_path, path, "BF16")
    regions = llama_mixture.expert_regions(path)
    assert len(regions) == QUICK.layers * QUICK.experts
    model = AutoModelForCausalLM.from_pretrained(tmp_path, dtype="auto")
    stored = np.fromfile(path, np.uint8)
    for (layer, expert), region in regions.items():
        of_layer = model.model.layers[layer].mlp.experts
        gate, up = of_layer.gate_up_proj[expert].split(QUICK.inner)
        wanted = (gate, of_layer.down_proj[expert], up)
        for (begin, end), matrix in zip(region.ranges, wanted, strict=True):
            found = torch.from_numpy(stored[begin:end].copy()).view(torch.bfloat16)
            assert torch.equal(found, matrix.flatten())


def test_without_llama_the_sentence_says_what_is_missing(monkeypatch, tmp_path):
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setattr(llama_mixture, "_READY_BUILT", tmp_path / "nowhere")
    assert "LLAMA=FOLDER names the folder of libllama.so" in llama_mixture.missing()
    (tmp_path / "libllama.so").touch()
    assert "llama.h" in llama_mixture.missing()


def test_the_logits_are_those_of_transformers(needs_llama, tmp_path):
    make_checkpoint(QUICK, tmp_path)
    llama_mixture.write_gguf(QUICK, tmp_path, tmp_path / "x.gguf", "F32")
    llama = llama_mixture.LlamaMixture(tmp_path / "x.gguf", QUICK, threads=1, context=24, bound=None)
    model = AutoModelForCausalLM.from_pretrained(tmp_path, dtype=torch.float32).eval()
    with torch.no_grad():
        wanted = model(tokens(24)).logits[0].numpy()
    found = np.stack([llama.decode(token) for token in tokens(24)[0].tolist()])
    np.testing.assert_allclose(found, wanted, rtol=0, atol=1e-2 * wanted.std())  # its K and V are binary16


@pytest.mark.slow
def test_the_page_cache_stays_within_the_bound(needs_llama, tmp_path):
    if not on_disk(tmp_path):
        pytest.skip("pages of a file system in memory cannot leave it")
    shape = Shape(layers=2, hidden=256, inner=1024, experts=32, used=2)  # 96 MiB of experts
    make_checkpoint(shape, tmp_path)
    path = tmp_path / "x.gguf"
    llama_mixture.write_gguf(shape, tmp_path, path, "BF16")
    bound = 32 << 20
    bounded = llama_mixture.LlamaMixture(path, shape, threads=1, context=24, bound=bound)
    found = [bounded.decode(token) for token in tokens(24)[0].tolist()]
    counters = bounded.counters()
    assert counters["hits"] + counters["misses"] == 24 * shape.layers * shape.used
    assert counters["misses"] > 0
    assert 0 < counters["=page_cache"] <= bound
    whole = llama_mixture.LlamaMixture(path, shape, threads=1, context=24, bound=None)
    assert np.array_equal(found, [whole.decode(token) for token in tokens(24)[0].tolist()])


def test_a_row_of_llama_is_measured_beside_that_of_memory(needs_llama, tmp_path):
    make_checkpoint(QUICK, tmp_path)
    (tmp_path / "shape.json").write_text('{"layers": 2, "hidden": 128, "inner": 256, "experts": 16, "used": 2}')
    llama_mixture.write_gguf(QUICK, tmp_path, tmp_path / "BF16.gguf", "BF16")
    memory = experts.Work("memory", str(tmp_path), tokens=6, threads=1)
    llama = experts.Work("llama", str(tmp_path), tokens=6, threads=1)
    rows = [experts.measure(work) for work in (memory, llama)]
    same, difference = experts.agreement(tmp_path, llama, memory)
    assert same >= 0.5  # the likeliest of 512 tokens; both round, in different places
    assert difference < 0.5
    assert experts.split(rows[1]) == [None] * 4
    rows[1] |= {"same_token": same, "largest_difference": difference}
    assert f"balanced, BF16: {same:.0%}, {difference:.2f}." in experts.llama_note(rows)
