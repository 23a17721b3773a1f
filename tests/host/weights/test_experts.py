"""Models whose experts stay on flash: the same tokens as in memory, whatever fits, and what is said when it fails."""

import shutil
from fractions import Fraction

import moe_models
import numpy as np
import pytest
import torch
from pairs import by_value
from rich.console import Console

from kvdrive.errors import InputError, TargetError
from kvdrive.plugins.transformers import attach
from kvdrive.weights.eviction import make_eviction
from kvdrive.weights.file import WeightsFile, aligned
from kvdrive.weights.making import make_file
from kvdrive.weights.opening import load
from kvdrive.weights.options import FlashOptions
from kvdrive.weights.slots import Slots

QUIET = Console(quiet=True)
DTYPES = {"float32": torch.float32, "bfloat16": torch.bfloat16}


@pytest.fixture(scope="module")
def converted(tmp_path_factory):
    """(family, stored precision) -> checkpoint folder and its file of weights."""
    made = {}

    def of(name, stored="float32"):
        if (name, stored) not in made:
            folder = moe_models.save(name, tmp_path_factory.mktemp(name), DTYPES[stored])
            made[name, stored] = folder, make_file(folder, folder / "w.kvw", "auto", QUIET).path
        return made[name, stored]

    return of


def opened(folder, path, memory=Fraction(1, 2), dtype="float32", **options):
    return load(str(folder), dtype, FlashOptions(path, memory, **options))


def least(folder, path, dtype="float32"):
    """The least memory that the model takes, in bytes."""
    checkpoint = opened(folder, path, Fraction(1), dtype)
    checkpoint.weights.close()
    return checkpoint.weights.need.minimum


def ids(rows, tokens, seed=3):
    return torch.randint(0, 256, (rows, tokens), generator=torch.Generator().manual_seed(seed))


def greedy(model, prompt, new_tokens=6):
    return model.generate(prompt, max_new_tokens=new_tokens, do_sample=False, eos_token_id=-1, pad_token_id=0)


def ready(slots, keys):
    """Wait until all of these experts are in memory."""
    while keys:
        there = slots.arrived(keys)
        assert there
        keys = [key for key in keys if key not in there]


@by_value(
    {
        "name": moe_models.CONFIGS,
        "stored, dtype": [("float32", "float32"), ("bfloat16", "float32"), ("bfloat16", "auto")],
    }
)
def test_tokens_equal_those_of_the_model_in_memory(name, stored, dtype, converted):
    folder, path = converted(name, stored)
    whole = moe_models.in_memory(folder, DTYPES[stored if dtype == "auto" else dtype])
    prompt = ids(2, 24)
    expected, logits = greedy(whole, prompt), whole(prompt).logits
    for memory in (least(folder, path, dtype), Fraction(9, 10)):
        checkpoint = opened(folder, path, memory, dtype)
        assert torch.equal(greedy(checkpoint.model, prompt), expected)
        if name != "gpt-oss":  # torch's sigmoid gives the last of several rows another last bit than a single one
            assert torch.equal(checkpoint.model(prompt).logits, logits)
        assert checkpoint.weights.slots.count < checkpoint.weights.need.experts or memory == Fraction(9, 10)
        checkpoint.weights.close()


@by_value({"cache": ["lfu", "lru", "prior"], "look_ahead": ["off", "on"]})
def test_no_policy_changes_a_token(cache, look_ahead, converted):
    folder, path = converted("qwen3-moe")
    expected = greedy(moe_models.in_memory(folder), ids(1, 6), 20)
    checkpoint = opened(folder, path, weights_cache=cache, look_ahead=look_ahead)
    assert torch.equal(greedy(checkpoint.model, ids(1, 6), 20), expected)
    report = checkpoint.weights.report()
    checkpoint.weights.close()
    assert (report["recall"] is None) == (look_ahead == "off")
    assert bool(report["read_ahead"]) == (look_ahead == "on")


