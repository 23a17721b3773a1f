"""K and V that outlive the process: what is found again, what is refused, and what a fault costs."""

import logging
from fractions import Fraction

import numpy as np
import pytest
import torch
from small_models import CONFIGS, prompts, random_model

from kvdrive import abi
from kvdrive.choices import KV_FORMATS
from kvdrive.errors import InputError, UnsupportedError
from kvdrive.generation.generate import greedy
from kvdrive.kvcache.backing import Backing
from kvdrive.kvcache.session import LABEL_LAYER, Session
from kvdrive.plugins.transformers import attach
from kvdrive.prefix.options import Bounds, SessionOptions
from kvdrive.prefix.rates import Rates

PROMPT = prompts(1, 150)
MORE = prompts(1, 20, seed=9)


def generate(attached, ids, new_tokens, **options):
    """Returns all tokens, and how many of `ids` did not have to be computed."""
    cache = attached.sessions.cache(ids, **options)
    cached = cache.get_seq_length()
    return greedy(attached._model, ids, new_tokens, past_key_values=cache), cached


def drive_sessions(attached):
    return sorted(attached._storage.backing.queues[0].target.sessions())


@pytest.mark.parametrize("drives", [pytest.param(1, marks=pytest.mark.slow), 2])
def test_a_conversation_continues_in_another_process(opened, model, drives):
    ids, expected = PROMPT, greedy(model, PROMPT, 60)
    for turn in range(3):
        with opened(model, drives=drives) as attached:
            tokens, cached = generate(attached, ids, 20)
            assert cached == (0 if turn == 0 else ids.shape[1] - 1)  # no token is lost, whole block or not
            assert torch.equal(tokens, expected[:, : tokens.shape[1]])
        ids = tokens
    with opened(model, drives=drives) as attached:
        entries = attached.sessions.index.entries()
        assert [entry.tokens for entry in entries] == [ids.shape[1] - 1]  # each turn takes the place of the one before
        assert len(drive_sessions(attached)) == 1


def test_a_shared_beginning_is_stored_once(opened, model):
    with opened(model) as attached:
        store = attached.sessions
        for seed in range(4):
            ids = torch.cat([PROMPT, prompts(1, 10, seed=20 + seed)], dim=1)
            _, cached = generate(attached, ids, 2)
            assert cached == (0 if seed == 0 else 150)
        for session in store.opened:
            session.finish()
        assert store.index.count() == 4
        blocks, per_token = 150 // store.block, store.index.entries()[0].bytes_per_token
        # 150 tokens and 11 or 10 others: two whole blocks for all, and each session's tokens behind them
        assert store.index.blocks() == blocks
        tails = sum(entry.tokens - blocks * store.block for entry in store.index.entries())
        assert store.index.accounts.bytes() == (blocks * store.block + tails) * per_token


def test_a_prompt_that_differs_early_takes_what_is_the_same(opened, model):
    other = PROMPT.clone()
    other[0, 100] = (other[0, 100] + 1) % 300
    with opened(model) as attached:
        generate(attached, PROMPT, 5)
    with opened(model) as attached:
        tokens, cached = generate(attached, other, 20)
        assert cached == 100  # to the token, not to the block
        assert torch.equal(tokens, greedy_alone(model, other, 20))
        assert generate(attached, PROMPT, 5)[1] == 149
        assert attached.sessions.index.count() == 3


def greedy_alone(model, ids, new_tokens):
    return greedy(random_model(CONFIGS["llama"]), ids, new_tokens)


def test_less_than_a_block_is_found_as_well(opened, model):
    ids = prompts(1, 20)
    with opened(model) as attached:
        tokens, _ = generate(attached, ids, 10)
    with opened(model) as attached:
        assert attached.sessions.cache(tokens).get_seq_length() == 29


def test_a_name_finds_a_session_and_belongs_to_one_model(opened, model):
    with opened(model) as attached:
        tokens, _ = generate(attached, PROMPT, 5, name="notes")
    with opened(model) as attached:
        cache = attached.sessions.cache(name="notes")
        assert torch.equal(cache.batch.token_ids(), tokens[:, :-1])
        greedy(model, torch.cat([tokens, MORE], dim=1), 3, past_key_values=cache)
        with pytest.raises(InputError, match="'notes' is in use"):
            attached.sessions.cache(name="notes")
    with opened(random_model(CONFIGS["llama"], seed=7)) as attached, pytest.raises(InputError, match="another model"):
        attached.sessions.cache(name="notes")
    with opened(model) as attached:
        assert attached.sessions.index.named("notes", "").tokens == 150 + 5 + 20 + 2


