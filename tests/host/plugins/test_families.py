"""Checkpoints of every supported family on disk: greedy tokens equal those of stock transformers."""

import pytest
import torch
from pairs import some_quick
from small_models import CONFIGS, prompts, random_model
from transformers import MistralConfig, Qwen2Config

from kvdrive.generation.generate import generate, greedy
from kvdrive.plugins.transformers import attach

# Random weights come close to ties: with prompt 2, phi3's row 1 once has two logits 0.0006 apart (their deviation is
# 0.9), less than the rounding of K and V to binary16; opt repeats few tokens. These prompts avoid both:
PROMPTS = {"phi3": 3, "opt": 4}


@pytest.mark.parametrize("new", some_quick([12, 64], [12]))
@pytest.mark.parametrize("name", CONFIGS)
def test_greedy_tokens_equal_transformers(target, stored_model, name, new):
    """One row, and four of different lengths, padded on the left."""
    model = stored_model(name)
    for rows in (1, 4):
        ids = prompts(rows, 40, seed=PROMPTS.get(name, 2))
        mask = torch.ones_like(ids)
        for row in range(rows):
            mask[row, : 7 * row] = 0
        stock = greedy(model, ids, new, mask)
        assert stock[:, 40:].unique().numel() > 4  # a model that repeats one token proves nothing
        before = target.stats().attention_jobs
        ours = generate(model, ids, target, max_new_tokens=new, attention_mask=mask)
        assert torch.equal(ours, stock)
        layers, kv_heads = 2, getattr(CONFIGS[name], "num_key_value_heads", CONFIGS[name].num_attention_heads)
        steps = new - 1  # the first token comes from the prefill
        assert target.stats().attention_jobs - before == rows * steps * layers * kv_heads


@pytest.mark.parametrize(
    ("config", "jobs"),
    [
        (MistralConfig, 0),  # every layer has the window
        (Qwen2Config, 23 * 2),  # the second layer has it
    ],
)
def test_sliding_window_layers_stay_in_memory_and_say_so(target, caplog, config, jobs):
    base = {name: getattr(CONFIGS["llama"], name) for name in ("vocab_size", "hidden_size", "intermediate_size")}
    sliding = config(
        **base,
        num_hidden_layers=2,
        num_attention_heads=8,
        num_key_value_heads=2,
        initializer_range=0.06,
        sliding_window=16,
        pad_token_id=0,
        bos_token_id=1,
        eos_token_id=None,
        **({} if config is MistralConfig else {"use_sliding_window": True, "max_window_layers": 1}),
    )
    model, ids = random_model(sliding), prompts(1, 40)
    stock = greedy(model, ids, 24)
    with attach(model, target):
        assert torch.equal(greedy(model, ids, 24), stock)
    assert target.stats().attention_jobs == jobs
    assert f"{2 if jobs == 0 else 1} of 2 layers attend to the last 16 tokens only: they stay in memory" in caplog.text
