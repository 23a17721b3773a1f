"""Heads of K, V and Q that binary16, or fp8, cannot hold are scaled by a power of two. Lost values are counted."""

import numpy as np
import pytest
import torch
from small_models import CONFIGS, prompts, random_model

from kvdrive.errors import RangeError
from kvdrive.kvcache.scaling import HeadScale, exponents_of, scaled_halves
from kvdrive.nvme.wire import RowFormat
from kvdrive.plugins.transformers import attach


def logits(model, target, **options):
    """Stock logits of the last 20 tokens, those with the drive, and its range statistics."""
    ids = prompts(2, 50)
    with torch.no_grad():
        stock = model(ids).logits[:, 30:]
        with attach(model, target, spill=6, **options) as drive:
            cache = drive.cache()
            model(ids[:, :30], past_key_values=cache)
            steps = [model(ids[:, i : i + 1], past_key_values=cache).logits for i in range(30, 50)]
            return stock, torch.cat(steps, dim=1), cache.batch.statistics.ranges()


def large(scale_k, scale_v, scale_q, head):
    """A model with one KV head far out of range. The weights that follow it are scaled down to compensate."""
    model = random_model(CONFIGS["llama"])  # 8 query heads, 2 KV heads, d = 32
    attention = model.model.layers[1].self_attn
    rows, group = slice(32 * head, 32 * head + 32), slice(128 * head, 128 * head + 128)
    with torch.no_grad():
        attention.k_proj.weight[rows] *= scale_k
        attention.v_proj.weight[rows] *= scale_v
        attention.q_proj.weight[group] *= scale_q
        attention.o_proj.weight[:, group] /= scale_v
    return model


@pytest.mark.parametrize(
    ("model", "heads"),
    [
        (large(1e5, 1, 1e-4, 0), 1),
        (large(1, 1e7, 1, 1), 1),
        (large(1e-3, 1e9, 1e3, 1), 1),
        (large(1e5, 1e7, 1e-4, 0), 2),
    ],
    ids=["K", "V", "Q and V", "K and V"],
)
def test_large_heads_are_scaled(target, model, heads):
    stock, ours, stats = logits(model, target)
    assert stats["heads_scaled"] == 2 * heads  # two rows
    assert (ours - stock).abs().max() < 0.02 * stock.std()


def test_heads_that_fp8_cannot_hold_are_scaled_with_the_same_result(target):
    """Powers of two that the model takes back change no number of e4m3 but those near its ends."""
    plain, usual, stats = logits(random_model(CONFIGS["llama"]), target, kv_format="fp8")
    assert stats["heads_scaled"] == 0
    model = large(2.0**10, 2.0**12, 2.0**-10, 0)
    _, scaled, stats = logits(model, target, kv_format="fp8")
    assert stats["heads_scaled"] == 2 * 2  # K and V of a head of two rows
    error = (usual - plain).abs().mean()
    assert 0 < (scaled - plain).abs().mean() < 1.2 * error


def test_bfloat16_models_beyond_binary16(target):
    """Against the same weights in binary32, the drive is no worse than bfloat16 itself."""
    model = large(1e5, 1, 1e-4, 0).to(torch.bfloat16)
    stock, ours, stats = logits(model, target)
    with torch.no_grad():
        exact = model.float()(prompts(2, 50)).logits[:, 30:]
    assert stats["heads_scaled"] == 2
    assert (ours.float() - exact).abs().mean() < 1.2 * (stock.float() - exact).abs().mean()


def test_lost_values_are_counted():
    x = torch.ones(1, 2, 3, 32)
    x[0, 0, 0, 0], x[0, 0, 1, 1], x[0, 1, 0, 0] = 2.0**30, 2.0**-20, 2.0**-26
    scale = HeadScale("K")
    halves = scale.convert(x)
    assert scale.exponents.tolist() == [[18, 0]]
    assert scale.heads_scaled == 1
    assert scale.lost == 2
    assert halves[0, 0, 0, 0] == 2.0**12
    assert halves[0, 0, 1, 1] == 0 == halves[0, 1, 0, 0]