@pytest.mark.parametrize("change", ["weights", "precision", "tenant"])
def test_nothing_is_found_by_others(opened, model, change):
    with opened(model) as attached:
        generate(attached, PROMPT, 5)
    other, options = model, SessionOptions()
    if change == "weights":
        other = random_model(CONFIGS["llama"])
        other.model.layers[1].mlp.up_proj.weight.data[0, 0] += 0.001
    elif change == "precision":
        other = random_model(CONFIGS["llama"]).to(torch.bfloat16)
    else:
        options = SessionOptions(tenant="somebody else")
    with opened(other, sessions=options) as attached:
        assert attached.sessions.cache(PROMPT).get_seq_length() == 0
    with opened(model) as attached:
        assert attached.sessions.cache(PROMPT).get_seq_length() == 149


def test_a_lost_index_is_made_again(opened, model, tmp_path):
    with opened(model, drives=2) as attached:
        tokens, _ = generate(attached, PROMPT, 20, name="notes")
        generate(attached, MORE, 3)
        before = {(entry.name, entry.tokens, tuple(entry.tail)) for entry in attached.sessions.index.entries()}
    with opened(model, drives=2) as attached:
        before = {(e.name, e.tokens, tuple(e.tail), e.bytes) for e in attached.sessions.index.entries()}
        size = attached.sessions.index.accounts.bytes()
    for file in tmp_path.glob("0.kv.sessions*"):
        file.unlink()
    with opened(model, drives=2) as attached:
        index = attached.sessions.index
        assert {(e.name, e.tokens, tuple(e.tail), e.bytes) for e in index.entries()} == before
        assert index.accounts.bytes() == size
        more, cached = generate(attached, tokens, 20)
        assert cached == 169
    assert torch.equal(more, greedy(model, PROMPT, 40))


def test_lost_data_are_computed_again_and_not_found_any_more(opened, model):
    with opened(model) as attached:
        tokens, _ = generate(attached, PROMPT, 20)
    with opened(model) as attached:
        cache = attached.sessions.cache(tokens)
        assert cache.get_seq_length() == 169
        lost = attached.sessions.index.entries()[0].id
        push_to_flash(attached)
        attached._storage.backing.queues[0].target._drive.inject("read_uncorrectable")
        more = greedy(model, tokens, 20, past_key_values=cache)
        assert attached.recoveries == 1
        assert attached.sessions.stats.lost == 1
        assert attached.sessions.index.get(lost) is None
    assert torch.equal(more, greedy(model, PROMPT, 40))
    with opened(model) as attached:
        assert attached.sessions.cache(more).get_seq_length() == 189  # what was computed again is kept


def push_to_flash(attached):
    """Store so much beside the sessions that nothing of these waits in the drive's memory any more."""
    rows = np.ones((8, 8192, 128), np.float16)
    attached._storage.backing.queues[0].run(lambda target: Session(target).append(0, abi.KvKind.KEYS, 0, rows))


def test_a_stale_index_costs_time_and_nothing_else(opened, model):
    """Behind the index's back the session is trimmed, and its number given to other tokens."""
    with opened(model) as attached:
        generate(attached, PROMPT, 5)
    with opened(model, sessions=False) as attached:
        target = attached._storage.backing.queues[0].target
        number = target.sessions().pop()
        Session.existing(target, number, 0).trim(0)
        cache = attached.cache()
        other = greedy(model, prompts(1, 150, seed=5), 5, past_key_values=cache)
        assert other is not None
        cache.batch.saved_at = cache.batch.retain() or None
        cache.batch.sequences.clear()
    with opened(model) as attached:
        tokens, cached = generate(attached, PROMPT, 5)
        assert cached == 0
        assert attached.sessions.stats.stale == 1
    assert torch.equal(tokens, greedy(model, PROMPT, 5))


