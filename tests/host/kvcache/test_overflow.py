"""Tokens leave when the positions are used up: the rest against plain torch, and who is refused."""

from fractions import Fraction

import numpy as np
import pytest
import torch
from pairs import some_quick
from small_models import CONFIGS, prompts, random_model
from transformers import DynamicCache, LlamaConfig

from kvdrive import abi
from kvdrive.errors import InputError, UnsupportedError
from kvdrive.generation.generate import greedy
from kvdrive.kvcache.budget import MemoryOptions
from kvdrive.kvcache.overflow import Overflow, Removal
from kvdrive.kvcache.session import OWN_LAYERS
from kvdrive.nvme.errors import CommandError
from kvdrive.nvme.wire import KvRead
from kvdrive.plugins.transformers import attach
from kvdrive.targets.emulator import Emulator

GROUP, CONTEXT = 32, 128  # tokens of 64 dimensions in a group; fewer than the model has positions
PROMPT = prompts(1, 100)
NEW = 100  # more than one removal
TRIM = {"overflow": "trim", "context": CONTEXT}


@pytest.fixture(scope="module")
def model():
    return random_model(CONFIGS["qwen3"])


def cut(model, cache, ids, tokens, removed):
    """The cache without `tokens` tokens behind the first group, which moves to the positions from `removed` on."""
    rest, first = DynamicCache(), DynamicCache()
    with torch.no_grad():
        model(ids[:, :GROUP], position_ids=torch.arange(removed, removed + GROUP)[None], past_key_values=first)
    for number, (layer, moved) in enumerate(zip(cache.layers, first.layers, strict=True)):
        k = torch.cat([moved.keys, layer.keys[:, :, GROUP + tokens :]], 2)
        rest.update(k, torch.cat([moved.values, layer.values[:, :, GROUP + tokens :]], 2), number)
    return rest


