"""Idle sessions in memory above the drives: bytes, bounds, who leaves, look-ahead, tenants, and what is counted."""

import numpy as np
import pytest
import torch
from attached_drives import LOADING_PAYS, attached_in
from pairs import some_quick
from small_models import SMALL, prompts, random_model
from transformers import LlamaConfig

from kvdrive import abi
from kvdrive.config.abilities import ConflictError
from kvdrive.errors import InputError
from kvdrive.generation.generate import greedy
from kvdrive.kvcache.session import Session
from kvdrive.kvcache.sources import FromDrive
from kvdrive.nvme.errors import CommandError
from kvdrive.plugins.transformers import attach
from kvdrive.prefix.options import Bounds, SessionOptions
from kvdrive.prefix.request import Request
from kvdrive.prefix.residents import Residents
from kvdrive.server.metrics import Metrics
from kvdrive.server.prefix_cache import PrefixCache

MODEL = LlamaConfig(**SMALL | {"num_hidden_layers": 3, "max_position_embeddings": 1024}, num_key_value_heads=4)
TEXTS = [prompts(1, 150, seed=30 + number) for number in range(4)]
ROOM = 1 << 30


@pytest.fixture(scope="module")
def model():
    return random_model(MODEL)


@pytest.fixture
def opened(tmp_path):
    def attached(model, memory=ROOM, sessions=True, drives=1, **options):
        attachment = attached_in(
            tmp_path, model, drives, sessions=sessions, active="memory", session_memory=memory, **options
        )
        attachment.sessions.costs.rates = LOADING_PAYS
        return attachment

    return attached


def turn(attached, ids, **of_request):
    """One call of the model behind what is stored, whose session is stored. Returns its number."""
    cache = attached.sessions.cache(ids, **of_request)
    with torch.no_grad():
        attached._model(ids[:, cache.get_seq_length() :], past_key_values=cache)
    return attached.sessions.release(cache)


def counted(attached):
    stats = attached.sessions.stats
    return stats.loads, stats.memory_hits


def read_bytes(attached):
    return sum(queue.target.stats().host_bytes_out for queue in attached._storage.backing.queues)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=["float32", "bfloat16"])
@pytest.mark.parametrize("kv_format", some_quick(["f16", "int8", "int4", "fp8"], ["f16", "int4"]))
def test_a_copy_has_the_bytes_of_the_drives(opened, dtype, kv_format):
    """Made of the sequence in memory, and read from the drives: in both, every byte of K and V is the drives' own."""
    with opened(random_model(MODEL).to(dtype), drives=2, kv_format=kv_format) as attached:
        store, tier = attached.sessions, attached.sessions.memory
        entry = store.index.get(turn(attached, TEXTS[0]))
        for _ in range(2):
            tier.wait()
            held, size = tier.open(entry), 0
            for one in store.stored.open(entry).slices:
                source = FromDrive(one)
                for layer in range(3):
                    parts = source.parts(one.queue.target, layer, 32, range(entry.tokens))
                    for part, found in zip(parts, source.stored(one.queue.target, layer, 32, parts), strict=True):
                        assert np.array_equal(held.stored(layer, part.kind)[one.first : one.last], found)
                        size += found.nbytes
            assert held.bytes == size <= tier.bytes == entry.bytes
            tier.clear()
            assert (len(tier), tier.bytes) == (0, 0)
            tier.bring([entry])


@pytest.mark.parametrize("kv_format", some_quick(["f16", "int8", "int4", "fp8"], ["int8"]))
def test_a_turn_that_is_loaded_from_memory_continues_with_the_same_tokens(opened, model, kv_format):
    with opened(model, 0, kv_format=kv_format) as attached:
        expected = greedy(model, TEXTS[0], 60, past_key_values=attached.cache())
    with opened(model, kv_format=kv_format) as attached:
        store, ids = attached.sessions, TEXTS[0]
        for number in range(3):
            cache, read = store.cache(ids), read_bytes(attached)
            tokens = greedy(model, ids, 20, past_key_values=cache)
            assert torch.equal(tokens, expected[:, : tokens.shape[1]])
            if number:
                loaded = (ids.shape[1] - 1) * 3 * 4 * 32 * 4  # layers, heads, d, K and V in binary16
                assert read_bytes(attached) - read < loaded / 8  # nothing of the history
            store.release(cache)
            ids = tokens
        assert counted(attached) == (2, 2)
        assert store.stats.memory_loaded_bytes == store.stats.loaded_bytes > 0
        assert store.memory.bytes == store.index.entries()[0].bytes
    with opened(model, kv_format=kv_format) as attached:  # another process finds it on the drive
        cache = attached.sessions.cache(ids)
        assert cache.get_seq_length() == ids.shape[1] - 1
        assert counted(attached) == (1, 0)