def test_no_room_under_the_drive_fails_saves_only(opened, model, caplog):
    with opened(model) as attached, caplog.at_level(logging.WARNING):
        cache = attached.sessions.cache(PROMPT)
        greedy(model, PROMPT, 2, past_key_values=cache)
        attached._storage.backing.queues[0].target._drive.inject("disk_full", count=2)
        before = attached.sessions.stats.saves
        tokens = greedy(model, PROMPT, 40, past_key_values=cut(cache, 140))
        assert attached.sessions.stats.failed_saves == 2
        assert "could not be saved" in caplog.text
        assert attached.sessions.stats.saves > before  # tried again with later tokens
        assert attached.sessions.save(cache) is not None
    assert torch.equal(tokens, greedy(model, PROMPT, 40))
    with opened(model) as attached:
        assert attached.sessions.cache(tokens).get_seq_length() == 189


def cut(cache, tokens):
    cache.crop(tokens - cache.get_seq_length())
    return cache


def test_removed_tokens_are_not_found(opened, model):
    with opened(model) as attached:
        cache = attached.sessions.cache(PROMPT)
        tokens = greedy(model, PROMPT, 20, past_key_values=cache)
        assert attached.sessions.index.entries()[0].tokens >= 160
        cache.crop(-100)
        assert attached.sessions.index.count() == 0
    with opened(model) as attached:
        assert attached.sessions.cache(tokens).get_seq_length() == 69


def test_bounds_and_pins(opened, model):
    with opened(model, sessions=SessionOptions(bounds=Bounds(sessions=2))) as attached:
        store = attached.sessions
        for seed in range(4):
            cache = store.cache(ids := prompts(1, 80, seed=seed))
            with torch.no_grad():
                model(ids, past_key_values=cache)
            number = store.release(cache)
            if seed == 0:
                store.index.set(number, pinned=True)
        assert [entry.id for entry in store.index.entries()] == [number, 1]  # the pinned one and the last one
        assert len(drive_sessions(attached)) == 2
        per_token = store.index.entries()[0].bytes_per_token
    bounds = Bounds(tenant_bytes=100 * per_token)
    with opened(model, sessions=SessionOptions(tenant="a", bounds=bounds)) as attached:
        for seed in range(3):
            with torch.no_grad():
                model(ids := prompts(1, 80, seed=seed), past_key_values=(cache := attached.sessions.cache(ids)))
            attached.sessions.release(cache)
        assert attached.sessions.index.accounts.bytes("a") <= 100 * per_token
        assert attached.sessions.index.count() == 3  # the quota of one tenant leaves the others alone


def test_unused_sessions_are_evicted_and_the_clock_may_go_back(opened, model):
    with opened(model, sessions=SessionOptions(bounds=Bounds(seconds=100))) as attached:
        store, time = attached.sessions, [1_000_000.0]
        store.index._clock = lambda: time[0]

        def one(seed):
            with torch.no_grad():
                model(ids := prompts(1, 80, seed=seed), past_key_values=(cache := store.cache(ids)))
            return store.release(cache)

        first = one(1)
        time[0] -= 500_000  # the clock is set back: the session is as old as if it had been used now
        second = one(2)
        assert store.index.count() == 2
        time[0] += 60
        store.index.use(second)
        time[0] += 60
        third = one(3)
        assert [entry.id for entry in store.index.entries()] == [third, second]
        assert first not in {entry.id for entry in store.index.entries()}


def test_the_governor_stores_only_what_is_wanted_twice(opened, model):
    with opened(model, sessions=SessionOptions(daily_bytes=1)) as attached:
        store = attached.sessions

        def once(seed):
            with torch.no_grad():
                model(ids := prompts(1, 80, seed=seed), past_key_values=(cache := store.cache(ids)))
            return store.release(cache)

        assert once(1) is not None  # below the budget everything is kept
        assert store.governor.wear().state == "second use"
        assert once(2) is None
        assert len(drive_sessions(attached)) == 1
        assert once(2) is not None
        wear = store.governor.wear()
        assert (wear.refused, wear.bytes_today) == (1, 2 * 80 * store.index.entries()[0].bytes_per_token)


