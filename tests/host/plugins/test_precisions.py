"""Checkpoints in bfloat16 and binary16 of every supported family, and families whose K or V do not fit binary16.

Stock logits of a low precision differ from those of the same weights in binary32; the drive's must not differ more.
"""

import torch
from pairs import by_value
from small_models import CONFIGS, prompts

from kvdrive.generation.generate import generate, greedy
from kvdrive.plugins.transformers import attach

FAMILIES = [name for name in CONFIGS if name != "llama-mha"]
PRECISIONS = [torch.bfloat16, torch.float16]
PREFILL, TOKENS = 40, 56


def steps(model, target, ids):
    """Logits of the tokens from PREFILL on, decoded one by one in the drive, and the range statistics."""
    with torch.no_grad(), attach(model, target, spill=6) as drive:
        cache = drive.cache()
        model(ids[:, :PREFILL], past_key_values=cache, use_cache=True)
        found = [model(ids[:, i : i + 1], past_key_values=cache, use_cache=True).logits for i in range(PREFILL, TOKENS)]
        return torch.cat(found, dim=1).float(), cache.batch.statistics.ranges()


def logits(model, ids):
    with torch.no_grad():
        return model(ids).logits[:, PREFILL:].float()


@by_value({"name": FAMILIES, "dtype": PRECISIONS})
def test_no_further_from_binary32_than_transformers(target, stored_model, name, dtype):
    model, ids = stored_model(name, dtype), prompts(2, TOKENS)
    ours, stats = steps(model, target, ids)
    stock = logits(model, ids)
    exact = logits(model.float(), ids)
    assert stats["heads_scaled"] == 0
    assert 0 < (ours - exact).abs().mean() < 1.2 * (stock - exact).abs().mean()


@by_value({"name": FAMILIES, "dtype": PRECISIONS[::-1]})
def test_generation_keeps_the_precision(target, stored_model, name, dtype):
    """Every spill interval gives the same bits and so the same tokens. Inputs and outputs have the model's dtype."""
    model, ids = stored_model(name, dtype), prompts(2, 20)
    tokens = [generate(model, ids, target, max_new_tokens=6, spill=spill) for spill in (1, 16)]
    assert torch.equal(*tokens)
    assert {weight.dtype for weight in model.parameters()} == {dtype}
    assert greedy(model, ids, 2).shape == (2, 22)


def outgrow(model, factor):
    """Make one V head of the last layer `factor` times as large, and the weights that follow it as much smaller."""
    config = model.config
    heads, kv_heads = config.num_attention_heads, getattr(config, "num_key_value_heads", config.num_attention_heads)
    decoder = getattr(model.model, "decoder", model.model)
    attention = decoder.layers[-1].self_attn
    head_dim = attention.head_dim
    fused = getattr(attention, "qkv_proj", None)
    into = fused or attention.v_proj
    first = (heads + kv_heads) * head_dim if fused else 0
    out = getattr(attention, "o_proj", None) or attention.out_proj
    with torch.no_grad():
        into.weight[first : first + head_dim] *= factor
        if into.bias is not None:
            into.bias[first : first + head_dim] *= factor
        out.weight[:, : heads // kv_heads * head_dim] /= factor


OUTGROWN = [(torch.bfloat16, 2.0**23), (torch.float16, 2.0**13)]  # beyond binary16; and less than its guard asks for


@by_value({"name": FAMILIES, "dtype, factor": OUTGROWN})
def test_heads_out_of_range_are_scaled(target, stored_model, name, dtype, factor):
    model, ids = stored_model(name, dtype), prompts(2, TOKENS)
    outgrow(model, factor)
    ours, stats = steps(model, target, ids)
    stock = logits(model, ids)
    exact = logits(model.float(), ids)
    assert stats["heads_scaled"] == 2  # that of each row
    assert (ours - exact).abs().mean() < 1.2 * (stock - exact).abs().mean()
