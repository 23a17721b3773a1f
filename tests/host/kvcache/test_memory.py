"""Sequences in memory with the drives as their home: tokens, numbers, bounds, and what a fault costs."""

import pytest
import torch
from attached_drives import LOADING_PAYS
from pairs import some_quick
from small_models import CONFIGS, SMALL, prompts, random_model
from transformers import DynamicCache, LlamaConfig
from transformers.cache_utils import DynamicLayer

from kvdrive.errors import UnsupportedError
from kvdrive.generation.generate import greedy
from kvdrive.kvcache.budget import MemoryOptions
from kvdrive.kvcache.rows import require_one_device
from kvdrive.plugins.transformers import attach

PROMPT = prompts(1, 150)
DEEP = LlamaConfig(**SMALL | {"num_hidden_layers": 6}, num_key_value_heads=4)


class RoundedLayer(DynamicLayer):
    """transformers' own layer, with K and V rounded to binary16 as the drive stores them."""

    def update(self, key_states, value_states, *args, **kwargs):
        def rounded(states):
            return states.to(torch.float16).to(states.dtype)

        return super().update(rounded(key_states), rounded(value_states), *args, **kwargs)


def stock(layers):
    """A cache of stock transformers whose K and V are rounded."""
    cache = DynamicCache()
    cache.layers = [RoundedLayer() for _ in range(layers)]
    cache.layer_class_to_replicate = None
    return cache


@pytest.mark.parametrize("family", ["llama", "qwen2", "opt", "mixtral"])
def test_the_same_logits_as_stock_transformers_with_the_same_rounding(target, family):
    model, ids, nexts = random_model(CONFIGS[family]), prompts(3, 20), prompts(3, 40, seed=3)

    def logits(cache):
        found = [model(ids, past_key_values=cache).logits, model(nexts[:, :5], past_key_values=cache).logits]
        found += [model(nexts[:, i : i + 1], past_key_values=cache).logits for i in range(5, 40)]
        return torch.cat(found, dim=1)

    with torch.no_grad():
        expected = logits(stock(2))
        with attach(model, target, active="memory") as attached:
            assert torch.equal(logits(attached.cache()), expected)
            assert target.stats().attention_jobs == 0


@pytest.mark.parametrize("drives", some_quick([1, 3], [3]))
def test_a_loaded_conversation_continues_as_one_that_never_stopped(opened, drives):
    model = random_model(DEEP)
    with opened(model, sessions=False, active="memory") as attached:
        expected = greedy(model, PROMPT, 60, past_key_values=attached.cache())
    ids = PROMPT
    for turn in range(3):
        with opened(model, drives=drives, active="memory") as attached:
            attached.sessions.costs.rates = LOADING_PAYS
            cache = attached.sessions.cache(ids)
            assert cache.get_seq_length() == (ids.shape[1] - 1 if turn else 0)
            tokens = greedy(model, ids, 20, past_key_values=cache)
            assert torch.equal(tokens, expected[:, : tokens.shape[1]])
            per_token = 2 * 6 * 4 * 32 * 2
            assert attached.sessions.stats.loaded_bytes == (per_token * (ids.shape[1] - 1) if turn else 0)
            assert cache.batch.listener.strategy == ("load" if turn else None)
        ids = tokens


def test_a_model_on_several_devices_is_refused():
    devices = [torch.device(name) for name in ("cuda:1", "cpu", "cuda:1", "meta")]
    with pytest.raises(UnsupportedError, match="the model is on cpu, cuda:1, and K and V in memory are on one device"):
        require_one_device(devices)
    require_one_device(devices[1:2] + devices[3:])


@pytest.mark.skipif(not torch.cuda.is_available(), reason="torch finds no GPU here")
def test_on_a_gpu_a_loaded_conversation_continues_as_one_that_never_stopped(tmp_path, target):
    model, ids, more = random_model(DEEP).cuda(), prompts(1, 600).cuda(), prompts(1, 30, seed=4).cuda()
    with torch.no_grad():
        with attach(model, target, active="memory") as attached:
            caches = [attached.cache(), attached.cache()]
            for cache in caches:
                model(ids, past_key_values=cache)
            attached.save(caches[0], tmp_path / "kept")
            expected = model(more, past_key_values=caches[1]).logits
        with attach(model, target, active="memory") as attached:
            assert torch.equal(model(more, past_key_values=attached.reopen(tmp_path / "kept")).logits, expected)
            assert target.stats().attention_jobs == 0


def test_rows_beams_and_crops_work_in_memory(target, model):
    ids = prompts(2, 40)
    expected = [greedy(model, ids, 20, past_key_values=stock(2))]
    beams = {"num_beams": 3, "max_new_tokens": 12, "do_sample": False}
    expected.append(model.generate(PROMPT, past_key_values=stock(2), **beams))
    with attach(model, target, active="memory") as attached:
        cache = attached.cache()
        assert torch.equal(greedy(model, ids, 20, past_key_values=cache), expected[0])
        cache.crop(-12)
        assert cache.get_seq_length() == 47
        assert torch.equal(greedy(model, expected[0][:, :48], 12, past_key_values=cache), expected[0])
        cache.reset()
        assert torch.equal(model.generate(PROMPT, past_key_values=cache, **beams), expected[1])


def test_what_does_not_fit_is_attended_to_in_the_drive(target, model):
    size = 2 * 2 * 2 * 32 * 4 * 256  # layers, K and V, heads, d, float32, tokens
    with attach(model, target, active="memory", memory=MemoryOptions(size), context=999) as attached, torch.no_grad():
        first = attached.cache(200)
        greedy(model, PROMPT, 10, past_key_values=first)
        assert target.stats().attention_jobs == 0
        greedy(model, PROMPT, 3, past_key_values=attached.cache(200))
        assert target.stats().attention_jobs > 0
        first.reset()
        jobs = target.stats().attention_jobs
        cache = attached.cache(200)
        greedy(model, PROMPT, 3, past_key_values=cache)
        assert target.stats().attention_jobs == jobs
        with pytest.raises(UnsupportedError, match="raise `memory`"):
            model(prompts(1, 120), past_key_values=cache)