@pytest.mark.parametrize("active", ["drive", "memory"])
def test_what_the_governor_refuses_is_not_written(opened, model, active, monkeypatch):
    """In memory nothing at all; on the drive K and V, which it attends to, and neither tokens nor a FLUSH."""
    append, flush, appended, flushes = Session.append, Backing.flush, [], []
    monkeypatch.setattr(
        Session, "append", lambda self, *of: appended.append((of[0], of[3].nbytes)) or append(self, *of)
    )
    monkeypatch.setattr(Backing, "flush", lambda self: flushes.append(1) or flush(self))
    with opened(model, sessions=SessionOptions(daily_bytes=1), active=active) as attached:
        store, drive = attached.sessions, attached._storage.backing.queues[0].target
        store.costs.rates = Rates(1, 0, 1, 0, 1e-9, 0, 0, 1e-9, 1e-9)  # what was found is loaded, or attended to
        per_token = store.index.get(store.release(run(store, model, 1))).bytes_per_token

        def written(seed, tokens):
            appended.clear()
            flushes.clear()
            return store.release(run(store, model, seed, tokens)), sum(size for _, size in appended)

        commands = drive.stats().commands
        number, size = written(2, 90)
        assert (number, flushes) == (None, [])
        if active == "memory":
            assert size == 0
            assert drive.stats().commands == commands
        else:
            assert 0 < size <= 90 * per_token
            assert {layer for layer, _ in appended} == {0, 1, LABEL_LAYER}  # no tokens, no record
        number, size = written(2, 110)  # goes on with what was refused: wanted a second time
        assert number is not None
        assert size > 110 * per_token
        assert len(drive_sessions(attached)) == 2


def run(store, model, seed, tokens=80):
    """A sequence of `tokens` tokens, the last 20 of them generated."""
    ids = prompts(1, 200, seed=seed)[:, : tokens - 20]
    cache = store.cache(ids)
    greedy(model, ids, 21, past_key_values=cache)
    return cache


def test_several_rows_and_beams_are_not_saved(opened, model, caplog):
    with opened(model) as attached:
        with pytest.raises(UnsupportedError, match="one row"):
            attached.sessions.cache(prompts(2, 10))
        cache = attached.sessions.cache()
        greedy(model, prompts(2, 40), 20, past_key_values=cache)
        assert attached.sessions.index.count() == 0
        assert "a sequence is not saved: it has several rows" in caplog.text
        cache = attached.sessions.cache()
        caplog.clear()
        model.generate(PROMPT, past_key_values=cache, num_beams=2, max_new_tokens=4, do_sample=False)
        assert attached.sessions.index.count() == 0
        assert "a sequence is not saved" in caplog.text
    with opened(model) as attached:
        assert drive_sessions(attached) == []


def test_sessions_are_asked_for(target, model):
    with attach(model, target) as attached, pytest.raises(InputError, match="sessions=True"):
        _ = attached.sessions
    with pytest.raises(UnsupportedError, match="`sessions` does not go with `attention=h2o`"):
        attach(model, target, "h2o", sessions=True)


def test_sparse_attention_has_sessions_of_its_own(opened, model):
    sparse = {"attention": "sparf", "ratio": Fraction(1, 4)}
    with opened(model, **sparse) as attached:
        tokens, _ = generate(attached, PROMPT, 10)
    with opened(model) as attached:
        assert attached.sessions.cache(tokens).get_seq_length() == 0
    with opened(model, **sparse) as attached:
        cache = attached.sessions.cache(tokens)
        assert cache.get_seq_length() == 159
        greedy(model, tokens, 5, past_key_values=cache)


def test_a_dead_process_holds_no_name(opened, model):
    with opened(model) as attached:
        generate(attached, PROMPT, 5, name="notes")
        for session in attached.sessions.opened:
            session.finish()
        entry = attached.sessions.index.named("notes", "")
        with attached.sessions.index.transaction():
            attached.sessions.index.set(entry.id, owner="another-boot:1:1:0")
        assert attached.sessions.cache(name="notes").get_seq_length() == 154


def test_a_padded_prompt_is_not_saved_with_a_warning(opened, model, caplog):
    mask = torch.ones_like(PROMPT)
    mask[0, :3] = 0
    with opened(model) as attached:
        greedy(model, PROMPT, 5, mask, past_key_values=attached.sessions.cache())
        assert attached.sessions.index.count() == 0
    assert "a sequence is not saved: its mask hides tokens" in caplog.text


def test_sessions_of_a_dead_process_are_evicted_when_there_are_too_many(opened, model):
    with opened(model, sessions=SessionOptions(bounds=Bounds(sessions=2))) as attached:
        store = attached.sessions
        for seed in range(3):
            with torch.no_grad():
                model(ids := prompts(1, 80, seed=seed), past_key_values=(cache := store.cache(ids)))
            number = store.release(cache)
            if seed == 0:
                with store.index.transaction():
                    store.index.set(number, owner="another-boot:1:1:0")
        assert [entry.id for entry in store.index.entries()] == [3, 2]