def test_memory_never_exceeds_its_budget_and_the_least_recently_used_leaves(opened, model):
    with opened(model) as attached:
        size = attached.sessions.index.get(turn(attached, TEXTS[0])).bytes
    with opened(model, 2 * size + size // 2) as attached:
        store, tier = attached.sessions, attached.sessions.memory
        numbers = [turn(attached, text) for text in TEXTS[1:3]]
        assert [one in tier for one in numbers] == [True, True]
        cache = store.cache(torch.cat([TEXTS[1], TEXTS[0][:, :5]], dim=1))  # uses the first: the second leaves next
        cache.reset()
        del cache
        numbers.append(turn(attached, TEXTS[3]))
        assert [one in tier for one in numbers] == [True, False, True]
        assert tier.bytes == 2 * size
        assert store.stats.memory_evictions == 1
        turn(attached, prompts(1, 500, seed=9))  # more than the budget: it stays on the drive
        assert tier.bytes == 2 * size


def test_a_copy_that_is_read_stays_and_counts(opened, model):
    """Room for one session: while a request loads it, another one gets no copy."""
    with opened(model) as attached:
        first = turn(attached, TEXTS[0])
        size = attached.sessions.index.get(first).bytes
    with opened(model, size) as attached:
        store, tier = attached.sessions, attached.sessions.memory
        cache = store.cache(torch.cat([TEXTS[0], TEXTS[1][:, :5]], dim=1))
        assert first in tier
        other = turn(attached, TEXTS[1])
        assert (first in tier, other in tier) == (True, False)
        store.index.remove(first)
        assert tier.bytes == size
        cache.reset()
        del cache
        third = turn(attached, TEXTS[2])
        assert (first in tier, third in tier, tier.bytes) == (False, True, size)


@pytest.mark.parametrize("eviction", ["queue-aware", "lru", "fifo"])
def test_waiting_requests_are_read_ahead_and_stay(opened, model, eviction):
    """Room for two of four sessions; two others wait. Only the queue-aware policy lets them stay for a new one."""
    with opened(model) as attached:
        numbers = [turn(attached, text) for text in TEXTS]
        size = attached.sessions.index.get(numbers[0]).bytes
    with opened(model, 2 * size + size // 2, sessions=SessionOptions(eviction=eviction)) as attached:
        store, tier = attached.sessions, attached.sessions.memory
        waiting = [Request((*TEXTS[number][0].tolist(), 7), "", 4) for number in (2, 0)]
        tier._window.stored(size)  # as the sessions that the other process stored
        store.prefetch.see(waiting)
        tier.wait()
        assert store.stats.memory_fetches == 2
        assert [one in tier for one in numbers] == [True, False, True, False]
        new = turn(attached, prompts(1, 150, seed=70))
        left = [one in tier for one in (*numbers, new)]
        assert left == ([True, False, True, False, False] if eviction == "queue-aware" else [True, *[False] * 3, True])
        cache = store.cache(waiting[1].prompt)
        assert cache.batch.placement.loads_from_memory
        assert counted(attached) == (1, 1)


def test_what_leaves_the_store_leaves_memory(opened, model):
    with opened(model, sessions=SessionOptions(bounds=Bounds(sessions=2))) as attached:
        store, tier = attached.sessions, attached.sessions.memory
        numbers = [turn(attached, text) for text in TEXTS[:3]]
        assert [one in tier for one in numbers] == [False, True, True]
        store.stored.erase([numbers[1]])
        assert [one in tier for one in numbers] == [False, False, True]
        store.stored.drop([numbers[2]])
        assert (len(tier), tier.bytes) == (0, 0)


def test_tenants_do_not_find_each_others_copies(opened, model):
    bounds = Bounds(tenant_bytes=400 * 3 * 4 * 32 * 4)  # two sessions
    with opened(model, sessions=SessionOptions(bounds=bounds)) as attached:
        store, tier = attached.sessions, attached.sessions.memory
        first = turn(attached, TEXTS[0], tenant="a")
        assert store.cache(TEXTS[0], tenant="b").get_seq_length() == 0
        assert counted(attached) == (0, 0)
        store.prefetch.see([Request(tuple(TEXTS[0][0].tolist()), "", 4, "b")])
        assert store.stats.memory_fetches == 0
        others = [turn(attached, text, tenant="b") for text in TEXTS[1:]]
        assert [one in tier for one in (first, *others)] == [True, False, True, True]  # b's own quota
        assert store.cache(TEXTS[0], tenant="a").get_seq_length() == 149
        assert counted(attached) == (1, 1)


def test_a_copy_that_cannot_be_read_is_loaded_from_the_drive_or_computed(opened, model):
    with opened(model) as attached:
        number = turn(attached, TEXTS[0])
        expected = greedy(model, TEXTS[0], 20, past_key_values=attached.cache())
    with opened(model) as attached:
        store, target = attached.sessions, attached._storage.backing.queues[0].target
        entry = store.index.get(number)
        rows = np.ones((8, 8192, 128), np.float16)  # so much that nothing of the session waits in the drive's memory
        Session(target).append(0, abi.KvKind.KEYS, 0, rows)
        target._drive.inject("read_uncorrectable")
        store.memory.bring([entry])
        with pytest.raises(CommandError):
            store.memory.wait()
        assert not store.memory.whole(entry)
        assert torch.equal(greedy(model, TEXTS[0], 20, past_key_values=store.cache(TEXTS[0])), expected)


def test_tokens_that_left_the_middle_are_loaded_from_memory(opened, model):
    trim = {"overflow": "trim", "context": 384}  # groups of 64 tokens
    ids = prompts(1, 350)
    with attach(model, "emulator", active="memory", **trim) as one:
        expected = greedy(model, ids, 120, past_key_values=one.cache())
    with opened(model, **trim) as attached:
        cache = attached.sessions.cache(ids, "talk")
        tokens = greedy(model, ids, 60, past_key_values=cache)
        assert cache.batch.removed
        attached.sessions.release(cache)
        attached.sessions.memory.wait()
        cache = attached.sessions.cache(tokens, "talk")
        assert cache.get_seq_length() == tokens.shape[1] - 1
        assert torch.equal(greedy(model, tokens, 60, past_key_values=cache), expected)
        assert counted(attached) == (1, 1)


def test_hits_by_tier_are_in_the_metrics(opened, model):
    with opened(model) as attached:
        finished = PrefixCache(attached.sessions, 1)
        turn(attached, TEXTS[0])
        turn(attached, torch.cat([TEXTS[0], TEXTS[1][:, :20]], dim=1))
        metrics = Metrics()
        metrics.sessions.update(finished.figures())
        assert metrics.value("sessions_loads_total") == metrics.value("sessions_memory_hits_total") == 1
        assert metrics.value("sessions_memory") == 1
        assert metrics.value("sessions_memory_bytes") == attached.sessions.memory.bytes > 0


def test_where_the_drives_attend_it_is_refused(model, target):
    with pytest.raises(ConflictError, match="nothing is loaded, so a copy gains nothing"):
        attach(model, target, session_memory=ROOM, sessions=True)
    with pytest.raises(InputError, match="cannot be negative"):
        attach(model, target, active="memory", session_memory=-1)


def test_a_session_larger_than_the_budget_changes_nothing():
    residents = Residents(10, "lru")
    assert residents.admit(1, 4, list) == []
    assert residents.admit(2, 11, list) == [2]
    residents.pin(1, pinned=True)
    assert residents.admit(3, 8, list) == [3]  # nothing may leave for it
    assert (len(residents), residents.bytes) == (1, 4)
