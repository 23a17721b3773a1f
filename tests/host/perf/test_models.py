"""Sizes of models and the formulas of the papers, against transformers and against search."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from transformers import LlamaConfig, LlamaForCausalLM, MixtralConfig, MixtralForCausalLM, OPTConfig, OPTForCausalLM

from kvdrive.perf import shapes, xcache


def parameters(kind, config):
    with torch.device("meta"):
        return sum(p.numel() for p in kind(config).parameters() if p.dim() == 2 or p.dim() == 3)


@pytest.mark.parametrize("shape", [shapes.OPT_6_7B, shapes.OPT_13B], ids=lambda shape: shape.name)
def test_weights_of_opt_are_those_of_transformers(shape):
    config = OPTConfig(
        hidden_size=shape.hidden,
        num_hidden_layers=shape.layers,
        ffn_dim=shape.ffn,
        num_attention_heads=shape.heads,
        word_embed_proj_dim=shape.hidden,
        max_position_embeddings=2048,
    )
    positions = (2048 + 2) * shape.hidden
    assert 2 * (parameters(OPTForCausalLM, config) - positions) == shape.weight_bytes


@pytest.mark.parametrize("shape", [shapes.LLAMA_13B, shapes.LLAMA_70B, shapes.MISTRAL_7B], ids=lambda shape: shape.name)
def test_weights_of_llama_are_those_of_transformers(shape):
    config = LlamaConfig(
        hidden_size=shape.hidden,
        num_hidden_layers=shape.layers,
        intermediate_size=shape.ffn,
        num_attention_heads=shape.heads,
        num_key_value_heads=shape.kv_heads,
        vocab_size=shape.vocabulary,
        tie_word_embeddings=True,
    )
    assert 2 * parameters(LlamaForCausalLM, config) == shape.weight_bytes


def test_weights_of_experts_are_those_of_transformers():
    shape = shapes.MIXTRAL_8X7B
    config = MixtralConfig(
        hidden_size=shape.hidden,
        num_hidden_layers=2,
        intermediate_size=shape.ffn,
        num_attention_heads=shape.heads,
        num_key_value_heads=shape.kv_heads,
        vocab_size=shape.vocabulary,
        num_local_experts=shape.experts,
        tie_word_embeddings=True,
    )
    routers = 2 * shape.experts * shape.hidden
    ours = shape.attention_weights + shape.ffn_weights
    assert (
        parameters(MixtralForCausalLM, config) - routers == ours * 2 // shape.layers + shape.vocabulary * shape.hidden
    )


@settings(deadline=None, max_examples=30)
@given(st.floats(0.2, 20), st.floats(0.2, 20))
def test_the_closed_form_is_the_best_share(drive, link):
    rates = xcache.Rates(drive, link)
    assert xcache.best(shapes.OPT_66B, 1000, rates) == pytest.approx(xcache.closed_form(rates), abs=1e-3)


def test_x_cache_loses_with_grouped_queries():
    rates = xcache.Rates(3, 1)
    assert xcache.chosen(shapes.LLAMA_70B, 1000, rates) == 0
    assert xcache.chosen(shapes.OPT_66B, 1000, rates) == 0.5
    assert xcache.written(shapes.LLAMA_70B, 1.0) == 4
    slow = xcache.Rates(3, 1, compute=1e-6)
    assert xcache.chosen(shapes.OPT_66B, 1000, slow) == 0
