"""The benchmark of rounded matrices on a tiny model: who is measured, and what the tables say."""

import numpy as np
import pytest
import torch
from small_models import CONFIGS, random_model

import bench_matrices
from bench_matrices import IN_MEMORY, ON_DRIVE, Cost, DynamicLinear, Row
from kvdrive.generation import checkpoints
from kvdrive.generation.checkpoints import Checkpoint
from kvdrive.generation.matrices import CodedLinear


@pytest.fixture
def model():
    return random_model(CONFIGS["llama"]).bfloat16()


def test_all_contenders_decode(model, tmp_path, monkeypatch):
    monkeypatch.delitem(IN_MEMORY, "bfloat16, torch.compile")  # takes a minute
    monkeypatch.setenv("PATH", "")  # without llama.cpp
    shape = Checkpoint("tiny", tmp_path, model, None).shape
    rows = bench_matrices.measure(model, shape, 70, 2, tmp_path, 1)
    assert [row.name for row in rows] == [*IN_MEMORY, *ON_DRIVE]
    assert all(len(row.seconds) == 2 and row.ratio > 0 for row in rows)
    assert rows[0].ratio == 1


def test_contenders_share_weights_and_differ_in_their_layers(model):
    kinds = []
    for change in (bench_matrices.unchanged, bench_matrices.round_matrices, bench_matrices.dynamic):
        own = bench_matrices._changed(model, change)
        assert own.model.embed_tokens.weight is model.model.embed_tokens.weight
        kinds.append(type(own.model.layers[0].mlp.up_proj))
    assert kinds == [torch.nn.Linear, CodedLinear, DynamicLinear]


def test_the_cost_is_that_of_decode_steps(model, monkeypatch):
    text = np.random.default_rng(1).integers(2, 250, 200)
    monkeypatch.setattr(bench_matrices, "documents", lambda checkpoint, paths: [text])
    monkeypatch.setattr(checkpoints, "load", lambda name, dtype: Checkpoint(name, None, model, None))
    weights, inputs = bench_matrices.costs_of("tiny", context=80, tokens=10, count=2)
    assert (weights.tokens, inputs.tokens) == (20, 20)
    assert 0 < weights.kl < inputs.kl
    assert weights.before == inputs.before


def test_models_that_are_not_there_are_left_out():
    assert bench_matrices.costs_of("no-such-model", 80, 10, 2) == []


def test_the_tables_show_every_row():
    rows = [Row("bfloat16", 256, [0.030, 0.040, 0.035], 1.0), Row("int8", 4096, [0.02], 1.75)]
    table = bench_matrices.speed_table(rows, 2)
    assert "| bfloat16 | 35.0 ms (1.00x) | - |" in table
    assert "| int8 | - | 20.0 ms (1.75x) |" in table
    costs = bench_matrices.cost_table([Cost("tiny", "int8", 20, 5.0, 5.01, 0.004, 0.95)])
    assert "| tiny | int8 | 20 | 5.000 | 5.010 | 0.00400 | 95.0% |" in costs
