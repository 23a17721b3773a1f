"""What is stored of a model is found by that model only, and of a sequence only if it is that of its tokens."""

import pytest
import torch
from family_models import NARROW, SERVED
from mutations import TINY, Adapted, built
from small_models import CONFIGS, prompts, random_model
from transformers import (
    Gemma4TextConfig,
    LlamaConfig,
    Qwen3MoeConfig,
)

from kvdrive.errors import InputError, UnsupportedError
from kvdrive.generation.generate import greedy
from kvdrive.identity import harmless
from kvdrive.identity.content import only_looks
from kvdrive.identity.model import ModelIdentity, of_model
from kvdrive.plugins.transformers import attach

LLAMA = LlamaConfig(**TINY, num_key_value_heads=2)
MOE = {"num_key_value_heads": 2, "num_experts": 4, "moe_intermediate_size": 32, **NARROW}
IDS = prompts(1, 100)


def found(attached, ids=IDS):
    cache = attached.sessions.cache(ids)
    length = cache.get_seq_length()
    attached.sessions.discard(cache)
    return length


@torch.no_grad()
def keep(model, target, ids=IDS, **more):
    with attach(model, target, sessions=True) as attached:
        model(ids[:, :-1], past_key_values=attached.sessions.cache(ids), **more)


def found_by(model, target, ids=IDS):
    with attach(model, target, sessions=True) as attached:
        return found(attached, ids)


@pytest.mark.parametrize(
    ("one", "other"),
    [
        (LLAMA, LlamaConfig(**TINY, num_key_value_heads=2, rms_norm_eps=0.5)),
        (LLAMA, LlamaConfig(**TINY, num_key_value_heads=2, hidden_act="relu")),
        (Qwen3MoeConfig(**TINY, **MOE, num_experts_per_tok=2), Qwen3MoeConfig(**TINY, **MOE, num_experts_per_tok=3)),
    ],
    ids=["rms_norm_eps", "hidden_act", "num_experts_per_tok"],
)
def test_equal_weights_with_another_configuration_find_nothing(target, one, other, tmp_path):
    keep(built(one, seed=1), target)
    assert found_by(built(other, seed=1), target) == 0
    assert found_by(built(one, seed=1), target) == 99
    with attach(built(one, seed=1), target) as attached, torch.no_grad():
        cache = attached.cache()
        attached._model(IDS, past_key_values=cache)
        attached.save(cache, tmp_path / "saved.json")
    with attach(built(other, seed=1), target) as attached, pytest.raises(InputError, match="saved by another model"):
        attached.reopen(tmp_path / "saved.json")


def test_an_unknown_field_of_the_configuration_counts(target):
    model = built(LLAMA, seed=1)
    before = of_model(model)
    model.config.a_field_of_tomorrow = 1
    assert of_model(model) != before


def test_harmless_things_do_not_count():
    model, before = built(LLAMA, seed=1), of_model(built(LLAMA, seed=1))
    for name in harmless.CONFIG:
        if hasattr(model.config, name) and not name.startswith("_attn") and name != "output_attentions":
            vars(model.config)[name] = "another"
    for name in ("name_or_path", "warnings_issued", "_is_hf_initialized"):
        setattr(model, name, "another")
    model.model.layers[0].register_forward_hook(only_looks(lambda module, inputs, output: None))
    assert of_model(model) == before


def test_an_adapter_that_is_switched_finds_what_was_stored_with_it(target):
    model = built(LLAMA, seed=1)
    adapted = [Adapted(layer.self_attn.v_proj, 0.3) for layer in model.model.layers]
    for layer, one in zip(model.model.layers, adapted, strict=True):
        layer.self_attn.v_proj = one
    with attach(model, target, sessions=True) as attached, torch.no_grad():
        for on in (True, False):
            for one in adapted:
                one.on = on
            assert found(attached) == 0
            model(IDS[:, :-1], past_key_values=(cache := attached.sessions.cache(IDS)))
            attached.sessions.release(cache)
            assert found(attached) == 99
        for one in adapted:
            one.on = True
        assert found(attached) == 99
        adapted[0].scaling["default"] = 0.6
        assert found(attached) == 0