def test_auto_reads_ahead_as_the_pace_says(converted, monkeypatch):
    folder, path = converted("qwen3-moe")
    expected = greedy(moe_models.in_memory(folder), ids(1, 6), 20)
    read = {}
    for pays in (True, False):
        monkeypatch.setattr("kvdrive.weights.payoff.Payoff.pays", lambda self, read_ns, pays=pays: pays)
        checkpoint = opened(folder, path)
        assert torch.equal(greedy(checkpoint.model, ids(1, 6), 20), expected)
        report = checkpoint.weights.report()
        checkpoint.weights.close()
        assert 0 < report["recall"] <= 1
        assert 0 <= report["read_ahead_precision"] <= 1
        read[pays] = report["read_ahead"]
    assert read[True] > 0
    assert read[False] == 0


def test_a_prefill_reads_each_expert_once(converted):
    folder, path = converted("olmoe")
    checkpoint = opened(folder, path, least(folder, path))
    weights = checkpoint.weights
    assert weights.slots.count == 4  # of 16 in each of 3 layers
    before = weights.file.counters()["bytes"]
    with torch.no_grad():
        checkpoint.model(ids(4, 60))  # 240 tokens use every expert
    weights.close()
    read = (weights.file.counters()["bytes"] - before) / weights.file.manifest.experts[0].stride
    assert 48 <= read <= 48 + 4 * 2  # guesses for the next layer may take as many as there are slots, twice


def test_with_room_for_all_experts_each_is_read_once(converted):
    folder, path = converted("mixtral")
    checkpoint = opened(folder, path, 1 << 30)
    greedy(checkpoint.model, ids(2, 30), 30)
    weights = checkpoint.weights
    weights.close()
    assert weights.slots.count == 24
    assert weights.slots.counters.misses + weights.slots.counters.ahead <= 24
    assert weights.slots.counters.hit_rate > 0.8


def test_recall_is_what_was_foreseen_of_what_was_used(converted):
    folder, path = converted("olmoe")
    checkpoint = opened(folder, path)
    ahead = checkpoint.weights.lookahead
    greedy(checkpoint.model, ids(1, 3), 5)
    recall = ahead.recall
    assert 0 < recall.found <= recall.used
    assert recall.guessed > 0
    before = recall.found, recall.used
    ahead._guess[1] = [3, 7, 5]
    ahead.routed(1, [5, 6, 7])
    assert (recall.found - before[0], recall.used - before[1]) == (2, 3)
    checkpoint.weights.close()


def test_the_counts_of_earlier_runs_stay(converted, tmp_path):
    folder, path = converted("olmoe")
    path = shutil.copy(path, tmp_path / "w.kvw")
    first = opened(folder, path, weights_cache="prior")
    greedy(first.model, ids(1, 6), 10)
    first.weights.close()
    uses = sum(first.weights._eviction.counts.values())
    assert uses > 0
    again = opened(folder, path, weights_cache="prior")
    assert sum(again.weights._eviction.counts.values()) == uses
    again.weights.close()


def test_counts_that_cannot_be_kept_end_no_text(converted, tmp_path, caplog):
    folder, path = converted("olmoe")
    (tmp_path / "w.kvw").symlink_to(path)
    (tmp_path / "w.kvw.counts.json").mkdir()
    checkpoint = opened(folder, tmp_path / "w.kvw", weights_cache="prior")
    greedy(checkpoint.model, ids(1, 6), 2)
    checkpoint.weights.close()
    assert "the uses of experts are not kept for the next run" in caplog.text


