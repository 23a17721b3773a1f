"""The benchmark of rounded matrices on a tiny model: who is measured, and what the tables say."""

import numpy as np
import pytest
import torch
from small_models import CONFIGS, random_model

from bench.decode import matrices
from bench.decode.matrices import COMPILED, IN_MEMORY, ON_DRIVE, Cost, DynamicLinear
from bench.rounds import Rounds
from kvdrive.generation import checkpoints
from kvdrive.generation.checkpoints import Checkpoint
from kvdrive.generation.matrices import CodedLinear


@pytest.fixture
def model():
    return random_model(CONFIGS["llama"]).bfloat16()


def test_all_contenders_decode(model, tmp_path):
    shape = Checkpoint("tiny", tmp_path, model, None).shape
    found = matrices.measure(model, shape, 70, 2, tmp_path, 1, without=COMPILED)  # takes a minute
    assert found.names == [name for name in (*IN_MEMORY, *ON_DRIVE) if name != COMPILED]
    assert len(found.rounds) == 2


def test_contenders_share_weights_and_differ_in_their_layers(model):
    kinds = []
    for change in (matrices.unchanged, matrices.round_matrices, matrices.dynamic):
        own = matrices._changed(model, change)
        assert own.model.embed_tokens.weight is model.model.embed_tokens.weight
        kinds.append(type(own.model.layers[0].mlp.up_proj))
    assert kinds == [torch.nn.Linear, CodedLinear, DynamicLinear]


def test_the_cost_is_that_of_decode_steps(model, monkeypatch):
    text = np.random.default_rng(1).integers(2, 250, 200)
    monkeypatch.setattr(matrices, "documents", lambda checkpoint, paths: [text])
    monkeypatch.setattr(checkpoints, "load", lambda name, dtype: Checkpoint(name, None, model, None))
    weights, inputs = matrices.costs_of("tiny", context=80, tokens=10, count=2)
    assert (weights.tokens, inputs.tokens) == (20, 20)
    assert 0 < weights.kl < inputs.kl
    assert weights.before == inputs.before


def test_models_that_are_not_there_are_left_out():
    assert matrices.costs_of("no-such-model", 80, 10, 2) == []


def test_the_tables_show_every_row():
    found = {256: Rounds([{"bfloat16": {"seconds": 0.035}, "int8": {"seconds": 0.02}}])}
    table = matrices.speed_table(found, {("llama.cpp, Q8_0", 256): [0.0175]}, "A model").text()
    assert "| bfloat16 | 35.0 ms (1.00x) |" in table
    assert "| int8 | 20.0 ms (1.75x) |" in table
    assert "| llama.cpp, Q8_0 | 17.5 ms (2.00x) |" in table
    costs = matrices.cost_table([Cost("tiny", "int8", 20, 5.0, 5.01, 0.004, 0.95)]).text()
    assert "| tiny | int8 | 20 | 5.000 | 5.010 | 0.00400 | 95.0% |" in costs