@pytest.mark.parametrize("largest", [65504.0, 65504.004, 65505.0, 131008.0, 131009.0, 3e38, 1e-30, 0.0])
def test_the_exponent_is_the_smallest_that_fits(largest):
    x = torch.zeros(1, 1, 1, 32)
    x[..., 3] = largest
    (exponent,) = exponents_of(x, "x").flatten().tolist()
    held = float(x[..., 3])
    assert held * 2.0**-exponent <= 65504
    assert exponent == 0 or held * 2.0 ** (1 - exponent) > 65504
    halves, _ = scaled_halves(x, np.array([[exponent]]))
    assert np.isfinite(halves).all()


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32, torch.float64])
@pytest.mark.parametrize("largest", [1.0, 8184.0, 8187.9, 8188.0, 8189.0, 8200.0, 65000.0, 65503.9, 65504.0])
def test_tensors_that_fit_binary16_are_converted_as_any_other(dtype, largest):
    """The fast path for them gives the same exponents, bits and counts as the general one."""
    generator = torch.Generator().manual_seed(3)
    x = torch.randn((2, 3, 5, 32), generator=generator, dtype=torch.float64) * 2.0 ** torch.arange(-33, -1)
    x[0, 1, 2, 3], x[1, 2, 0, 0], x[1, 1, 1, 1] = largest, 0.0, -0.0
    x = x.to(dtype).clamp(-65504, 65280 if dtype == torch.bfloat16 else 65504).transpose(1, 2)
    first = HeadScale("K")
    got = first.convert(x)
    exponents = exponents_of(x, "K", 65504 / 8)
    expected, lost = scaled_halves(x, exponents)
    np.testing.assert_array_equal(got.view(np.uint16), expected.view(np.uint16))
    np.testing.assert_array_equal(first.exponents, exponents)
    assert first.lost == lost
    assert lost > 0 or dtype == torch.float16
    later = HeadScale("K")
    later.exponents = np.zeros((2, 5), np.int64)
    plain, lost = scaled_halves(x, later.exponents)
    np.testing.assert_array_equal(later.convert(x).view(np.uint16), plain.view(np.uint16))
    assert later.lost == lost


def test_a_later_token_that_outgrows_its_head_is_refused():
    scale = HeadScale("V of layer 3")
    scale.convert(torch.full((2, 2, 5, 32), 20000.0))  # larger than an eighth of the range: already scaled
    later = torch.ones(2, 2, 1, 32)
    later[1, 0] = 1.6e5
    scale.convert(later)
    later[1, 0] = 2.7e5
    with pytest.raises(RangeError, match="V of layer 3, KV head 0, outgrew 262016"):
        scale.convert(later)
    later[1, 0] = torch.nan
    with pytest.raises(RangeError, match="Inf or NaN"):
        scale.convert(later)


def test_the_range_of_fp8():
    """56 leaves room for eight times as much; numbers below 2^-10 become zero and are counted."""
    x = torch.ones(1, 3, 2, 32)
    x[0, 1, 0, 0], x[0, 2, 0, 0] = 56.0, 2.0**-10
    x[0, 0, 0, :3] = torch.tensor([2.0**-9, 2.0**-10 * 1.01, 1.0624])
    scale = HeadScale("K", RowFormat.FP8)
    stored = scale.convert(x)
    assert scale.exponents.tolist() == [[0, 0, 0]]
    assert stored[0, 0, 0, :3].tolist() == [2.0**-9, 2.0**-9, 1.0]
    assert scale.lost == 1
    x[0, 1, 0, 0] = 56.5
    scale = HeadScale("K of layer 2", RowFormat.FP8)
    assert scale.convert(x)[0, 1, 0, 0] == 28
    assert scale.exponents.tolist() == [[0, 1, 0]]
    x[0, 0, 0, 0], x[0, 1, 0, 0] = 448.0, 896.0
    assert scale.convert(x)[0, :2, 0, 0].tolist() == [448, 448]
    x[0, 1, 0, 0] = 897.0
    with pytest.raises(RangeError, match="K of layer 2, KV head 1, outgrew 896"):
        scale.convert(x)
    x[0, 1, 0, 0] = torch.nan
    with pytest.raises(RangeError, match="Inf or NaN"):
        HeadScale("K", RowFormat.FP8).convert(x)


def test_a_refused_call_changes_nothing(target):
    """A step with values out of range is undone. The sequence continues with another token."""
    model, ids = random_model(CONFIGS["llama"]), prompts(1, 20)
    embed = model.model.embed_tokens.weight
    with torch.no_grad(), attach(model, target, spill=1) as drive:
        cache = drive.cache()
        model(ids, past_key_values=cache)
        kept = embed[7].clone()
        embed[7] = torch.nan
        with pytest.raises(RangeError, match="layer 0"):
            model(torch.tensor([[7]]), past_key_values=cache)
        embed[7] = kept
        assert cache.get_seq_length() == 20
        ours = model(torch.tensor([[8]]), past_key_values=cache).logits
        stock = model(torch.cat([ids, torch.tensor([[8]])], dim=1), use_cache=False).logits[:, -1:]
    torch.testing.assert_close(ours, stock, rtol=0, atol=0.01 * float(stock.std()))
