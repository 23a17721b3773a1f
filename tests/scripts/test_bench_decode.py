"""The decode benchmark compares like with like: all contenders see the same weights, K and V."""

import json

import pytest
import torch
from small_models import CONFIGS, random_model

import bench_decode
import readme
from decode_contenders import contenders, packed_attention, sibling
from kvdrive.generation.checkpoints import Shape

SHAPE = Shape(layers=2, drive_layers=2, query_heads=8, kv_heads=2, head_dim=32)


@pytest.fixture(scope="module")
def model():
    return random_model(CONFIGS["llama"])


def test_contenders_compute_the_same_step(model, tmp_path):
    rows = bench_decode.measure("tiny", model, SHAPE, 70, 1, 1, tmp_path, lambda: None)
    stock, packed, exact, sparse, plain = rows
    assert stock.logits_difference == 0
    assert packed.logits_difference < 1e-4
    assert 0 < exact.logits_difference < 0.05
    assert sparse.logits_difference > exact.logits_difference
    assert exact.read_inside_bytes == 70 * SHAPE.bytes_per_token
    assert exact.modelled_device_ms > 0
    assert plain.logits_difference == exact.logits_difference
    assert plain.read_inside_bytes == exact.read_inside_bytes
    assert plain.modelled_device_ms is None
    assert stock.ratio == 1
    assert stock.read_inside_bytes is None


def test_siblings_share_weights_and_nothing_else(model):
    own = sibling(model)
    assert all(a is b for a, b in zip(model.parameters(), own.parameters(), strict=True))
    own.set_attn_implementation("eager")
    assert model.config._attn_implementation == "sdpa"


def test_every_cache_grows_by_the_token_of_a_step(model, tmp_path):
    with contenders(model, SHAPE, 40, 2, 1, tmp_path) as running:
        for contender in running:
            contender.step(torch.tensor([[3]]))
            assert contender.cache.get_seq_length() == 41, contender.name


def test_packed_attention_is_for_decode_steps():
    q, k = torch.randn(1, 8, 2, 32), torch.randn(1, 2, 9, 32)
    with pytest.raises(ValueError, match="single tokens"):
        packed_attention(None, q, k, k, None)


def test_the_table_of_the_readme(model, tmp_path):
    rows = bench_decode.measure("tiny", model, SHAPE, 70, 1, 1, tmp_path / "a", lambda: None)
    prefill = bench_decode.measure_prefill("tiny", model, 20, 1, 1, tmp_path / "b", lambda: None)
    machine = {"processor": "P", "threads": 1, "bytes_per_second": 1e9, "torch": "T"}
    decode = [vars(row) | {"median_seconds": row.median} for row in rows]
    report = {"machine": machine, "decode": decode, "prefill": [vars(prefill) | {"overhead": prefill.overhead}]}
    legend, _, head, _, line, _, note = readme.decode(json.loads(json.dumps(report))).splitlines()
    assert head.count("|") == line.count("|") == 7
    assert line.startswith("| tiny, 70 | ")
    assert "in brackets: how many times the time of stock transformers" in legend
    cells = [cell.strip() for cell in line.strip("|").split("|")[1:]]
    assert ["(" in cell for cell in cells] == [False] + [True] * 4  # stock itself needs no ratio
    assert all(cell.endswith("x)") for cell in cells[1:])
    assert "tiny, 20 tokens" in note
