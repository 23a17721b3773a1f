# SPDX-License-Identifier: Apache-2.0
"""Later calls of several tokens: tokens that share a command get the same bits as with separate commands."""

import itertools
from fractions import Fraction

import pytest
import torch
from small_models import prompts

from kvdrive import abi
from kvdrive.errors import UnsupportedError
from kvdrive.kvcache import asking, queries
from kvdrive.kvcache.calls import LayerCall
from kvdrive.kvcache.seen import HIDDEN, LOWEST_MAX, blocks, seen_by
from kvdrive.plugins.transformers import attach
from kvdrive.policies.local import Local

CUTS = (0, 20, 21, 28, 40, 43, 60)


def one_by_one(new_tokens, group, together):
    return blocks(new_tokens, group, together=False)


def turns(model, target, *, padded, **options):
    """Logits of the calls between CUTS, and how many attention jobs the drive ran."""
    ids = prompts(2, CUTS[-1])
    mask = torch.ones_like(ids)
    if padded:
        mask[0, :7] = 0
    with attach(model, target, **options) as drive, torch.no_grad():
        cache, before = drive.cache(), target.stats().attention_jobs
        logits = [
            model(ids[:, first:last], attention_mask=mask[:, :last], past_key_values=cache).logits
            for first, last in itertools.pairwise(CUTS)
        ]
        return torch.cat(logits, dim=1), target.stats().attention_jobs - before


@pytest.mark.parametrize("padded", [False, True])
@pytest.mark.parametrize("spill", [1, 8, 64])
def test_tokens_that_ask_together_get_their_own_bits(target, llama, monkeypatch, spill, padded):
    together, few = turns(llama, target, spill=spill, padded=padded)
    monkeypatch.setattr(queries, "blocks", one_by_one)
    alone, many = turns(llama, target, spill=spill, padded=padded)
    assert torch.equal(together, alone)
    assert few < many


def test_a_policy_that_looks_at_the_query_is_asked_for_each_token(target, llama, monkeypatch):
    found, jobs = turns(llama, target, attention=Local(Fraction(1, 2)), padded=False)
    monkeypatch.setattr(queries, "blocks", one_by_one)
    again, as_many = turns(llama, target, attention=Local(Fraction(1, 2)), padded=False)
    assert torch.equal(found, again)
    assert jobs == as_many


def test_scores_so_low_that_hidden_tokens_would_count_are_asked_one_by_one(target, llama, monkeypatch):
    class Counted(asking.HiddenCountsError):
        raised = 0

        def __init__(self):
            Counted.raised += 1

    monkeypatch.setattr(asking, "HiddenCountsError", Counted)
    heads, kv_heads = llama.config.num_attention_heads, llama.config.num_key_value_heads
    head_dim = llama.config.hidden_size // heads
    ones = lambda n: torch.ones(1, kv_heads, n, head_dim)  # noqa: E731
    with attach(llama, target, spill=64) as drive:
        cache = drive.cache()
        held = cache.layers[0]
        held.update(ones(2), 4 * ones(2))
        handle, _ = held.update(ones(3), torch.arange(3.0)[None, None, :, None] * ones(3))
        q = torch.ones(1, heads, 3, head_dim)
        low = held.attend(LayerCall(handle, q, None, -1e9))  # every score is the lowest possible
        assert Counted.raised == 1
        held.attend(LayerCall(handle, q, None, 1.0))
        assert Counted.raised == 1
    for token in range(3):
        seen = [4.0, 4.0, *range(token + 1)]
        assert low[0, token].numpy() == pytest.approx(sum(seen) / len(seen), rel=1e-3)


def test_a_block_is_as_large_as_an_engine_takes():
    assert [list(part) for part in blocks(11, 2, together=True)] == [[*range(8)], [8, 9, 10]]
    assert [len(part) for part in blocks(19, 1, together=True)] == [8, 8, 3]
    assert [len(part) for part in blocks(7, 5, together=True)] == [3, 3, 1]
    assert [len(part) for part in blocks(8, 3, together=True)] == [8]
    for group in (1, 2, 3, 4, 5, 7, 8, 12, 16, 64, 128):
        parts = list(blocks(9, group, together=True))
        assert [token for part in parts for token in part] == [*range(9)]
        assert all(len(part) * group in abi.COMMAND_GROUPS for part in parts)


def test_what_a_block_sees():
    (whole,) = seen_by(None, 0, range(2, 4), 10, 6)
    part, seen = whole
    assert (part, seen.stored, seen.valid) == (range(2, 4), 6, None)
    assert seen.inline.tolist() == [*range(8)]
    assert seen.hidden.tolist() == [[False] * 7 + [True], [False] * 8]
    (whole,) = seen_by(None, 0, range(2, 4), 10, 20)  # all on the drive; the second query's token is inline
    assert (whole[1].stored, whole[1].inline.tolist(), whole[1].hidden.tolist()) == (13, [0], [[True], [False]])
    window = torch.ones(1, 1, 2, 12, dtype=torch.bool).tril(10)
    window[0, 0, 1, 0] = False  # a moving window: the two tokens see different tokens on the drive
    assert [part for part, _ in seen_by(window, 0, range(2), 10, 10)] == [range(1), range(1, 2)]
    with pytest.raises(UnsupportedError, match="causal"):
        list(seen_by(torch.ones(1, 1, 2, 12, dtype=torch.bool), 0, range(2), 10, 10))


@pytest.mark.parametrize("stored", [0, 6, 10, 13, 20])
def test_one_token_without_a_mask_sees_what_a_mask_of_ones_shows(stored):
    ((part, seen),) = seen_by(None, 0, range(2, 3), 10, stored)
    ((_, masked),) = seen_by(torch.ones(1, 1, 3, 13, dtype=torch.bool), 0, range(2, 3), 10, stored)
    assert part == range(2, 3)
    assert (seen.stored, seen.valid, seen.hidden) == (masked.stored, masked.valid, masked.hidden)
    assert seen.inline.tolist() == masked.inline.tolist()


def test_a_hidden_score_weighs_nothing_under_the_lowest_maximum():
    difference = (HIDDEN >> abi.SCORE_FRACTION_BITS) - LOWEST_MAX
    assert 2.0**difference < 2.0 ** -(abi.P_FRACTION_BITS + 1) <= 2.0 ** (difference + 1)
