"""Every way in which transformers' guide on caches uses one, with an attached model: as stock, or refused by name."""

import copy

import pytest
import torch
from small_models import CONFIGS, prompts, random_model
from transformers import DynamicCache, StaticCache

from kvdrive.errors import UnsupportedError
from kvdrive.generation.generate import greedy
from kvdrive.plugins.transformers import attach

NEW = 8


@pytest.fixture(params=["with the config", "without"])
def own_cache(request, llama):
    return lambda: DynamicCache(config=llama.config) if request.param == "with the config" else DynamicCache()


@torch.no_grad()
def loop(model, ids, cache, **more):
    """A decode loop by hand. Returns the tokens and the length of the caller's own object."""
    tokens, mask = [], torch.ones_like(ids)
    for _ in range(NEW):
        output = model(ids, attention_mask=mask, past_key_values=cache, use_cache=True, **more)
        ids = output.logits[:, -1:].argmax(-1)
        mask = torch.cat([mask, mask.new_ones(len(mask), 1)], dim=1)
        tokens.append(ids)
    return torch.cat(tokens, dim=1), cache.get_seq_length()


@pytest.mark.parametrize("rows", [1, 2])
def test_a_loop_with_the_callers_own_cache_remembers(target, llama, own_cache, rows):
    ids = prompts(rows, 20)
    stock = loop(llama, ids, own_cache())
    with attach(llama, target):
        ours = loop(llama, ids, own_cache())
    assert torch.equal(ours[0], stock[0])
    assert ours[1] == stock[1] == 20 + NEW - 1
    assert target.stats().attention_jobs == rows * (NEW - 1) * 2 * 2  # steps, layers and KV heads: nothing is repeated


def test_turns_of_a_chat_continue_with_the_callers_own_cache(target, llama, own_cache):
    with attach(llama, target):
        cache, text = own_cache(), torch.empty(1, 0, dtype=torch.int64)
        for turn in range(3):
            text = greedy(llama, torch.cat([text, prompts(1, 9, seed=turn)], dim=1), NEW, past_key_values=cache)
            assert cache.get_seq_length() == text.shape[1] - 1
    whole = torch.empty(1, 0, dtype=torch.int64)
    for turn in range(3):
        whole = greedy(llama, torch.cat([whole, prompts(1, 9, seed=turn)], dim=1), NEW)
    assert torch.equal(text, whole)


@pytest.mark.parametrize("of", ["the callers object", "the returned one", "the attachments"])
def test_a_prefix_is_copied_for_several_prompts(target, llama, own_cache, of):
    prefix, asked = prompts(1, 30), [prompts(1, 5, seed=seed) for seed in (4, 5)]
    stock = [greedy(llama, torch.cat([prefix, one], dim=1), NEW) for one in asked]
    with attach(llama, target) as attached, torch.no_grad():
        cache = attached.cache() if of == "the attachments" else own_cache()
        returned = llama(prefix, past_key_values=cache).past_key_values
        cache = returned if of == "the returned one" else cache
        written = target.stats().kv_bytes_written if hasattr(target.stats(), "kv_bytes_written") else None
        for one, wanted in zip(asked, stock, strict=True):
            mine = copy.deepcopy(cache)
            assert torch.equal(greedy(llama, torch.cat([prefix, one], dim=1), NEW, past_key_values=mine), wanted)
            assert mine.get_seq_length() == 30 + 5 + NEW - 1
        assert cache.get_seq_length() == 30
        assert written is None or target.stats().kv_bytes_written > written


def test_a_returned_cache_continues(target, llama):
    ids = prompts(1, 20)
    ask = {"max_new_tokens": NEW, "do_sample": False, "pad_token_id": 0, "return_dict_in_generate": True}
    with attach(llama, target):
        first = llama.generate(ids, attention_mask=torch.ones_like(ids), **ask)
        text = torch.cat([first.sequences, prompts(1, 3)], dim=1)
        again = llama.generate(
            text, attention_mask=torch.ones_like(text), past_key_values=first.past_key_values, **ask
        ).sequences
    assert torch.equal(again, greedy(llama, text, NEW))


def test_the_callers_own_cache_is_cropped_and_emptied(target, llama, own_cache):
    ids = prompts(1, 40)
    with attach(llama, target), torch.no_grad():
        cache = own_cache()
        llama(ids, past_key_values=cache)
        cache.crop(-7)
        assert cache.get_seq_length() == 33
        assert torch.equal(greedy(llama, ids, NEW, past_key_values=cache)[:, :40], ids)
        cache.reset()
        assert cache.get_seq_length() == 0
        ours = greedy(llama, ids[:, :9], NEW, past_key_values=cache)
    assert torch.equal(ours, greedy(llama, ids[:, :9], NEW))


def test_beams_and_lookup_take_the_callers_own_cache(target, llama, own_cache):
    ids = prompts(1, 20)
    ask = {"attention_mask": torch.ones_like(ids), "max_new_tokens": NEW, "do_sample": False, "pad_token_id": 0}
    for how in ({"num_beams": 3}, {"prompt_lookup_num_tokens": 3}):
        stock = llama.generate(ids, **ask, **how)
        with attach(llama, target):
            assert torch.equal(llama.generate(ids, past_key_values=own_cache(), **ask, **how), stock)


def test_the_drive_forgets_what_the_caller_has_dropped(target, llama, own_cache):
    with attach(llama, target) as attached, torch.no_grad():
        cache = own_cache()
        llama(prompts(1, 40), past_key_values=cache)
        del cache
        attached.cache().batch.part.open(1, 2)  # trims what is garbage
        assert len(target._drive.sessions()) == 1


@pytest.mark.parametrize("kind", ["static", "quantized"])
def test_caches_of_other_kinds_are_refused_by_name(target, llama, kind):
    ids = prompts(1, 9)
    with attach(llama, target), pytest.raises((UnsupportedError, ImportError), match=r"a StaticCache keeps|quanto"):
        llama.generate(ids, attention_mask=torch.ones_like(ids), max_new_tokens=2, cache_implementation=kind)
    with attach(llama, target), pytest.raises(UnsupportedError, match="a StaticCache keeps: pass attached"):
        llama(ids, past_key_values=StaticCache(config=llama.config, max_cache_len=20))


def test_a_cache_whose_model_was_detached_forgets_nothing_in_silence(target, llama, own_cache):
    ids = prompts(1, 9)
    with attach(llama, target), torch.no_grad():
        cache = own_cache()
        llama(ids, past_key_values=cache)
    with torch.no_grad(), pytest.raises(Exception, match="detached"):
        llama(ids[:, :1], past_key_values=cache)
    with attach(llama, target), torch.no_grad(), pytest.raises(UnsupportedError, match="belongs to another attachment"):
        llama(ids[:, :1], past_key_values=cache)


def test_k_and_v_of_the_callers_own_cache_are_no_tensors(target, llama, own_cache):
    with attach(llama, target), torch.no_grad():
        cache = own_cache()
        llama(prompts(1, 9), past_key_values=cache)
        with pytest.raises(UnsupportedError, match="are on drives"):
            list(cache)


def test_caches_that_cannot_be_copied_say_so(target, llama):
    other = random_model(CONFIGS["llama"])
    with attach(other, target, active="memory") as attached, torch.no_grad():
        cache = attached.cache()
        other(prompts(1, 9), past_key_values=cache)
        with pytest.raises(UnsupportedError, match="a cache in memory cannot be copied"):
            copy.deepcopy(cache)
