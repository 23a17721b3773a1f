"""Pending tokens change no bit of the result, and go to the drive as whole pages."""

import itertools

import numpy as np
import pytest
import torch
from small_models import prompts

import golden
from kvdrive.errors import InputError
from kvdrive.kvcache.pending import PendingTokens, Scorer
from kvdrive.plugins.transformers import attach


def decode(model, target, steps=20, **options):
    """Logits of `steps` decode steps of a padded batch, and the cache's transfer counts."""
    ids, nexts = prompts(2, 30), prompts(2, steps, seed=3)
    mask = torch.ones_like(ids)
    mask[0, :7] = 0
    with attach(model, target, **options) as drive, torch.no_grad():
        cache = drive.cache()
        logits = [model(ids, attention_mask=mask, past_key_values=cache).logits[:, -1:]]
        for i in range(steps):
            mask = torch.cat([mask, mask.new_ones(2, 1)], dim=1)
            logits.append(model(nexts[:, i : i + 1], attention_mask=mask, past_key_values=cache).logits)
        cache.batch.synchronize()
        return torch.cat(logits, dim=1), cache.batch.statistics.transfers()


def test_every_spill_interval_gives_the_same_bits(target, llama):
    written_at_once, stats = decode(llama, target, spill=1)
    bytes_per_token = stats.bytes_sent // 50
    for spill in (2, 7, 16, 64):
        before = target.stats().commands
        logits, stats = decode(llama, target, spill=spill)
        assert torch.equal(logits, written_at_once)
        assert stats.bytes_sent == max(30, 50 // spill * spill) * bytes_per_token
        appends = target.stats().commands - before
        assert spill == 2 or appends < 2 * 4 * 20 * 2 + 4 * 20  # fewer than with an append of K and V in every step


def test_a_long_turn_is_written_at_once(target, llama):
    """Calls of one token, of more than the spill interval, and of fewer give the same result as one call."""
    ids = prompts(2, 60)
    with torch.no_grad():
        stock = llama(ids).logits
        with attach(llama, target, spill=8) as drive:
            cache = drive.cache()
            cuts = [0, 20, 21, 22, 40, 45, 52, 60]
            parts = [
                llama(ids[:, first:last], past_key_values=cache).logits for first, last in itertools.pairwise(cuts)
            ]
    torch.testing.assert_close(torch.cat(parts, dim=1), stock, rtol=0, atol=0.01 * float(stock.std()))


@pytest.mark.parametrize("crop", [1, 3, 5, 12])
def test_cropping_into_pending_tokens_and_behind_them(target, llama, crop):
    ids = prompts(1, 40)
    with attach(llama, target, spill=8) as drive, torch.no_grad():
        cache = drive.cache()
        llama(ids[:, :30], past_key_values=cache)
        for i in range(30, 36):
            llama(ids[:, i : i + 1], past_key_values=cache)  # 32 on the drive, 4 pending
        cache.crop(-crop)
        assert cache.get_seq_length() == 36 - crop
        parts = [llama(ids[:, i : i + 1], past_key_values=cache).logits for i in range(36 - crop, 40)]
        stock = llama(ids, use_cache=False).logits[:, 36 - crop :]
    torch.testing.assert_close(torch.cat(parts, dim=1), stock, rtol=0, atol=0.01 * float(stock.std()))


@pytest.mark.parametrize("spill", [0, 65])
def test_impossible_intervals_are_refused(target, llama, spill):
    with pytest.raises(InputError, match=f"spill interval {spill} is outside 1 to 64"):
        attach(llama, target, spill=spill)


@pytest.mark.parametrize("scale", [None, 40.0, 1e30])
def test_host_scores_are_the_drives_scores(scale):
    """A job with all tokens in memory equals one with some inline, on values whose dot products nearly cancel."""
    rng = np.random.default_rng(1)
    q, k = rng.standard_normal((2, 4, 64)).astype(np.float16), rng.standard_normal((2, 19, 64)).astype(np.float16)
    k[:, 3] = np.float16(6e4)
    k[:, 4, ::2], k[:, 4, 1::2] = 2**-24, -(2**-24)
    v = rng.standard_normal((2, 19, 64)).astype(np.float16)
    pattern = golden.scale_bits(scale, 64)
    scores = Scorer().scores(q, k[:, 9:], pattern)
    for head in range(2):
        whole = golden.attention(q[head], k[head], v[head], scale_log2e=pattern)
        split = golden.attention(
            q[head], k[head, :9], v[head, :9], scale_log2e=pattern, inline_scores=scores[head], inline_v=v[head, 9:]
        )
        np.testing.assert_array_equal(whole.out.view(np.uint16), split.out.view(np.uint16))
        np.testing.assert_array_equal(whole.sum, split.sum)


def test_the_oldest_pending_tokens_go_first():
    rows = np.arange(2 * 3 * 9 * 32).reshape(2, 3, 9, 32).astype(np.float16)
    pending = PendingTokens(2, 3, 9, 32)
    for token in range(9):
        pending.add(rows[:, :, token : token + 1], -rows[:, :, token : token + 1])
    k, v = pending.take(4)
    np.testing.assert_array_equal(k, rows[:, :, :4])
    np.testing.assert_array_equal(v, -rows[:, :, :4])
    np.testing.assert_array_equal(pending.k, rows[:, :, 4:])
    pending.rearrange([1, 0, 1])
    np.testing.assert_array_equal(pending.v, -rows[[1, 0, 1]][:, :, 4:])
