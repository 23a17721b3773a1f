"""The decode benchmark compares like with like: all contenders see the same weights, K and V."""

import pytest
import torch
from small_models import CONFIGS, random_model

from bench.decode import steps
from bench.decode.contenders import contenders, packed_attention, sibling
from bench.decode.prefill import measure_prefill
from bench.setup import Setup
from kvdrive.generation.checkpoints import Shape

SHAPE = Shape(layers=2, drive_layers=2, query_heads=8, kv_heads=2, head_dim=32)


@pytest.fixture(scope="module")
def model():
    return random_model(CONFIGS["llama"])


@pytest.fixture(scope="module")
def measured(model, tmp_path_factory):
    return steps.measure(model, SHAPE, 70, 1, 1, tmp_path_factory.mktemp("drives"))


def test_contenders_compute_the_same_step(measured):
    rounds, apart = measured
    stock, packed, exact, sparse, plain = rounds.names
    assert apart[stock] == 0
    assert apart[packed] < 1e-4
    assert 0 < apart[exact] < 0.05
    assert apart[sparse] > apart[exact]
    assert apart[plain] == apart[exact]
    read = 70 * SHAPE.bytes_per_token  # pending tokens come with the query
    assert rounds.values(exact, "read_inside") == rounds.values(plain, "read_inside") == [read]
    assert rounds.median(exact, "device_ms") > 0
    assert "device_ms" not in rounds.rounds[0][plain]
    assert set(rounds.rounds[0][stock]) == {"seconds"}


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


def test_the_table_has_a_ratio_to_stock_in_each_cell(model, measured, tmp_path):
    rounds, apart = measured
    prefill = measure_prefill(Setup(quick=True, threads=1), "tiny", model, tmp_path)
    assert len(prefill.stock) == len(prefill.drive) == 1
    stock = rounds.median(rounds.names[0])
    table = steps.table([steps.Steps("tiny", 70, rounds, apart, [stock / 4])], [prefill], 1e9)
    assert table.head == ["model, context", *rounds.names, "llama.cpp"]
    name, own, *others = table.rows[0]
    assert name == "tiny, 70"
    assert "(" not in own  # stock itself needs no ratio
    assert all(cell.endswith("x)") for cell in others)
    assert others[-1].endswith("(4x)")
    assert "how many times as fast as stock transformers" in table.legend
    assert "tiny, 64 tokens" in table.note
