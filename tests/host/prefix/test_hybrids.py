"""Sessions of models with layers in memory: windows, convolutions and recurrent states are stored beside K and V."""

import copy
from itertools import pairwise

import numpy as np
import pytest
import torch
from family_models import SERVED
from pairs import some_quick
from small_models import CONFIGS, prompts, random_model

from kvdrive.errors import UnsupportedError
from kvdrive.kvcache.states import pack, unpack
from kvdrive.prefix import states
from kvdrive.prefix.checkpoints import BLOCKS, surplus, within
from kvdrive.prefix.record import Record

HYBRIDS = {name: config for name, (config, on_drives) in SERVED.items() if on_drives == 1}
SPACING = 256  # of the models here


def long_model(name: str, seed: int = 0):
    config = copy.deepcopy(HYBRIDS[name])
    config.max_position_embeddings = 4096
    return random_model(config, seed)


def forward(model, cache, ids):
    """The last token's logits."""
    with torch.no_grad():
        return model(ids, past_key_values=cache, use_cache=True, logits_to_keep=1).logits[0, -1]


def in_pieces(model, cache, prompt):
    """The last token's logits, of a prompt that is computed up to each checkpoint by itself."""
    stops = [0, *within(0, prompt.shape[1], SPACING), prompt.shape[1]]
    for first, stop in pairwise(stops):
        cache.batch.part.in_prompt = first > 0
        logits = forward(model, cache, prompt[:, first:stop])
    cache.batch.part.in_prompt = False
    return logits


def turn(model, store, ids, new_tokens, **options):
    """A turn of a conversation as the server computes it: all tokens, how many were found, and each step's logits."""
    cache = store.cache(ids, **options)
    found, logits = cache.get_seq_length(), []
    logits.append(forward(model, cache, ids[:, found:]))
    for _ in range(new_tokens):
        ids = torch.cat([ids, logits[-1].argmax().reshape(1, 1)], dim=1)
        logits.append(forward(model, cache, ids[:, -1:]))
    store.release(cache)
    return ids, found, torch.stack(logits)


QUICK = ("gemma3", "gemma4", "gpt-oss", "jamba", "lfm2", "llama4", "nemotron-h", "qwen3-next", "qwen3.5")


@pytest.mark.parametrize("name", some_quick(HYBRIDS, QUICK))
def test_a_conversation_goes_on_in_another_process_with_the_same_bits(opened, name):
    model, first, second = long_model(name), prompts(1, 90), prompts(1, 30, seed=5)
    with opened(model, folder="whole") as attached:  # one cache, which is never stored
        cache = attached.cache()
        expected = [in_pieces(model, cache, first)]
        ids = first
        for _ in range(5):
            ids = torch.cat([ids, expected[-1].argmax().reshape(1, 1)], dim=1)
            expected.append(forward(model, cache, ids[:, -1:]))
        ids = torch.cat([ids, second], dim=1)
        expected.append(forward(model, cache, second))
        for _ in range(5):
            ids = torch.cat([ids, expected[-1].argmax().reshape(1, 1)], dim=1)
            expected.append(forward(model, cache, ids[:, -1:]))
    with opened(model) as attached:
        tokens, found, logits = turn(model, attached.sessions, first, 5)
        assert found == 0
        assert torch.equal(logits, torch.stack(expected[:6]))
    with opened(model) as attached:
        tokens = torch.cat([tokens, second], dim=1)
        tokens, found, logits = turn(model, attached.sessions, tokens, 5)
        assert found == 95
        assert torch.equal(logits, torch.stack(expected[6:]))
    assert torch.equal(tokens, ids)


FEW = (1, 2, 15, 16, 17, 63, 64, 65, 130)  # tokens around a window, a group of the drive and a block
EVERY = [pytest.param(name, range(1, 200), marks=pytest.mark.slow) for name in HYBRIDS]


@pytest.mark.parametrize(("name", "positions"), [("gpt-oss", FEW), ("granite4", FEW), ("lfm2", FEW), *EVERY])
def test_a_model_that_stops_after_any_token_goes_on_with_the_same_bits(opened, name, positions):
    model, ids = long_model(name), prompts(1, 220)
    with opened(model) as attached:
        for position in positions:
            prompt = torch.cat([prompts(1, 1, seed=position), ids[:, 1 : position + 2]], dim=1)
            cache, stopped = attached.cache(), attached.sessions.cache(prompt, find=False)
            for one in (cache, stopped):
                with torch.no_grad():  # as a whole: it wants all logits
                    model(prompt[:, :position], past_key_values=one)
            attached.sessions.release(stopped)
            restored = attached.sessions.cache(prompt)
            assert restored.get_seq_length() == position
            for token in (prompt[:, position : position + 1], prompt[:, position + 1 : position + 2]):
                assert torch.equal(forward(model, restored, token), forward(model, cache, token))
            attached.sessions.discard(restored)


@pytest.fixture(scope="module")
def gemma():
    """Half of its layers have a window of 16 tokens."""
    return long_model("gemma3")


@pytest.fixture(scope="module")
def delta_net():
    """Half of its layers have a recurrent and a convolution state."""
    return long_model("qwen3-next")