def test_weights_that_are_merged_while_attached_are_another_model(target):
    model = built(LLAMA, seed=1)
    weight = model.model.layers[0].self_attn.v_proj.weight
    with attach(model, target, sessions=True) as attached, torch.no_grad():
        model(IDS[:, :-1], past_key_values=(cache := attached.sessions.cache(IDS)))
        attached.sessions.release(cache)
        assert found(attached) == 99
        saved = weight.clone()
        weight.data += 0.1
        assert found(attached) == 0
        cache = attached.sessions.cache(IDS)
        ours = greedy(model, IDS, 6, past_key_values=cache)
        weight.data.copy_(saved)
        assert found(attached) == 99
        weight.data += 0.1
    assert torch.equal(ours, greedy(model, IDS, 6))


@pytest.mark.parametrize("how", ["hook", "weight", "adapter"])
def test_a_sequence_that_was_begun_by_another_model_is_not_stored(target, caplog, tmp_path, how):
    """The change comes after tokens that were saved already; they stay those of the model as it was."""
    model = built(LLAMA, seed=1)
    layer = model.model.layers[0].self_attn
    layer.v_proj = Adapted(layer.v_proj, 0.3)

    def change():
        if how == "hook":
            return layer.k_proj.register_forward_hook(lambda module, inputs, output: output * 2).remove
        if how == "weight":
            layer.k_proj.weight.mul_(2)
            return lambda: layer.k_proj.weight.div_(2)
        layer.v_proj.on = False
        return lambda: setattr(layer.v_proj, "on", True)

    with attach(model, target, sessions=True) as attached, torch.no_grad():
        cache = attached.sessions.cache(IDS)
        model(IDS[:, :80], past_key_values=cache)
        undo = change()
        model(IDS[:, 80:90], past_key_values=cache)
        assert "not saved: the model has changed since the sequence began" in caplog.text
        undo()
        model(IDS[:, 90:], past_key_values=cache)
        with pytest.raises(UnsupportedError, match="the model has changed"):
            attached.save(cache, tmp_path / "saved.json")
        cache.reset()
        assert found(attached) == 80
    assert found_by(model, target) == 80


def test_steps_of_several_sequences_notice_a_change(target, caplog):
    model = built(LLAMA, seed=1)
    with attach(model, target, sessions=True) as attached, torch.no_grad():
        caches = [attached.sessions.cache(prompts(1, 70, seed=seed)) for seed in (4, 5)]
        for seed, cache in zip((4, 5), caches, strict=True):
            model(prompts(1, 70, seed=seed), past_key_values=cache)
        attached.step_together(caches, [[3], [4]])
        assert not caplog.messages
        model.lm_head.register_forward_pre_hook(lambda module, inputs: (inputs[0] * 2,))
        attached.step_together(caches, [[3], [4]])
        assert caplog.text.count("the model has changed since the sequence began") == 2


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"position_ids": torch.arange(99)[None] * 2}, "its positions are not the numbers of its tokens"),
        ({"cache_position": torch.arange(99) + 1}, "its positions are not the numbers of its tokens"),
        ({"token_type_ids": torch.ones(1, 99, dtype=torch.int64)}, "the model was given token_type_ids"),
        ({"an_argument_of_tomorrow": True}, "the model was given an_argument_of_tomorrow"),
        ({"attention_mask": torch.ones(1, 1, 99, 99, dtype=torch.bool)}, "its mask hides tokens"),
        ({"attention_mask": torch.arange(99)[None] > 3}, "its mask hides tokens"),
    ],
    ids=["positions", "cache positions", "types", "unknown", "both ways", "hidden"],
)
def test_a_sequence_with_anything_but_its_tokens_is_not_stored(target, caplog, given, said):
    model = built(LLAMA, seed=1)
    keep(model, target, **given)
    assert said in caplog.text
    assert found_by(model, target) == 0


