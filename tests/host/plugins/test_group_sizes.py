"""Any number of query heads per KV head that a command takes, and every head dimension: logits of transformers."""

from fractions import Fraction

import pytest
import torch
from pairs import some_quick
from small_models import SMALL, prompts, random_model
from transformers import LlamaConfig

from kvdrive import abi
from kvdrive.errors import UnsupportedError
from kvdrive.plugins.transformers import attach
from kvdrive.targets.emulator import Emulator

PROMPT, NEW = 30, 5


def model_of(group, head_dim=32, kv_heads=1):
    """A Llama with `group` query heads for each KV head."""
    heads = group * kv_heads
    sizes = {"hidden_size": heads * -(-128 // heads), "intermediate_size": 64, "initializer_range": 0.06}
    config = LlamaConfig(
        **SMALL | sizes | {"num_attention_heads": heads}, num_key_value_heads=kv_heads, head_dim=head_dim
    )
    return random_model(config)


def check(model, target, rows=1):
    """Compare logits of decode steps with transformers. They differ only by the rounding of K, V and q to binary16."""
    ids = prompts(rows, PROMPT + NEW)
    with torch.no_grad():
        stock = model(ids).logits[:, PROMPT:]
        with attach(model, target) as attached:
            cache = attached.cache()
            model(ids[:, :PROMPT], past_key_values=cache, use_cache=True)
            steps = [model(ids[:, i : i + 1], past_key_values=cache).logits for i in range(PROMPT, PROMPT + NEW)]
    difference = (torch.cat(steps, dim=1) - stock).abs().max()
    assert 0 < difference < 0.01 * stock.std()


@pytest.mark.parametrize("group", some_quick([*range(1, 17), 24, 64, 128], [1, 2, 3, 7, 8, 9, 16, 24, 128]))
def test_group_sizes(target, group):
    check(model_of(group), target)
    assert target.stats().attention_jobs > 0


@pytest.mark.parametrize("head_dim", some_quick([8, 24, 40, 72, 80, 112, 192, 256], [8, 40, 72, 112, 256]))
def test_head_dimensions(target, head_dim):
    check(model_of(3, head_dim, kv_heads=2), target, rows=2)


@pytest.mark.parametrize("group", [3, 6, 7, 16])
def test_compiled_kernels_say_the_same(tmp_path, group):
    with Emulator(tmp_path / "drive.kv", "hls", capacity_bytes=1 << 26) as drive:
        check(model_of(group), drive)


@pytest.mark.parametrize("group", [3, 7, 16])
def test_sparf_chooses_once_for_the_whole_group(tmp_path, group):
    """A group that takes several calls of the compiled kernels gives the bits of one call."""
    model, ids, found = model_of(group), prompts(1, 60), []
    for engine in ("fast", "hls"):
        with Emulator(tmp_path / f"{engine}.kv", engine, capacity_bytes=1 << 26) as drive, torch.no_grad():
            with attach(model, drive, "sparf", Fraction(1, 4)) as attached:
                cache = attached.cache()
                model(ids[:, :50], past_key_values=cache, use_cache=True)
                steps = [model(ids[:, i : i + 1], past_key_values=cache).logits for i in range(50, 60)]
            found.append(torch.cat(steps, dim=1))
    assert torch.equal(*found)


def test_tokens_of_a_later_turn_ask_together(target):
    """Eight tokens of three heads go into one command."""
    model, ids = model_of(3), prompts(1, 50)
    with torch.no_grad(), attach(model, target) as attached:
        logits, jobs = [], []
        for together in (True, False):
            cache = attached.cache()
            cache.batch.part.shared.asks_together = together
            model(ids[:, :30], past_key_values=cache, use_cache=True)
            before = target.stats().attention_jobs
            logits.append(model(ids[:, 30:], past_key_values=cache).logits)
            jobs.append(target.stats().attention_jobs - before)
    assert torch.equal(*logits)
    assert jobs == [3 * model.config.num_hidden_layers, 20 * model.config.num_hidden_layers]


def test_other_groups_are_refused_by_name(target):
    assert 17 not in abi.COMMAND_GROUPS
    with pytest.raises(UnsupportedError, match="17 query heads over 1 KV heads"):
        attach(model_of(17), target)
