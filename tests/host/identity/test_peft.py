"""Adapters of PEFT itself: what is stored belongs to the adapters that were active when it was computed."""

import pytest
import torch
from mutations import TINY, built
from small_models import prompts
from transformers import LlamaConfig

from kvdrive.generation.generate import greedy
from kvdrive.identity.model import of_model
from kvdrive.plugins.transformers import attach

peft = pytest.importorskip("peft", reason="PEFT is not installed: make setup")
LLAMA = LlamaConfig(**TINY, num_key_value_heads=2)
IDS = prompts(1, 70)


def lora(**more):
    return peft.LoraConfig(r=4, target_modules=["q_proj", "v_proj"], init_lora_weights=False, **more)


def adapted():
    """A model of PEFT with adapters "one", which is active, and "two"."""
    torch.manual_seed(7)
    model = peft.get_peft_model(built(LLAMA, seed=1), lora(lora_alpha=16), adapter_name="one")
    model.add_adapter("two", lora(lora_alpha=32))
    return model.eval()


def keep(model, attached):
    with torch.no_grad():
        model(IDS[:, :-1], past_key_values=(cache := attached.sessions.cache(IDS)))
    attached.sessions.release(cache)


def found(attached):
    cache = attached.sessions.cache(IDS)
    length = cache.get_seq_length()
    attached.sessions.discard(cache)
    return length


def answer(model, attached):
    return greedy(model, IDS, 6, past_key_values=attached.sessions.cache(IDS))


def test_each_adapter_finds_its_own_and_none_finds_the_models(target):
    wrapped = adapted()
    model = wrapped.base_model.model
    with attach(model, target, sessions=True) as attached:
        for name in ("one", "two"):
            wrapped.set_adapter(name)
            assert found(attached) == 0
            keep(model, attached)
        with wrapped.disable_adapter():
            assert found(attached) == 0
            keep(model, attached)
            assert found(attached) == 69
        for name in ("one", "two", "one"):
            wrapped.set_adapter(name)
            assert found(attached) == 69
            ours = answer(model, attached)
        wrapped.base_model.set_adapter(["one", "two"])  # both at once
        assert found(attached) == 0
        wrapped.set_adapter("one")
    assert torch.equal(ours, greedy(model, IDS, 6))


def test_a_later_attachment_finds_what_its_adapter_has_stored(target):
    wrapped = adapted()
    model = wrapped.base_model.model
    for name, wanted in (("one", 0), ("two", 0), ("one", 69), ("two", 69)):
        wrapped.set_adapter(name)
        with attach(model, target, sessions=True) as attached:
            assert found(attached) == wanted
            if not wanted:
                keep(model, attached)


def test_merged_weights_and_scales_are_another_model_until_they_are_undone(target):
    wrapped = adapted()
    model = wrapped.base_model.model
    with attach(model, target, sessions=True) as attached:
        keep(model, attached)
        wrapped.merge_adapter()
        assert found(attached) == 0
        merged = answer(model, attached)
        wrapped.unmerge_adapter()
        layer = model.model.layers[0].self_attn.v_proj
        layer.scale_layer(2.0)
        assert found(attached) == 0
        layer.unscale_layer(2.0)
    with attach(model, target, sessions=True) as attached:  # what was merged is as it was, to rounding
        wrapped.merge_adapter()
        stock = answer(model, attached)
    assert torch.equal(merged, stock)
    assert torch.equal(merged, greedy(model, IDS, 6))


def test_an_adapter_that_is_not_active_does_not_count():
    wrapped = adapted()
    before = of_model(wrapped.base_model.model)
    wrapped.add_adapter("three", lora())
    assert of_model(wrapped.base_model.model) == before
    wrapped.delete_adapter("two")
    assert of_model(wrapped.base_model.model) == before
    for name, weight in wrapped.named_parameters():
        if "lora_B.one" in name:
            weight.data.mul_(2)
    assert of_model(wrapped.base_model.model) != before