@torch.no_grad()
def test_a_sequence_of_embeddings_is_not_stored(target, caplog):
    model = built(LLAMA, seed=1)
    with attach(model, target, sessions=True) as attached:
        cache = attached.sessions.cache(IDS)
        model(inputs_embeds=model.get_input_embeddings()(IDS), past_key_values=cache)
    assert "its tokens are not known" in caplog.text
    assert found_by(model, target) == 0


@torch.no_grad()
def test_tokens_that_went_past_the_models_forward_are_noticed(target, caplog):
    model = built(LLAMA, seed=1)
    with attach(model, target, sessions=True) as attached:
        cache = attached.sessions.cache(IDS)
        model.model(IDS[:, :40], past_key_values=cache)
        model(IDS[:, 40:], past_key_values=cache)
    assert "did not come through the model's own forward" in caplog.text
    assert found_by(model, target, IDS[:, 40:]) == 0


def test_default_positions_and_a_whole_mask_are_stored(target):
    model = built(LLAMA, seed=1)
    keep(model, target, position_ids=torch.arange(99)[None], attention_mask=torch.ones(1, 99, dtype=torch.int64))
    assert found_by(model, target) == 99


@torch.no_grad()
def test_a_saved_cache_remembers_its_positions(target, tmp_path):
    """What a drive loses later is computed again, at the same positions."""
    model, places = built(LLAMA, seed=1), torch.arange(60)[None] * 2
    step = {"position_ids": torch.tensor([[120]])}
    with attach(model, target) as attached:
        cache = attached.cache()
        model(IDS[:, :60], position_ids=places, past_key_values=cache)
        attached.save(cache, tmp_path / "saved.json")
        wanted = model(IDS[:, 60:61], past_key_values=cache, **step).logits
    with attach(model, target, on_failure="recompute") as attached:
        cache = attached.reopen(tmp_path / "saved.json")
        assert torch.equal(cache.batch.history.position_ids(), places)
        attached._calls.recovery.recompute(cache.batch)
        again = model(IDS[:, 60:61], past_key_values=cache, **step).logits
    torch.testing.assert_close(again, wanted, rtol=0, atol=0.01)


@pytest.mark.parametrize("name", ["llama", "gemma3", "gpt-oss", "llama4", "qwen3-next", "granite4", "phi3", "opt"])
def test_generating_changes_no_identity(target, name):
    model = random_model(CONFIGS[name] if name in CONFIGS else SERVED[name][0])
    watched = ModelIdentity(model)
    before = watched.value
    with attach(model, target):
        greedy(model, IDS[:, :20], 3)
        assert not watched.renew()
    assert watched.value == before == of_model(random_model(CONFIGS.get(name) or SERVED[name][0]))


def test_rotary_positions_that_depend_on_the_length_end_the_keeping(target, caplog):
    """Within the length that the model was trained with they do not change."""
    rope = {"rope_type": "dynamic", "factor": 2.0, "rope_theta": 10000.0}
    model = built(LlamaConfig(**TINY | {"max_position_embeddings": 64}, num_key_value_heads=2, rope_parameters=rope), 1)
    keep(model, target, IDS[:, :50])
    assert found_by(model, target, IDS[:, :50]) == 49
    with attach(model, target, sessions=True, context=200) as attached, torch.no_grad():
        cache = attached.sessions.cache(IDS)
        model(IDS[:, cache.get_seq_length() :], past_key_values=cache)
    assert "the model has changed since the sequence began" in caplog.text


def test_weights_that_nobody_can_watch_are_refused(target):
    with torch.inference_mode():
        model = built(LLAMA, seed=1)
    with pytest.raises(UnsupportedError, match="no sessions of this model can be stored: some of its weights"):
        attach(model, target, sessions=True)
    attach(model, target).detach()