def test_wrong_guesses_do_not_push_out_what_is_used(converted):
    """Nobody waits for the read of a wrong guess, and its slot is free for the next one all the same."""
    folder, path = converted("mixtral")
    weights = opened(folder, path, Fraction(9, 10)).weights
    slots = Slots(weights.file, weights.file.manifest.experts, 6, make_eviction("lfu", path))
    for turn in range(8):
        for module in (0, 1):
            keys = [(module, 0), (module, 1)]
            slots.fetch(keys)
            if module == 0:
                slots.read_ahead([(1, expert + turn % 3 * 2) for expert in (2, 3)], keeping=keys)
            ready(slots, keys)
    assert slots.counters.misses == 4
    slots.close()
    weights.close()


def test_reads_of_wrong_guesses_are_withdrawn(converted):
    folder, path = converted("mixtral")
    weights = opened(folder, path, Fraction(9, 10)).weights
    slots = Slots(WeightsFile(path, depth=1), weights.file.manifest.experts, 6, make_eviction("lfu", path))
    for turn in range(500):
        module = turn % 3
        keys = [(module, 0), (module, 1)]
        slots.fetch(keys)
        slots.read_ahead([((module + 1) % 3, expert) for expert in (4, 5, 6)], keeping=keys)
        slots.fetch(keys)
        ready(slots, keys)
        for (_, expert), place in zip(keys, slots.places(keys), strict=True):
            expected = aligned(slots.stride)
            weights.file.read(weights.file.manifest.experts[module], expert, expected)
            assert np.array_equal(slots._slots[place], expected)
        assert sorted([*slots._slot_of.values(), *slots._free, *(slot for _, slot in slots._leaving)]) == list(range(6))
        if slots.counters.withdrawn >= 5:
            break
    assert slots.counters.withdrawn >= 5
    slots.close()
    assert sorted([*slots._free, *slots._slot_of.values()]) == list(range(6))
    weights.close()


def test_reads_that_an_error_left_behind_do_not_push_out_what_is_used(converted, tmp_path):
    folder, path = converted("mixtral")
    path = shutil.copy(path, tmp_path / "w.kvw")
    weights = opened(folder, path, Fraction(9, 10)).weights
    arrays = weights.file.manifest.experts
    with path.open("r+b") as file:
        file.seek(arrays[0].bundle(0))
        first = file.read(1)[0]
        file.seek(arrays[0].bundle(0))
        file.write(bytes([first ^ 1]))
    slots = Slots(weights.file, arrays, 2, make_eviction("lru", path))
    together = [(0, 0), (0, 1)]
    slots.fetch(together)
    with pytest.raises(TargetError, match="is damaged"):
        ready(slots, together)
    for _ in range(4):
        for key in ((0, 2), (0, 3)):
            slots.fetch([key])
            ready(slots, [key])
    assert slots.counters.misses == 2 + 2
    slots.close()
    weights.close()


@pytest.mark.parametrize("stored", ["float32", "bfloat16"])
@pytest.mark.parametrize("memory", [None, Fraction(9, 10)])
def test_experts_are_computed_in_the_order_in_which_they_come(stored, memory, converted, monkeypatch):
    """Each alone and the last one first: the logits have the same bits as with all experts in memory."""
    folder, path = converted("mixtral", stored)
    calls = []

    def last(slots, keys):
        calls.append(keys[-1])
        slots._settle(keys[-1])
        return [keys[-1]]

    monkeypatch.setattr(Slots, "arrived", last)
    memory = least(folder, path, "auto") if memory is None else memory
    with torch.no_grad():
        expected = moe_models.in_memory(folder, DTYPES[stored])(ids(2, 7)).logits
        checkpoint = opened(folder, path, memory, "auto")
        assert torch.equal(checkpoint.model(ids(2, 7)).logits, expected)
    uses = checkpoint.weights.slots.counters
    assert len(calls) == uses.hits + uses.ahead_hits + uses.misses
    checkpoint.weights.close()


