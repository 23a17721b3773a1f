"""H2O against a literal list-of-tokens version of it, its attention against the golden model, and inside a model."""

from fractions import Fraction

import numpy as np
import pytest
import torch
from family_models import SERVED
from random_halves import halves
from small_models import prompts, random_model
from transformers import LlamaConfig, LlamaForCausalLM

import golden
import kvdrive
from kvdrive.errors import RangeError, UnsupportedError
from kvdrive.policies.heavy_hitters import HeavyHitters, prompt_mass

HEADS, GROUP, D = 2, 2, 32
SCALE = D**-0.5


def softmax(x):
    e = np.exp(x - x.max(-1, keepdims=True))
    return e / e.sum(-1, keepdims=True)


def masses(q, k):
    """Causal attention mass of each token, computed head by head without shortcuts."""
    tokens = k.shape[1]
    mass = np.zeros((HEADS, tokens))
    for head in range(HEADS):
        for i in range(tokens):
            scores = q[head, :, i].astype(float) @ k[head, : i + 1].astype(float).T * SCALE
            mass[head, : i + 1] += softmax(scores).sum(0)
    return mass


def test_prompt_mass_equals_the_definition():
    rng = np.random.default_rng(1)
    q, k = 2 * halves(rng, HEADS, GROUP, 300, D), 2 * halves(rng, HEADS, 300, D)
    got = prompt_mass(torch.from_numpy(q), torch.from_numpy(k), SCALE)
    np.testing.assert_allclose(got, masses(q, k), rtol=1e-4, atol=1e-4)


def test_tokens_are_retained_and_dropped_as_the_paper_says():
    rng = np.random.default_rng(2)
    prompt, steps, budget, recent = 40, 30, 10, 5
    total = prompt + steps
    q, k, v = (
        2 * halves(rng, HEADS, GROUP, total, D),
        2 * halves(rng, HEADS, total, D),
        2 * halves(rng, HEADS, total, D),
    )
    state = HeavyHitters(torch.from_numpy(q[:, :, :prompt]), k[:, :prompt], v[:, :prompt], Fraction(1, 4), SCALE)
    mass = masses(q[:, :, :prompt], k[:, :prompt])
    kept = []
    for head in range(HEADS):
        older = sorted(range(prompt - recent), key=lambda i, h=head: mass[h, i])
        kept.append({i: mass[head, i] for i in [*older[recent - budget :], *range(prompt - recent, prompt)]})
    for token in range(prompt, total):
        out = state.attend(q[:, :, token], k[:, token], v[:, token])
        for head in range(HEADS):
            mine = kept[head]
            mine[token] = 0.0
            order = sorted(mine)
            want = golden.attention(q[head, :, token], k[head, order], v[head, order])
            np.testing.assert_array_equal(out[head].view(np.uint16), want.out.view(np.uint16))
            scores = q[head, :, token].astype(float) @ k[head, order].astype(float).T * SCALE
            for i, p in zip(order, softmax(scores).sum(0), strict=True):
                mine[i] += p
            mine.pop(min((i for i in order if i <= token - recent), key=mine.__getitem__))
            assert state.positions(head).tolist() == sorted(mine)
    assert state.bytes_read == steps * 2 * HEADS * (budget + 1) * D * 2


def tiny_model():
    torch.manual_seed(3)
    config = LlamaConfig(
        vocab_size=64, hidden_size=64, intermediate_size=64, num_hidden_layers=2, num_attention_heads=4,
        num_key_value_heads=2, head_dim=32, initializer_range=0.2, pad_token_id=0, bos_token_id=None, eos_token_id=None,
    )  # fmt: skip
    return LlamaForCausalLM(config).eval()


def padded_prompts():
    ids = torch.randint(1, 64, (2, 24), generator=torch.Generator().manual_seed(4))
    mask = torch.ones_like(ids)
    ids[1, :9] = mask[1, :9] = 0
    return ids, mask


def test_ratio_one_generates_what_transformers_does(target):
    model, (ids, mask) = tiny_model(), padded_prompts()
    options = {"attention_mask": mask, "max_new_tokens": 12, "do_sample": False}
    stock = model.generate(ids, **options)
    with kvdrive.attach(model, target, "h2o"):
        ours = model.generate(ids, **options)
    assert torch.equal(ours, stock)
    assert target.stats().commands == 0
    assert model.config._attn_implementation == "sdpa"


def test_layers_with_a_window_stay_with_transformers(target):
    model, ids = random_model(SERVED["exaone4"][0]), prompts(2, 40)
    stock = model.generate(ids, max_new_tokens=12, do_sample=False)
    with kvdrive.attach(model, target, "h2o"):
        assert torch.equal(model.generate(ids, max_new_tokens=12, do_sample=False), stock)


def test_a_small_budget_reads_that_much_less(target):
    model, (ids, mask) = tiny_model(), padded_prompts()
    with kvdrive.attach(model, target, "h2o", Fraction(1, 4)) as attached:
        cache = attached.cache()
        model.generate(ids, attention_mask=mask, past_key_values=cache, max_new_tokens=5, do_sample=False)
        read = cache.batch.statistics.bytes_read()
    kept = 24 // 4 + 1 + (24 - 9) // 4 + 1 + 1  # 15 / 4 rounds up
    assert read == 4 * kept * 2 * 2 * 2 * 32 * 2  # steps, K and V, layers, heads


def test_what_needs_dropped_tokens_is_refused(target, tmp_path):
    with kvdrive.attach(tiny_model(), target, "h2o", Fraction(1, 4)) as attached:
        cache = attached.cache()
        with pytest.raises(UnsupportedError, match="take tokens back"):
            cache.crop(-1)
        tiny = attached._model
        tiny(padded_prompts()[0], past_key_values=cache)
        with pytest.raises(UnsupportedError, match="num_beams=1"):
            cache.reorder_cache(torch.tensor([1, 0]))
        with pytest.raises(UnsupportedError, match="cannot be saved"):
            attached.save(cache, tmp_path / "chat.json")


def test_a_failed_call_empties_the_cache(target):
    model, (ids, _) = tiny_model(), padded_prompts()
    with kvdrive.attach(model, target, "h2o", Fraction(1, 4)) as attached, torch.no_grad():
        cache = attached.cache()
        model(ids, past_key_values=cache)
        assert cache.get_seq_length() == ids.shape[1]
        broken = model.model.layers[1].self_attn.k_proj.weight
        before = broken.clone()
        broken.fill_(1e9)
        with pytest.raises(RangeError):
            model(ids[:, :1], past_key_values=cache)
        broken.copy_(before)
        assert cache.get_seq_length() == 0
        fresh = attached.cache()
        want = model(ids, past_key_values=fresh).logits
        assert torch.equal(model(ids, past_key_values=cache).logits, want)