def expected(model, ids, new_tokens, context=CONTEXT, ratio=0.5):
    """Greedy tokens by stock attention over K and V that are cut in the same places; and the places."""
    cache, given, position, removals = DynamicCache(), ids, 0, []
    for _ in range(new_tokens):
        held = cache.get_seq_length()
        if held + given.shape[1] > context:
            removals.append(Removal(position, -(-int(held * ratio) // GROUP) * GROUP))
            cache = cut(model, cache, ids, removals[-1].tokens, sum(one.tokens for one in removals))
        positions = torch.arange(position, position + given.shape[1])[None]
        with torch.no_grad():
            logits = model(given, past_key_values=cache, position_ids=positions).logits[:, -1]
        position += given.shape[1]
        given = logits.argmax(-1, keepdim=True)
        ids = torch.cat([ids, given], dim=1)
    return ids, removals


@pytest.mark.parametrize(
    ("count", "spill", "ratio"), some_quick([(1, 16, 0.5), (2, 1, 0.25), (1, 64, 0.5)], [(2, 1, 0.25)])
)
def test_text_continues_as_plain_torch_over_what_is_left(model, drives, count, spill, ratio):
    wanted, removals = expected(model, PROMPT, NEW, ratio=ratio)
    with attach(model, drives[:count], spill=spill, overflow_ratio=ratio, **TRIM) as attached:
        cache = attached.cache()
        assert torch.equal(greedy(model, PROMPT, NEW, past_key_values=cache), wanted)
        assert cache.batch.removals == removals
        assert len(removals) > 1
        assert cache.batch.removed == sum(removal.tokens for removal in removals)
        assert cache.get_seq_length() == 99 + NEW
        assert torch.equal(cache.batch.token_ids(), wanted[:, :-1])
        assert cache.batch.drive_layers[0].tokens <= CONTEXT


def test_calls_of_several_tokens_get_the_right_masks(model, drives):
    turns = [prompts(1, tokens, seed=tokens) for tokens in (100, 40, 7, 40)]
    reference, position, found = DynamicCache(), 0, []
    with attach(model, drives[0], **TRIM) as attached, torch.no_grad():
        cache = attached.cache()
        for ids in turns:
            found.append(model(ids, past_key_values=cache).logits)
        removals = {removal.at: removal.tokens for removal in cache.batch.removals}
    assert len(removals) == 2
    removed = 0
    for ids, logits in zip(turns, found, strict=True):
        if position in removals:
            removed += removals[position]
            reference = cut(model, reference, turns[0], removals[position], removed)
        places = torch.arange(position, position + ids.shape[1])[None]
        with torch.no_grad():
            torch.testing.assert_close(
                logits, model(ids, past_key_values=reference, position_ids=places).logits, atol=2e-2, rtol=0
            )
        position += ids.shape[1]


def test_sparf_continues_with_the_same_bits_on_one_drive_and_on_two(model, drives):
    found = []
    for some in (drives[:1], drives):
        with attach(model, some, "sparf", Fraction(1, 2), **TRIM) as attached:
            cache = attached.cache()
            found.append(greedy(model, PROMPT, 100, past_key_values=cache))
            assert len(cache.batch.removals) > 1
    assert torch.equal(*found)


def test_rows_of_a_batch_lose_the_same_tokens(model, drives):
    ids = torch.cat([PROMPT, prompts(1, 100, seed=5)])
    with attach(model, drives[0], **TRIM):
        found = greedy(model, ids, 45)  # the first removal is at the 29th
    for row in range(2):
        assert torch.equal(found[row : row + 1], expected(model, ids[row : row + 1], 45)[0])


def test_padded_rows_cannot_lose_tokens(model, drives):
    mask = torch.ones_like(PROMPT)
    mask[0, :3] = 0
    with attach(model, drives[0], **TRIM), pytest.raises(UnsupportedError, match="different lengths"):
        greedy(model, PROMPT, 60, mask)


def test_without_trim_the_call_fails_and_the_cache_stays_as_it_was(model, drives):
    with attach(model, drives[0], context=CONTEXT) as attached, torch.no_grad():
        cache = attached.cache()
        model(PROMPT, past_key_values=cache)
        with pytest.raises(InputError, match="exceed the 128 positions"):
            model(prompts(1, 29), past_key_values=cache)
        assert cache.get_seq_length() == 100
        model(prompts(1, 28), past_key_values=cache)
    with attach(model, drives[0]), pytest.raises(InputError, match="exceed the 256 positions"):
        greedy(model, PROMPT, 200)


def test_a_call_that_never_fits_is_refused(model, drives):
    with attach(model, drives[0], **TRIM) as attached, torch.no_grad():
        with pytest.raises(InputError, match="do not fit"):
            model(prompts(1, 129), past_key_values=attached.cache())
        cache = attached.cache()
        model(PROMPT, past_key_values=cache)
        with pytest.raises(InputError, match="do not fit"):
            model(prompts(1, 100), past_key_values=cache)
        assert cache.batch.removals == []


def test_a_cache_goes_back_only_to_tokens_that_it_has(model, drives):
    with attach(model, drives[0], **TRIM) as attached, torch.no_grad():
        cache = attached.cache()
        model(PROMPT, past_key_values=cache)
        model(prompts(1, 40, seed=3), past_key_values=cache)  # 32 tokens leave, 108 are left
        cache.crop(-30)
        assert (cache.get_seq_length(), cache.batch.drive_layers[0].tokens) == (110, 78)
        with pytest.raises(UnsupportedError, match="cannot go back"):
            cache.crop(-50)
        again = model(prompts(1, 30, seed=4), past_key_values=cache).logits
        assert torch.isfinite(again).all()
        cache.crop(-140)
        assert (cache.get_seq_length(), cache.batch.removed, cache.batch.removals) == (0, 0, [])


def test_lost_data_is_computed_again_with_the_same_removals(model, drives):
    wanted = expected(model, PROMPT, 120)[0]
    with attach(model, drives[0], on_failure="recompute", **TRIM) as attached:
        cache = attached.cache()
        greedy(model, PROMPT, 60, past_key_values=cache)
        drives[0]._drive.inject("read_uncorrectable")
        assert torch.equal(greedy(model, wanted[:, :160], 60, past_key_values=cache), wanted)
        assert len(cache.batch.removals) > 1


def test_a_removal_that_fails_loses_the_cache_and_nothing_else(model, drives):
    with attach(model, drives[0], **TRIM) as attached, torch.no_grad():
        cache = attached.cache()
        model(PROMPT, past_key_values=cache)
        one = cache.batch.sequences[0].slices[0].session
        one.number += 1000  # no such session
        with pytest.raises(CommandError):
            model(prompts(1, 40), past_key_values=cache)
        assert cache.batch.removals == []
        one.number -= 1000


def test_a_saved_cache_knows_its_removals(model, drives, tmp_path):
    wanted, removals = expected(model, PROMPT, 120)
    with attach(model, drives[0], **TRIM) as attached:
        cache = attached.cache()
        greedy(model, PROMPT, 60, past_key_values=cache)
        attached.save(cache, tmp_path / "kept.json")
    with attach(model, drives[0], **TRIM) as attached:
        cache = attached.reopen(tmp_path / "kept.json")
        assert torch.equal(greedy(model, wanted[:, :160], 60, past_key_values=cache), wanted)
        assert cache.batch.removals == removals


class Counted(Emulator):
    """A drive that counts the tokens that are read of each layer, and the first one of each read."""

    def __init__(self, *arguments, **options):
        super().__init__(*arguments, **options)
        self.reads = []

    def submit_many(self, commands):
        for one in commands:
            if one.opcode == abi.Opcode.KV_READ:
                fields = np.frombuffer(one.entry, KvRead)[0]
                if fields["layer"] < OWN_LAYERS:
                    self.reads.append((int(fields["layer"]), int(fields["first_token"]), int(fields["tokens"])))
        return super().submit_many(commands)


FORMATS = ["f16", "int8", "int4", "fp8"]


def in_memory(model, drives, **options):
    return attach(model, drives, active="memory", **TRIM | options)


@pytest.mark.parametrize("kv_format", some_quick(FORMATS, ["f16", "int4"]))
@pytest.mark.parametrize("count", [1, pytest.param(2, marks=pytest.mark.slow)])
def test_in_memory_the_text_continues_as_where_the_drives_attend(model, drives, count, kv_format):
    """The same tokens leave at the same places, and logits differ by what the drive's arithmetic rounds. The first call
    computes with rounded numbers in memory, so it has one token here."""
    options = {"context": 512, "kv_format": kv_format}  # groups of 4 bits have more tokens
    texts, logits, states = [], [], []
    for active in ("drive", "memory"):
        with attach(model, drives[:count], active=active, **TRIM | options) as attached, torch.no_grad():
            cache, found = attached.cache(), []
            model(prompts(1, 400)[:, :1], past_key_values=cache)
            ids = prompts(1, 400)
            for step in range(250):
                found.append(model(ids[:, cache.get_seq_length() :], past_key_values=cache).logits[:, -1])
                next_token = found[-1].argmax(-1, keepdim=True) if active == "drive" else texts[0][:, [400 + step]]
                ids = torch.cat([ids, next_token], dim=1)
            texts.append(ids)
            logits.append(torch.cat(found))
            states.append((cache.batch.removals, cache.get_seq_length(), cache.batch.drive_layers[0].tokens))
            assert torch.equal(cache.batch.token_ids(), ids[:, :-1])
            if active == "memory":
                assert {view.count for view in cache.batch.rows} == {states[1][2]}
    torch.testing.assert_close(logits[1], logits[0], atol=2e-2, rtol=0)
    assert states[0] == states[1]
    assert states[0][0]


def test_in_memory_calls_of_several_tokens_rows_and_crops_go_on(model, drives):
    ids = torch.cat([PROMPT, prompts(1, 100, seed=5)])
    more = prompts(2, 40, seed=6)
    wanted = []
    for options in ({}, {"active": "memory"}):
        with attach(model, drives[0], **TRIM | options) as attached, torch.no_grad():
            cache = attached.cache()
            model(ids, past_key_values=cache)
            found = [model(more, past_key_values=cache).logits]
            cache.crop(-20)
            assert (cache.get_seq_length(), cache.batch.removed) == (120, 32)
            found.append(model(more, past_key_values=cache).logits)
            cache.reorder_cache(torch.tensor([1, 0]))
            found.append(model(more[:, :5], past_key_values=cache).logits)
            with pytest.raises(UnsupportedError, match="cannot go back"):
                cache.crop(-(cache.get_seq_length() - 40))
            wanted.append(found)
    for of_drive, of_memory in zip(*wanted, strict=True):
        torch.testing.assert_close(of_memory, of_drive, atol=2e-2, rtol=0)


def test_in_memory_no_more_room_is_claimed_than_the_context_needs(model, drives):
    shape = model.config
    per_token = 2 * shape.num_hidden_layers * shape.num_key_value_heads * shape.head_dim * 4  # K and V, float32
    room = 256 * per_token
    wanted = expected(model, PROMPT, NEW)[0]
    with in_memory(model, drives[0], memory=MemoryOptions(room)) as attached:
        cache = attached.cache(1000)
        assert torch.equal(greedy(model, PROMPT, NEW, past_key_values=cache), wanted)
        assert drives[0].stats().attention_jobs == 0


def test_in_memory_lost_tokens_are_computed_again_with_the_same_removals(model, drives):
    wanted = expected(model, PROMPT, 120)[0]
    with in_memory(model, drives[:2], on_failure="recompute") as attached:
        cache = attached.cache()
        greedy(model, PROMPT, 60, past_key_values=cache)
        drives[1].close()
        assert torch.equal(greedy(model, wanted[:, :160], 60, past_key_values=cache), wanted)
        assert attached.recoveries
        assert len(cache.batch.removals) > 1


@pytest.mark.parametrize("kv_format", some_quick(FORMATS, ["f16", "int8"]))
def test_in_memory_only_what_is_left_is_loaded(model, tmp_path, kv_format):
    """Of a saved cache, layer by layer: neither tokens that were removed nor the first group, which is computed."""
    ids, context = prompts(1, 400), {"context": 512, "kv_format": kv_format}
    with Counted(tmp_path / "drive.kv", "fast", capacity_bytes=1 << 26) as drive:
        with in_memory(model, drive, **context) as attached:
            cache = attached.cache()
            wanted = greedy(model, ids, 300, past_key_values=cache)
        with in_memory(model, drive, **context) as attached:
            cache = attached.cache()
            before = greedy(model, ids, 200, past_key_values=cache)
            removals = cache.batch.removals
            attached.save(cache, tmp_path / "saved")
        drive.reads.clear()
        with in_memory(model, drive, **context) as attached:
            cache = attached.reopen(tmp_path / "saved")
            assert torch.equal(greedy(model, before, 100, past_key_values=cache), wanted)
            assert cache.batch.removals[: len(removals)] == removals
            group = cache.batch.part.group
        held = 599 - sum(one.tokens for one in removals)
        loaded = [one for one in drive.reads if one[1]]
        assert [(layer, first) for layer, first, _ in loaded] == [(layer, group) for layer in (0, 0, 1, 1)]
        assert {tokens for *_, tokens in loaded} == {held - group}
        assert drive.stats().attention_jobs <= 3  # labels


def test_in_memory_tokens_that_leave_before_they_were_loaded_are_not(model, tmp_path):
    """The call behind a loaded history exceeds the context: of later layers only what is left is read."""
    with Counted(tmp_path / "drive.kv", "fast", capacity_bytes=1 << 26) as drive:
        with in_memory(model, drive) as attached, torch.no_grad():
            model(PROMPT, past_key_values=(cache := attached.cache()))
            attached.save(cache, tmp_path / "saved")
        drive.reads.clear()
        with in_memory(model, drive, memory=MemoryOptions(read_buffer=0)) as attached:
            cache = attached.reopen(tmp_path / "saved")
            turn = torch.cat([PROMPT, prompts(1, 60, seed=8)], dim=1)
            found = greedy(model, turn, 30, past_key_values=cache)
            assert cache.batch.removals[0] == Removal(100, 32)
            assert [one for one in drive.reads if one[0]] == [(1, GROUP, 36), (1, GROUP, 36)]
        with attach(model, drive, **TRIM) as attached, torch.no_grad():
            model(PROMPT, past_key_values=(cache := attached.cache()))
            assert torch.equal(greedy(model, turn, 30, past_key_values=cache), found)


def test_the_least_context_is_named(model, drives):
    for active in ("drive", "memory"):
        with attach(model, drives[0], **TRIM | {"active": active}) as attached, torch.no_grad():
            cache = attached.cache()
            model(PROMPT, past_key_values=cache)
            with pytest.raises(InputError, match="raise the context to 168 at least"):
                model(prompts(1, 100), past_key_values=cache)
            with pytest.raises(InputError, match="raise the context to 129 at least"):
                model(prompts(1, 129), past_key_values=attached.cache())
        with attach(model, drives[0], **TRIM | {"active": active, "context": 168}) as attached, torch.no_grad():
            cache = attached.cache()
            model(PROMPT, past_key_values=cache)
            model(prompts(1, 100), past_key_values=cache)
        with (
            attach(model, drives[0], active=active, overflow="trim", context=40) as attached,
            pytest.raises(InputError, match="raise the context to 96 at least"),
        ):
            greedy(model, PROMPT[:, :38], 10)
        with attach(model, drives[0], active=active, overflow="trim", context=96):
            greedy(model, PROMPT[:, :38], 100)


@pytest.mark.parametrize(
    ("config", "reason"),
    [
        (CONFIGS["opt"], "not rotary"),
        (
            LlamaConfig(**CONFIGS["llama"].to_dict() | {"rope_parameters": {"rope_type": "dynamic", "factor": 2.0}}),
            "dynamic",
        ),
        (CONFIGS["mistral"].__class__(**CONFIGS["mistral"].to_dict() | {"sliding_window": 64}), "stay in memory"),
    ],
    ids=["learned", "dynamic", "window"],
)
def test_models_whose_rest_would_be_wrong_are_refused(config, reason, drives):
    with pytest.raises(UnsupportedError, match=reason):
        attach(random_model(config), drives[0], overflow="trim")


@pytest.mark.parametrize(
    "fields", [{"overflow": "forget"}, {"overflow_ratio": 0.0}, {"overflow_ratio": 1.0}, {"context": -1}]
)
def test_wrong_options_are_refused(fields):
    with pytest.raises(InputError):
        Overflow(**fields)


def test_whole_groups_are_removed_and_enough_of_them():
    trim = Overflow("trim", 0.5)
    assert trim.tokens_to_remove(128, 1, 128, 32) == 64
    assert trim.tokens_to_remove(256, 160, 256, 32) == 160  # more than half: the new tokens need it
    assert Overflow("trim", 0.1).tokens_to_remove(128, 1, 128, 32) == 32
    assert Overflow("trim", 0.99).tokens_to_remove(128, 1, 128, 32) == 64  # the first and the last whole group stay
