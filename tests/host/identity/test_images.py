"""Models that see images: a prompt with an image has the same tokens as the same prompt with another one."""

import copy

import pytest
import torch
from mutations import TINY
from small_models import prompts
from transformers import (
    AutoModelForImageTextToText,
    CLIPVisionConfig,
    Gemma3Config,
    Gemma3TextConfig,
    LlamaConfig,
    LlavaConfig,
    Qwen2_5_VLConfig,
    SiglipVisionConfig,
)

from kvdrive.generation.generate import greedy
from kvdrive.plugins.transformers import attach

HEADS = {"num_key_value_heads": 2}
ROPE = {"rope_type": "default", "mrope_section": [2, 3, 3], "rope_theta": 10000.0}
VISION = {"hidden_size": 32, "intermediate_size": 32, "image_size": 16, "patch_size": 8}
LAYERS = {"num_hidden_layers": 1, "num_attention_heads": 2}
IMAGE = 299  # the token that stands for a part of an image
CONFIGS = {
    "qwen2.5-vl": Qwen2_5_VLConfig(
        text_config=TINY | HEADS | {"rope_parameters": ROPE},
        vision_config={
            "depth": 1, "hidden_size": 32, "intermediate_size": 32, "num_heads": 2, "out_hidden_size": 64,
            "patch_size": 8, "spatial_merge_size": 2, "window_size": 32, "fullatt_block_indexes": [0],
        },
        image_token_id=IMAGE, vision_start_token_id=298, vision_end_token_id=297, video_token_id=296,
    ),
    "llava": LlavaConfig(
        text_config=LlamaConfig(**TINY, **HEADS), vision_config=CLIPVisionConfig(**VISION, **LAYERS),
        image_token_index=IMAGE,
    ),
    "gemma3": Gemma3Config(
        text_config=Gemma3TextConfig(**TINY, **HEADS, head_dim=32, layer_types=["full_attention"] * 2),
        vision_config=SiglipVisionConfig(**VISION, **LAYERS, vision_use_head=False),
        image_token_index=IMAGE, boi_token_index=298, eoi_token_index=297, mm_tokens_per_image=4,
    ),
}  # fmt: skip
PARTS = 4  # tokens of an image


def built(name):
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(1)
        model = AutoModelForImageTextToText.from_config(copy.deepcopy(CONFIGS[name])).eval()
        if name == "gemma3":  # it begins with a projection of zeros
            model.model.multi_modal_projector.mm_input_projection_weight.data.normal_()
        return model


def image(name, seed):
    """What a processor makes of an image, for the model."""
    numbers = torch.Generator().manual_seed(seed)
    if name == "qwen2.5-vl":
        grid = torch.tensor([[1, 4, 4]])  # patches of 2 frames, 3 colours, 8 by 8 pixels
        return {"pixel_values": torch.randn(16, 2 * 3 * 8 * 8, generator=numbers), "image_grid_thw": grid}
    return {"pixel_values": torch.randn(1, 3, 16, 16, generator=numbers)}


def text_with_image(name):
    ids = prompts(1, 90) % 290 + 2
    ids[0, 20 : 20 + PARTS] = IMAGE
    more = {"token_type_ids": (ids == IMAGE).long()} if name == "gemma3" else {}
    return ids, more


def generated(model, ids, given, **options):
    return model.generate(ids, **given, max_new_tokens=8, do_sample=False, eos_token_id=None, **options)


def found(attached, ids):
    cache = attached.sessions.cache(ids)
    length = cache.get_seq_length()
    attached.sessions.discard(cache)
    return length


@torch.no_grad()
@pytest.mark.parametrize("name", CONFIGS)
def test_a_prompt_with_an_image_is_not_stored_under_its_tokens(target, caplog, name):
    model, (ids, more) = built(name), text_with_image(name)
    cat, dog = ({**image(name, seed), **more} for seed in (1, 2))
    expected = generated(model, ids, dog)
    assert not torch.equal(*(model(ids, **one).logits[0, -1] for one in (cat, dog))), "one would be wrong for the other"
    with attach(model, target, sessions=True) as attached:
        cache = attached.sessions.cache(ids)
        answer = generated(model, ids, cat, past_key_values=cache)
        attached.sessions.release(cache)
        model(ids, **cat, past_key_values=(cache := attached.sessions.cache(ids)))
        attached.sessions.release(cache)
        said = [one for one in caplog.messages if "not saved: the model was given" in one]
        assert len(said) == 2  # `generate` may look at the image before the model does
        assert "pixel_values" in said[1]
        for one in (ids, answer):
            assert found(attached, one) == 0
        cache = attached.sessions.cache(ids)
        assert torch.equal(generated(model, ids, dog, past_key_values=cache), expected)
        assert target.stats().attention_jobs > 0
        attached.sessions.release(cache)
        assert found(attached, ids) == 0


@torch.no_grad()
@pytest.mark.parametrize("name", CONFIGS)
def test_text_is_served_and_stored_before_and_after_an_image(target, name):
    model, ids = built(name), prompts(1, 90) % 290 + 2
    stock = greedy(model, ids, 6)
    with attach(model, target, sessions=True) as attached:
        cache = attached.sessions.cache(ids)
        assert torch.equal(greedy(model, ids, 6, past_key_values=cache), stock)
        attached.sessions.release(cache)
        assert found(attached, stock) >= 90
        with_image, more = text_with_image(name)
        generated(model, with_image, {**image(name, 1), **more})
        assert torch.equal(greedy(model, ids, 6, past_key_values=attached.sessions.cache(ids)), stock)