def test_a_hook_that_holds_a_file_is_refused_by_its_type(target, tmp_path):
    model = built(LLAMA, seed=1)
    with (tmp_path / "log").open("w") as file:
        model.lm_head.register_forward_hook(lambda module, inputs, output: file.write("x") and None)
        with pytest.raises(UnsupportedError, match=r"it holds a _io\.TextIOWrapper, of which"):
            attach(model, target, sessions=True)


def test_layers_with_heads_of_different_sizes_are_served(target):
    config = Gemma4TextConfig(
        **TINY, num_key_value_heads=2, head_dim=32, global_head_dim=64, sliding_window=16,
        vocab_size_per_layer_input=300, hidden_size_per_layer_input=16,
        layer_types=["sliding_attention", "full_attention"],
    )  # fmt: skip
    model, ids = built(config, seed=1), prompts(2, 30)
    with attach(model, target):
        ours = greedy(model, ids, 8)
    assert target.stats().attention_jobs == 2 * 7 * 2  # rows, steps, KV heads of one layer
    assert torch.equal(ours, greedy(model, ids, 8))


def test_attaching_is_no_change_of_the_model(target, monkeypatch):
    """What attaching itself sets is there before the identity is taken: calls look at the model, and hash nothing."""
    hashed = []
    renew = ModelIdentity.renew
    monkeypatch.setattr(ModelIdentity, "renew", lambda self: hashed.append(self) or renew(self))
    model = built(LLAMA, seed=1)
    with attach(model, target, sessions=True) as attached:
        for _ in range(2):
            greedy(model, IDS, 3, past_key_values=attached.sessions.cache(IDS))
            greedy(model, IDS[:, :20], 3)
        assert len(hashed) == 1


@torch.no_grad()
def test_an_object_that_nobody_can_look_into_is_equal_to_itself(target, tmp_path):
    """A sequence of a model with an open file in a hook continues, and is computed again, while it is that file."""
    model = built(LLAMA, seed=1)
    with (tmp_path / "log").open("w") as file, (tmp_path / "other").open("w") as other:
        held = [file]
        model.lm_head.register_forward_hook(lambda module, inputs, output: held[0].write("x") and None)
        with attach(model, target, on_failure="recompute") as attached:
            cache = attached.cache()
            model(IDS[:, :60], past_key_values=cache)
            model.model.norm.register_forward_hook(only_looks(lambda module, inputs, output: None))
            model(IDS[:, 60:], past_key_values=cache)
            attached._calls.recovery.recompute(cache.batch)
            assert cache.get_seq_length() == 100
            held[0] = other
            model(IDS[:, :1], past_key_values=cache)
            with pytest.raises(UnsupportedError, match="the model has changed"):
                attached._calls.recovery.recompute(cache.batch)
        assert of_model(model) != of_model(model)


@torch.no_grad()
def test_what_transformers_collects_outputs_with_does_not_count(target):
    """It puts hooks into a model when somebody first asks for hidden states, and leaves them there."""
    model = built(LLAMA, seed=1)
    before = of_model(model)
    keep(model, target)
    assert len(model(IDS, output_hidden_states=True).hidden_states) == 3
    assert any(module._forward_hooks for module in model.modules())
    assert of_model(model) == before
    assert found_by(model, target) == 99


def test_an_attribute_of_a_class_of_the_users_counts():
    """A switch for all layers at once."""

    class Switched(Adapted):
        factor = 1.0

    model = built(LLAMA, seed=1)
    layer = model.model.layers[0].self_attn
    layer.v_proj = Switched(layer.v_proj, 0.3)
    watched = ModelIdentity(model)
    Switched.factor = 2.0
    assert not watched.is_current()
    assert watched.renew()
    Switched.factor = 1.0
    assert watched.renew()
    assert watched.value == of_model(model)