def test_what_has_arrived_need_not_wait_for_the_others(converted):
    folder, path = converted("mixtral")
    weights = opened(folder, path, Fraction(9, 10)).weights
    slots = Slots(weights.file, weights.file.manifest.experts, 4, make_eviction("lfu", path))
    keys = [(0, 0), (0, 1), (0, 2)]
    slots.fetch(keys[:1])
    ready(slots, keys[:1])
    waited = weights.file.waited_ns
    weights.file.has_ended = lambda ticket: False  # as if no later read had ended
    slots.fetch(keys)
    assert slots.arrived(keys) == [(0, 0)]
    assert slots.arrived(keys[1:]) == [(0, 1)]  # waits for one of them
    assert weights.file.waited_ns > waited
    del weights.file.has_ended
    ready(slots, keys)
    assert slots.arrived(keys) == keys
    slots.close()
    weights.close()


def test_a_router_that_needs_more_than_the_hidden_states_is_not_asked_ahead(converted):
    folder, path = converted("minimax-m2")
    checkpoint = opened(folder, path)
    assert checkpoint.weights.lookahead is None
    checkpoint.weights.close()


def test_no_residual_stream_stays_in_memory(converted):
    folder, path = converted("olmoe")
    checkpoint = opened(folder, path)
    with torch.no_grad():
        checkpoint.model(ids(2, 40))
    assert not checkpoint.weights.lookahead._residual
    checkpoint.weights.close()


def test_attention_in_a_drive_and_experts_on_flash(converted, target):
    folder, path = converted("mixtral")
    prompt = ids(1, 30)
    expected = greedy(moe_models.in_memory(folder), prompt)
    checkpoint = opened(folder, path)
    with attach(checkpoint.model, target):
        assert torch.equal(greedy(checkpoint.model, prompt), expected)
    checkpoint.weights.close()


def test_too_little_memory_says_what_is_needed(converted):
    folder, path = converted("mixtral")
    needed = least(folder, path)
    with pytest.raises(InputError, match=rf"give `weights_memory={-(-needed // 2**20)}M` or more"):
        opened(folder, path, needed - 1)


@pytest.mark.parametrize("damage", ["bit", "truncated"])
def test_damage_in_the_middle_of_a_text_ends_it(damage, converted, tmp_path):
    folder, path = converted("olmoe")
    path = shutil.copy(path, tmp_path / "w.kvw")
    checkpoint = opened(folder, path, least(folder, path), look_ahead="off")
    array = checkpoint.weights.file.manifest.experts[2]
    expected = greedy(moe_models.in_memory(folder), ids(1, 12))
    contents = path.read_bytes()
    if damage == "bit":
        with path.open("r+b") as file:
            for expert in range(array.count):
                file.seek(array.bundle(expert))
                file.write(bytes([contents[array.bundle(expert)] ^ 1]))
        message = r"bundle \d+ of model.layers.2.mlp.experts in .* is damaged"
    else:
        with path.open("r+b") as file:
            file.truncate(array.offset)
        message = r"cannot read bundle \d+ of model.layers.2.mlp.experts in .*: Input/output error"
    with pytest.raises(TargetError, match=message):
        greedy(checkpoint.model, ids(1, 12))
    path.write_bytes(contents)  # nothing of the damaged data is left in memory
    assert torch.equal(greedy(checkpoint.model, ids(1, 12)), expected)
    checkpoint.weights.close()


def test_the_fingerprint_of_sessions_tells_experts_apart(converted, tmp_path):
    from kvdrive.identity.model import of_model

    folder, path = converted("mixtral")
    other = shutil.copytree(folder, tmp_path / "other", ignore=shutil.ignore_patterns("*.kvw"))
    model = moe_models.in_memory(other)
    with torch.no_grad():
        model.model.layers[1].mlp.experts.down_proj[3, 0, 0] += 1
    model.save_pretrained(other)
    found = []
    for place, file in ((folder, path), (other, make_file(other, other / "w.kvw", "auto", QUIET).path), (folder, path)):
        checkpoint = opened(place, file)
        found.append(of_model(checkpoint.model))
        checkpoint.weights.close()
    assert found[0] != found[1]
    assert found[0] == found[2]