def entries(attached):
    """Tokens of each stored session, the shortest first."""
    return sorted(entry.tokens for entry in attached.sessions.index.entries())


def places(attached):
    return sorted(attached._storage.backing.queues[0].target.sessions())


@pytest.mark.parametrize("model", ["gemma", "delta_net"])
def test_a_prompt_leaves_checkpoints_where_others_can_go_on(opened, model, request):
    model, prompt = request.getfixturevalue(model), prompts(1, 1300)
    with opened(model) as attached:
        _, found, _ = turn(model, attached.sessions, prompt, 3)
        assert found == 0
        assert entries(attached) == [256, 512, 1024, 1296, 1303]
        again, found, logits = turn(model, attached.sessions, prompt, 3)
        assert found == 1296
    with opened(model) as attached:
        other = torch.cat([prompt[:, :700], prompts(1, 40, seed=8)], dim=1)
        tokens, found, after = turn(model, attached.sessions, other, 3)
        assert found == 512
    with opened(model, folder="elsewhere") as attached:
        tokens_anew, found, anew = turn(model, attached.sessions, prompt, 3)
        assert torch.equal(tokens_anew, again)
        torch.testing.assert_close(anew, logits, rtol=0, atol=0.01)  # the drive attends to what is found
        tokens_anew, found, anew = turn(model, attached.sessions, other, 3)
        assert found == 512
        assert torch.equal(tokens_anew, tokens)
        assert torch.equal(anew, after)


def test_pieces_of_a_prompt_give_the_bits_of_separate_calls(opened, gemma):
    prompt = prompts(1, 600)
    with opened(gemma, folder="calls") as attached:
        expected = in_pieces(gemma, attached.cache(), prompt)
    with opened(gemma) as attached:
        assert torch.equal(turn(gemma, attached.sessions, prompt, 0)[2][0], expected)


def test_a_call_that_wants_more_than_the_last_logits_stays_whole(opened, gemma):
    prompt = prompts(1, 600)
    with opened(gemma) as attached, torch.no_grad():
        cache = attached.sessions.cache(prompt)
        assert gemma(prompt, past_key_values=cache).logits.shape[1] == 600
        attached.sessions.release(cache)
        assert entries(attached) == [600]


def test_checkpoints_of_a_long_conversation_are_few(opened, gemma):
    ids, longest = prompts(1, 40), 0
    with opened(gemma) as attached:
        for number in range(30):
            ids = torch.cat([ids, prompts(1, 37, seed=number)], dim=1)
            ids, found, _ = turn(gemma, attached.sessions, ids, 3)
            assert number == 0 or found > 0
            longest = max(longest, len(entries(attached)))
        assert longest <= 3 + 4  # the newest ones, and the first of each doubling: of 0, 256, 512, 1024
        assert len(places(attached)) == 2 * len(entries(attached))  # each has K and V, and a state
        attached.sessions.evictor.shrink(0)
        assert places(attached) == []
        assert attached.sessions.index.accounts.bytes() == 0


def test_states_count_as_bytes(opened, gemma):
    with opened(gemma) as attached:
        turn(gemma, attached.sessions, prompts(1, 60), 0)
        (entry,) = attached.sessions.index.entries()
        assert entry.tokens == 60
        assert entry.state_bytes > 2 * 15 * 2 * 32 * 4  # K and V of 15 tokens and two heads in float32
        assert attached.sessions.index.accounts.bytes() == entry.bytes


def test_a_name_stays_with_the_newest_checkpoint(opened, gemma):
    with opened(gemma) as attached:
        ids, _, _ = turn(gemma, attached.sessions, prompts(1, 100), 4, name="notes")
        ids = torch.cat([ids, prompts(1, 300, seed=3)], dim=1)
        _, found, _ = turn(gemma, attached.sessions, ids, 4, name="notes")
        assert found == 104
    with opened(gemma) as attached:
        assert attached.sessions.index.named("notes", "").tokens == 408
        assert {entry.name for entry in attached.sessions.index.entries()} == {"notes", ""}
        assert attached.sessions.cache(name="notes").get_seq_length() == 408


def test_an_index_made_again_finds_states_and_removes_orphans(opened, gemma, tmp_path):
    prompt = prompts(1, 600)
    with opened(gemma) as attached:
        turn(gemma, attached.sessions, prompt, 2)
        before, held = entries(attached), places(attached)
    next(tmp_path.glob("*.sessions")).unlink()
    with opened(gemma) as attached:
        assert entries(attached) == before
        assert places(attached) == held
        _, found, _ = turn(gemma, attached.sessions, torch.cat([prompt, prompts(1, 5, seed=2)], dim=1), 0)
        assert found == 596
        entry = attached.sessions.index.entries()[0]
        with attached.sessions.index.transaction():
            attached.sessions.index.remove(entry.id)  # as a process that is killed before the drive forgets it
        held = places(attached)
    with opened(gemma) as attached:
        assert len(places(attached)) == len(held) - 2


