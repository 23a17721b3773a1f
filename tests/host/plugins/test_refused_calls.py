"""Models and calls that cannot work end in one sentence that names the cause."""

import copy
import logging

import pytest
import torch
from small_models import CONFIGS, prompts, random_model
from transformers import BertConfig, BertForMaskedLM, LlamaForSequenceClassification, LlamaModel

from kvdrive.errors import InputError, UnsupportedError
from kvdrive.generation.generate import greedy
from kvdrive.plugins.transformers import attach

BERT = BertConfig(
    vocab_size=300, hidden_size=64, num_hidden_layers=1, num_attention_heads=2, intermediate_size=64, is_decoder=False
)


@pytest.mark.parametrize("weight", ["model.layers.0.self_attn.v_proj.weight", "model.layers.1.mlp.up_proj.weight"])
def test_a_weight_that_is_no_number_is_named(target, weight):
    model = random_model(CONFIGS["llama"])
    model.get_parameter(weight).data[3, 5] = float("nan")
    with pytest.raises(InputError, match=f"{weight} of LlamaForCausalLM holds NaN or infinity: load the checkpoint"):
        attach(model, target)


def test_gradient_checkpointing_is_named_and_harmless_in_evaluation(target):
    model, ids = random_model(CONFIGS["llama"]), prompts(1, 9)
    model.activation_checkpointing_enable()
    with pytest.raises(UnsupportedError, match=r"gradient checkpointing .* call model.eval\(\)"):
        attach(model.train(), target)
    with attach(model.eval(), target):
        ours = greedy(model, ids, 4)
    assert torch.equal(ours, greedy(model, ids, 4))


@pytest.mark.parametrize("kind", [LlamaModel, LlamaForSequenceClassification, BertForMaskedLM])
def test_a_model_that_generates_no_text_is_refused_by_name(target, kind):
    model = kind(copy.deepcopy(BERT if kind is BertForMaskedLM else CONFIGS["llama"])).eval()
    with pytest.raises(UnsupportedError, match=f"{kind.__name__} generates no text.* AutoModelForCausalLM"):
        attach(model, target)


@pytest.mark.parametrize("given", ["models/mini", torch.nn.Linear(2, 2), None], ids=["a path", "a module", "nothing"])
def test_what_is_no_model_is_refused(target, given):
    with pytest.raises(InputError, match=f"not a {type(given).__name__}: load one with AutoModelForCausalLM"):
        attach(given, target)


def test_an_empty_prompt_is_one_sentence(target, llama):
    none = torch.empty(1, 0, dtype=torch.int64)
    with attach(llama, target), torch.no_grad():
        for call in (lambda: llama(none), lambda: greedy(llama, none, 2), lambda: llama(inputs_embeds=none[..., None])):
            with pytest.raises(InputError, match="the prompt is empty: give the model one token at least"):
                call()


def test_attention_weights_that_are_asked_for_give_one_warning(target, llama, caplog):
    caplog.set_level(logging.WARNING)
    with attach(llama, target), torch.no_grad():
        for _ in range(2):
            found = llama(prompts(1, 9), output_attentions=True)
            assert not any(one is not None for one in found.attentions or ())
    assert caplog.text.count("drives do not return the weights of attention") == 1