def test_pins_quotas_and_wear_outlive_the_index(opened, model, tmp_path, caplog):
    with opened(model, sessions=SessionOptions(tenant="a")) as attached:
        store = attached.sessions
        for seed in range(2):
            with torch.no_grad():
                model(ids := prompts(1, 80, seed=seed), past_key_values=(cache := store.cache(ids)))
            number = store.release(cache)
        with store.index.transaction():
            store.index.set(number, pinned=True)
            store.index.set_quota("a", 10**9)
        written = store.governor.wear().bytes_written
        assert written > 0
    for path in tmp_path.glob("0.kv.sessions*"):
        if path.suffix != ".pins":
            path.unlink()
    with opened(model, sessions=SessionOptions(tenant="a")) as attached:
        store = attached.sessions
        assert store.index.count() == 2
        assert [entry.tokens for entry in store.index.pinned()] == [80]
        assert store.cache(prompts(1, 80, seed=1)).batch.listener.committed.source.pinned
        assert store.index.accounts.quota("a") == 10**9
        assert store.governor.wear().bytes_written == written
    (tmp_path / "0.kv.sessions").unlink()
    (tmp_path / "0.kv.sessions.pins").rename(tmp_path / "0.kv.sessions.lasting")  # as earlier versions called it
    with opened(model, sessions=SessionOptions(tenant="a")) as attached:
        assert [entry.tokens for entry in attached.sessions.index.pinned()] == [80]
        assert "0.kv.sessions.pins from now on" in caplog.text
    (tmp_path / "0.kv.sessions").unlink()
    (tmp_path / "0.kv.sessions.pins").write_text("[")  # damaged: it says nothing
    with opened(model) as attached:
        assert attached.sessions.index.count() > 0
        assert attached.sessions.index.pinned() == []


def test_the_quota_of_a_tenant_goes_before_the_bound_of_all(opened, model):
    with opened(model, sessions=SessionOptions(tenant="a", bounds=Bounds(tenant_bytes=1))) as attached:
        store = attached.sessions
        for seed in range(3):
            with torch.no_grad():
                model(ids := prompts(1, 80, seed=seed), past_key_values=(cache := store.cache(ids)))
            with store.index.transaction():
                size = 2 * 80 * cache.batch.listener.record.bytes_per_token
                store.index.set_quota("a", size)
            store.release(cache)
        assert store.index.count() == 2
        assert store.index.accounts.bytes("a") <= size


@pytest.mark.parametrize(
    ("policy", "kv_format"),
    [
        pytest.param(policy, name, marks=() if (name == "int8") == (not policy) else pytest.mark.slow)
        for policy in ({}, {"attention": "sparf", "ratio": Fraction(1, 4)})
        for name in KV_FORMATS
        if name != "f16"
    ],
    ids=lambda value: value if isinstance(value, str) else "sparf" if value else "exact",
)
def test_sessions_in_8_and_4_bits_continue_and_are_not_mixed(opened, model, kv_format, policy):
    with opened(model, kv_format=kv_format, **policy) as attached:
        tokens, _ = generate(attached, PROMPT, 20)
    with opened(model, kv_format=kv_format, **policy) as attached:
        _, cached = generate(attached, torch.cat([tokens, MORE], dim=1), 5)
        assert cached == tokens.shape[1] - 1  # the last token was never given to the model
    for other in set(KV_FORMATS) - {kv_format}:
        with opened(model, kv_format=other, **policy) as attached:
            assert generate(attached, tokens, 1)[1] == 0


def test_a_found_session_that_is_cut_and_continues_otherwise_is_found_by_its_own_tokens(opened, model):
    with opened(model) as attached:
        generate(attached, PROMPT, 2)
    other = torch.cat([PROMPT[:, :40], prompts(1, 110, seed=30)], dim=1)
    with opened(model) as attached:
        cache = attached.sessions.cache(PROMPT)
        assert cache.get_seq_length() == 149
        with torch.no_grad():
            model(other[:, 40:], past_key_values=cut(cache, 40))
        attached.sessions.release(cache)
    with opened(model) as attached:
        assert attached.sessions.cache(PROMPT).get_seq_length() == 149
        assert attached.sessions.cache(other).get_seq_length() == 149
        assert attached.sessions.stats.stale == 0