@pytest.mark.parametrize("damage", ["lost", "another"])
def test_a_damaged_state_is_never_used(opened, gemma, damage, monkeypatch, caplog):
    prompt = prompts(1, 60)
    with opened(gemma) as attached:
        turn(gemma, attached.sessions, prompt, 0)
        (entry,) = attached.sessions.index.entries()
        queue, state = attached.sessions.stored._state_of(entry)
        states.remove(queue, state, entry.model)
        if damage == "another":
            with monkeypatch.context() as patched:
                patched.setattr(queue.target, "new_session", lambda: state.session)
                states.put(queue, Record.of(entry.record), bytes(state.bytes), state.tokens)
        _, found, _ = turn(gemma, attached.sessions, torch.cat([prompt, prompt], dim=1), 0)
        assert found == 0
    assert "is not what the index says" in caplog.text


def test_what_drives_lose_is_computed_again_behind_a_state(opened, delta_net):
    prompt = prompts(1, 300)
    with opened(delta_net, on_failure="recompute") as attached:
        ids, _, _ = turn(delta_net, attached.sessions, prompt, 4)
        ids = torch.cat([ids, prompts(1, 20, seed=6)], dim=1)
        wanted = forward(delta_net, attached.sessions.cache(ids), ids[:, 304:])
        cache = attached.sessions.cache(ids)
        assert cache.get_seq_length() == 304
        forward(delta_net, cache, ids[:, 304:310])
        attached._calls.recovery.recompute(cache.batch)
        assert cache.get_seq_length() == 310
        again = forward(delta_net, cache, ids[:, 310:])
        torch.testing.assert_close(again, wanted, rtol=0, atol=0.01)
        attached.sessions.release(cache)
    with opened(delta_net) as attached:
        longer = torch.cat([ids, ids[:, :3]], dim=1)
        assert attached.sessions.cache(longer).get_seq_length() == 324


@pytest.mark.parametrize("name", ["gemma3", "qwen3-next"])
def test_a_sequence_in_memory_goes_on_with_its_state(opened, name):
    model, prompt = long_model(name), prompts(1, 600)
    with opened(model, active="memory") as attached:
        ids, _, _ = turn(model, attached.sessions, prompt, 3)
    more = torch.cat([ids, prompts(1, 20, seed=4)], dim=1)
    with opened(model, active="memory") as attached:
        tokens, _, _ = turn(model, attached.sessions, more, 5)
    with opened(model, folder="anew", active="memory") as attached:
        anew, found, _ = turn(model, attached.sessions, more, 5)
        assert found == 0
    assert torch.equal(tokens, anew)


def test_models_without_layers_on_drives_are_refused(opened):
    config = CONFIGS["mistral"].__class__(**CONFIGS["mistral"].to_dict() | {"sliding_window": 64})
    with pytest.raises(UnsupportedError, match="no layer of this model attends to all tokens"):
        opened(random_model(config)).__enter__()


class Strange:
    """A layer that holds something unknown."""

    def __init__(self, held):
        self.keys = torch.ones(2)
        self.held = held


@pytest.mark.parametrize("size", [1, 7, 480, 481, 5000])
def test_any_bytes_become_finite_numbers_and_come_back(size):
    data = np.random.default_rng(size).bytes(size)
    for given in (data, b"\xff" * size, bytes(size)):
        numbers = states._finite(given)
        assert np.isfinite(numbers).all()
        assert numbers.size % 256 == 0
        assert states._as_bytes(numbers, size) == given


def test_what_a_layer_holds_is_known_or_refused():
    held = {0: None, 1: torch.tensor([[1.5, -2.5]], dtype=torch.bfloat16), 2: torch.zeros(0), "x": torch.float32}
    layer, other = Strange(held), Strange(None)
    data = pack({3: layer})
    unpack(data, {3: other}, torch.device("cpu"))
    assert torch.equal(other.held[1], held[1])
    assert other.held[1].dtype is torch.bfloat16
    assert other.held[2].shape == (0,)
    assert other.held["x"] is torch.float32
    with pytest.raises(UnsupportedError, match=r"layer 3, a .*Strange, holds a set, which cannot be stored"):
        pack({3: Strange({1, 2})})
    for wrong, layers in ((data[:-8], {3: other}), (data + bytes(8), {3: other}), (data, {4: other}), (data, {3: {}})):
        with pytest.raises((ValueError, TypeError, AttributeError)):
            unpack(wrong, layers, torch.device("cpu"))


def test_stops_of_a_prompt():
    assert within(0, 1300, SPACING) == [256, 512, 1024, 1296]
    assert within(600, 1300, SPACING) == [1024, 1296]
    assert within(0, 257, SPACING) == [253, 256]
    assert within(0, 256, SPACING) == [252]
    assert within(0, 60, SPACING) == []
    assert within(1250, 1300, SPACING) == []


def test_one_checkpoint_stays_in_each_doubling():
    assert surplus([100, 200, 300, 600, 700, 1100], SPACING) == {200}
    assert surplus([100, 200, 300, 400, 600, 650, 700, 1100, 1200, 1300], SPACING) == {200, 400, 650, 700}
    assert BLOCKS * 64 == SPACING
