"""Beam search and other operations that move rows of a batch fork the sequences on the drive and copy nothing."""

import pytest
import torch
from small_models import CONFIGS, SMALL, prompts, random_model
from transformers import MistralConfig

from kvdrive.plugins.transformers import attach


def beams(model, ids, **options):
    mask = torch.ones_like(ids)
    mask[0, :5] = 0
    return model.generate(ids, attention_mask=mask, num_beams=3, do_sample=False, max_new_tokens=20, **options)


@pytest.mark.parametrize("spill", [1, 6])
def test_beam_search_equals_sdpa(target, llama, spill):
    ids = prompts(2, 30)
    stock = beams(llama, ids)
    with attach(llama, target, spill=spill):
        assert torch.equal(beams(llama, ids), stock)
    assert target._drive.sessions() == []


def test_beams_share_their_pages(target, llama):
    """Another beam forks the 16 pages of a row and writes none of them again."""
    with attach(llama, target) as drive, torch.no_grad():
        cache = drive.cache()
        llama(prompts(1, 256), past_key_values=cache)
        cache.batch.synchronize()
        written = target._drive.flash_stats()["groups_live"]
        assert written > 0
        cache.reorder_cache(torch.tensor([0, 0, 0, 0]))
        assert target._drive.flash_stats()["groups_live"] == written
        assert len(target._drive.sessions()) == 4


@pytest.mark.parametrize(
    ("move", "rows"),
    [
        (lambda cache: cache.reorder_cache(torch.tensor([2, 0, 2])), [2, 0, 2]),
        (lambda cache: cache.batch_repeat_interleave(2), [0, 0, 1, 1, 2, 2]),
        (lambda cache: cache.batch_select_indices(torch.tensor([1])), [1]),
        (lambda cache: cache.batch_select_indices(torch.tensor([True, False, True])), [0, 2]),
    ],
    ids=["reorder", "repeat", "select", "select-mask"],
)
@pytest.mark.parametrize("config", ["llama", "sliding"])
def test_moved_rows_continue_where_they_were(target, config, move, rows):
    configs = CONFIGS | {"sliding": MistralConfig(**SMALL, num_key_value_heads=2, sliding_window=8)}
    model, ids, nexts = random_model(configs[config]), prompts(3, 20), prompts(6, 4, seed=4)
    with torch.no_grad():
        stock = model(torch.cat([ids[rows], nexts[: len(rows)]], dim=1)).logits[:, 20:]
        with attach(model, target, spill=3) as drive:
            cache = drive.cache()
            model(ids[:, :18], past_key_values=cache)
            model(ids[:, 18:19], past_key_values=cache)  # some tokens are pending
            model(ids[:, 19:], past_key_values=cache)
            move(cache)
            steps = [model(nexts[: len(rows), i : i + 1], past_key_values=cache).logits for i in range(4)]
            assert torch.equal(cache.batch.token_ids(), torch.cat([ids[rows], nexts[: len(rows)]], dim=1))
    torch.testing.assert_close(torch.cat(steps, dim=1), stock, rtol=0, atol=0.01 * float(stock.std()))
