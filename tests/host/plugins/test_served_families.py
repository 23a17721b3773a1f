"""Families are served if a drive can compute their attention. Tokens equal transformers, or the refusal says why."""

import pytest
import torch
from family_models import REFUSED, SERVED
from pairs import some_quick
from small_models import prompts, random_model

from kvdrive.errors import UnsupportedError
from kvdrive.generation.generate import greedy
from kvdrive.plugins.probe import probe
from kvdrive.plugins.transformers import attach

PROMPT, NEW = 40, 12
SEEDS = {"hunyuan": 3}  # as in test_families: with prompt 2, two of its logits are closer than a rounding to binary16


QUICK = (  # of each kind of layer one
    *("apertus", "cohere2", "gemma3", "gpt-neox", "gpt-oss", "granite4", "jamba", "lfm2", "llama4", "olmo2", "phi"),
    *("gemma4", "qwen3-moe", "qwen3-next", "qwen3.5", "smollm3"),
)


@pytest.mark.parametrize("name", some_quick(SERVED, QUICK))
def test_greedy_tokens_equal_transformers(target, name):
    """Two rows of different lengths; the prompt is longer than the sliding windows."""
    config, on_drive = SERVED[name]
    model, ids = random_model(config), prompts(2, PROMPT, SEEDS.get(name, 2))
    mask = torch.ones_like(ids)
    mask[1, :9] = 0
    stock = greedy(model, ids, NEW, mask)
    assert stock[:, PROMPT:].unique().numel() > 4  # a model that repeats one token proves nothing
    with attach(model, target):
        assert torch.equal(greedy(model, ids, NEW, mask), stock)
    layers = probe(model).layers.values()
    assert len(layers) == on_drive
    assert target.stats().attention_jobs == 2 * (NEW - 1) * sum(layer.kv_heads for layer in layers)


@pytest.mark.parametrize("name", REFUSED)
def test_a_refusal_names_the_model_and_the_remedy(target, name):
    config, reason = REFUSED[name]
    model = random_model(config)
    with pytest.raises(UnsupportedError, match=f"{type(model).__name__} cannot be attached.*{reason}") as caught:
        attach(model, target)
    assert "transformers alone" in str(caught.value)
    assert model.config._attn_implementation != "kvdrive"


@pytest.mark.parametrize("name", ["gpt-oss", "granite4", "qwen3-next", "cohere2"])
def test_a_second_turn_continues_where_the_first_ended(target, name):
    """Layers in memory keep their state, and the drive's layers theirs."""
    model = random_model(SERVED[name][0])
    first, second = prompts(1, 20), prompts(1, 7, seed=3)
    with torch.no_grad():
        stock = model(torch.cat([first, second], dim=1)).logits[:, -7:]
        with attach(model, target) as attached:
            cache = attached.cache()
            model(first, past_key_values=cache, use_cache=True)
            ours = torch.cat([model(second[:, i : i + 1], past_key_values=cache).logits for i in range(7)], dim=1)
    assert (ours - stock).abs().max() < 0.01 * stock.std()


def test_a_recurrent_state_cannot_be_cropped(target):
    model = random_model(SERVED["granite4"][0])
    with torch.no_grad(), attach(model, target) as attached:
        cache = attached.cache()
        model(prompts(1, 20), past_key_values=cache, use_cache=True)
        with pytest.raises(UnsupportedError, match="no token can be removed"):
            cache.crop(-1)
        assert cache.get_seq_length() == 20
        cache.reset()
        logits = model(prompts(1, 20), past_key_values=cache, use_cache=True).logits
        assert torch.equal(logits, model(prompts(1, 20), past_key_values=attached.cache()).logits)


@pytest.mark.parametrize("name", ["gpt-oss", "granite4"])
def test_beams_equal_transformers(target, name):
    model, ids = random_model(SERVED[name][0]), prompts(1, 20)
    options = {"attention_mask": torch.ones_like(ids), "max_new_tokens": 10, "num_beams": 3, "do_sample": False}
    stock = model.generate(ids, **options)
    with attach(model, target):
        assert torch.equal(model.generate(ids, **options), stock)
