"""The probe finds attention that a drive would not compute, wherever it hides."""

import pytest
import torch
from family_models import SERVED
from small_models import CONFIGS, prompts, random_model
from transformers.models.llama import modeling_llama

from kvdrive.errors import UnsupportedError
from kvdrive.plugins.host_attention import attend_on_host
from kvdrive.plugins.probe import formula, probe
from kvdrive.plugins.transformers import attach


def refusal(model):
    with pytest.raises(UnsupportedError) as caught:
        probe(model)
    assert model.config._attn_implementation == "sdpa"
    return str(caught.value)


def test_it_reports_the_shapes_of_the_layers_on_drives():
    found = probe(random_model(SERVED["gpt-oss"][0]))
    assert {index: (one.query_heads, one.kv_heads, one.head_dim) for index, one in found.layers.items()} == {
        1: (8, 2, 32)
    }
    assert found.sinks
    assert not probe(random_model(CONFIGS["llama"])).sinks


def test_it_runs_once_for_a_model_and_leaves_no_trace():
    model, ids = random_model(CONFIGS["llama"]), prompts(1, 9)
    calls = []
    model.register_forward_hook(lambda *args: calls.append(1))
    torch.manual_seed(3)
    before = torch.random.get_rng_state()
    assert probe(model) is probe(model)
    assert len(calls) == 2
    assert torch.equal(before, torch.random.get_rng_state())
    assert torch.equal(model(ids).logits, random_model(CONFIGS["llama"])(ids).logits)


def test_another_softmax_is_found(monkeypatch):
    own = modeling_llama.eager_attention_forward

    def colder(module, query, key, value, mask, scaling, **kwargs):
        return own(module, query, key, value, mask, scaling * 1.05, **kwargs)

    monkeypatch.setattr(modeling_llama, "eager_attention_forward", colder)
    assert "something else than softmax" in refusal(random_model(CONFIGS["llama"]))


@pytest.mark.parametrize("name", ["softcap", "position_bias", "sliding_window"])
def test_arguments_that_change_scores_are_found(monkeypatch, name):
    forward = modeling_llama.LlamaAttention.forward

    def with_argument(self, *args, **kwargs):
        return forward(self, *args, **kwargs, **{name: 4})

    monkeypatch.setattr(modeling_llama.LlamaAttention, "forward", with_argument)
    assert name in refusal(random_model(CONFIGS["llama"]))


def test_a_layer_that_does_not_ask_is_found():
    model = random_model(CONFIGS["llama"])
    model.model.layers[1].self_attn.forward = lambda hidden_states, **kwargs: (hidden_states, None)
    assert "layer 1 does not attend" in refusal(model)


def test_a_layer_that_works_on_k_and_v_is_found(monkeypatch):
    forward = modeling_llama.repeat_kv
    interface = modeling_llama.ALL_ATTENTION_FUNCTIONS.get_interface

    def get_interface(*args):
        inner = interface(*args)
        return lambda module, q, k, v, *rest, **kwargs: inner(module, q, forward(k, 2), v, *rest, **kwargs)

    monkeypatch.setattr(modeling_llama.ALL_ATTENTION_FUNCTIONS, "get_interface", get_interface, raising=False)
    assert "ended in" in refusal(random_model(CONFIGS["llama"]))


def test_the_refusal_names_the_model(monkeypatch, target):
    model = random_model(CONFIGS["llama"])
    model.model.layers[0].self_attn.forward = lambda hidden_states, **kwargs: (hidden_states, None)
    with pytest.raises(UnsupportedError, match="LlamaForCausalLM cannot be attached to a drive: layer 0"):
        attach(model, target)


@pytest.mark.parametrize("masked", [False, True])
@pytest.mark.parametrize("tokens", [1, 7])
@pytest.mark.parametrize("strength", [-1.0, 3.0])  # weaker sinks may take less than the hundredth asserted below
def test_attention_on_the_host_adds_sinks(masked, tokens, strength):
    module = random_model(SERVED["gpt-oss"][0]).model.layers[1].self_attn
    rng = torch.Generator().manual_seed(1)
    query, key, value = (torch.randn(2, heads, 7, 32, generator=rng) for heads in (8, 2, 2))
    query, sinks = query[:, :, -tokens:], torch.randn(8, generator=rng) + strength
    mask = torch.ones(2, 1, tokens, 7, dtype=torch.bool).tril(7 - tokens) if masked else None
    if mask is not None:
        mask[1, :, :, :1] = False
        mask[1, :, 0, 0] = True  # no row without a token
    ours, _ = attend_on_host(module, query, key, value, mask, scaling=0.3, s_aux=sinks)
    without = formula(query, key, value, mask, 0.3, None)
    torch.testing.assert_close(ours, formula(query, key, value, mask, 0.3, sinks), rtol=1e-4, atol=1e-6)
    assert not torch.allclose(ours, without, rtol=1e-2)
