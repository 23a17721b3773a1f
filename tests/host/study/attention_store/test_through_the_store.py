"""A trace through the real store, in virtual time: the same hits by tier as the replay, for each policy.

Requests are computed by a small model on an emulated drive. Time passes only in the replay's clock; what the store
reads in the background has ended before the next event, as on a disk that takes no time.
"""

import math
import random
from dataclasses import asdict
from itertools import product

import pytest
import torch
from attached_drives import LOADING_PAYS, attached_in
from pairs import some_quick
from small_models import SMALL, random_model
from transformers import LlamaConfig

from kvdrive.prefix.options import Bounds, SessionOptions
from kvdrive.prefix.request import Request as Asked
from kvdrive.study.attention_store.hardware import Machine, Model
from kvdrive.study.attention_store.simulation import Replay, replay
from kvdrive.study.attention_store.traces import Request, Trace

CONFIG = LlamaConfig(**SMALL | {"num_hidden_layers": 1, "max_position_embeddings": 4096}, num_key_value_heads=2)
BLOCK = 64


class Through(Replay):
    """The replay's events, with `store` in place of its own index and memory."""

    def __init__(self, attached, *arguments):
        super().__init__(*arguments, keep=True)
        self._attached, self._store = attached, attached.sessions
        self._caches = {}

    def _session_of(self, request):
        return None

    def _note(self):
        self._store.prefetch.note([asked(one.request) for one in self._queue])

    def _prefetch(self):
        if not self._machine.prefetch:
            return self._note()
        self._store.prefetch.see([asked(one.request) for one in self._queue])
        self._store.memory.wait()

    def _find(self, request):
        self._note()
        stats = self._store.stats
        before = stats.memory_hits
        cache = self._store.cache(tokens_of(request), new_tokens=request.output)
        found = cache.get_seq_length()
        self._compute(cache, tokens_of(request))
        self._store.memory.wait()
        self._caches[id(request)] = cache
        self._from_memory = stats.memory_hits > before
        return found, None

    def _load(self, entry, tokens, *, counts):
        self.result.hits += counts
        self.result.memory_hits += counts and self._from_memory
        return 0.0

    def _put(self, request):
        cache, evictions = self._caches.pop(id(request)), self._store.stats.evictions
        self._compute(cache, tokens_of(request, request.tokens + request.output))
        self._store.release(cache)
        self._store.memory.wait()
        self.result.evictions += self._store.stats.evictions - evictions
        assert self._store.memory.bytes <= self._machine.memory

    def _compute(self, cache, tokens):
        with torch.no_grad():
            self._attached._model(torch.tensor([tokens[cache.get_seq_length() :]]), past_key_values=cache)


def tokens_of(request, count=None):
    """The first tokens of a conversation, whose name is in its keys."""
    generator = torch.Generator().manual_seed(request.kept[0] >> 24)
    return torch.randint(3, 300, (4096,), generator=generator).tolist()[: count or request.tokens]


def asked(request):
    return Asked(tuple(tokens_of(request)), "", request.output)


def talks(count, seed):
    """Conversations of up to 5 turns, a burst of them at a time; questions and answers are whole blocks."""
    rng = random.Random(seed)

    def turn(name, number, left, history, seconds):
        prompt = history + BLOCK * rng.randint(1, 2)
        output = BLOCK * rng.randint(1, 2)
        keys = tuple((name << 24) + 1 + block for block in range((prompt + output) // BLOCK))
        then = turn(name, number + 1, left - 1, prompt + output, rng.uniform(0.5, 6.0)) if left else None
        return Request(seconds, keys[: prompt // BLOCK], prompt, output, keys, number, then=then)

    found = [turn(name + 1, 0, rng.randint(0, 4), 0, name // 4 * 8.0 + rng.random()) for name in range(count)]
    return Trace("talks", BLOCK, sorted(found, key=lambda one: one.seconds))


def counts(result):
    names = ("requests", "returning", "hits", "memory_hits", "prompt_tokens", "cached_tokens", "evictions")
    return {name: asdict(result)[name] for name in names}


@pytest.fixture(scope="module")
def small():
    return random_model(CONFIG)


@pytest.fixture(scope="module")
def per_token(small, tmp_path_factory):
    """Bytes of a token as the store counts them."""
    with attached_in(tmp_path_factory.mktemp("size"), small, 1, sessions=True) as attached, torch.no_grad():
        assert attached.sessions.block == BLOCK
        small(torch.ones(1, 64, dtype=torch.int64), past_key_values=(cache := attached.sessions.cache()))
        return attached.sessions.index.get(attached.sessions.release(cache)).bytes_per_token


POLICIES = "queue-aware", "lru", "fifo"
QUICK = [(7, policy, True) for policy in POLICIES] + [(7, "queue-aware", False)]


@pytest.mark.parametrize(("seed", "policy", "prefetch"), some_quick(product((5, 7, 8), POLICIES, (True, False)), QUICK))
def test_hits_by_tier_are_those_of_the_replay(tmp_path, small, per_token, seed, policy, prefetch):
    trace, room = talks(16, seed), 500 * per_token
    machine = Machine(3 * room, 4 * room, math.inf, math.inf, slots=2, prefetch=prefetch)
    model = Model(per_token, 0.002, 0.02)
    expected = replay(trace, model, machine, policy)
    options = SessionOptions(bounds=Bounds(bytes=7 * room), eviction=policy, every=1 << 30)
    with attached_in(
        tmp_path / "store", small, 1, sessions=options, active="memory", session_memory=3 * room
    ) as attached:
        attached.sessions.costs.rates = LOADING_PAYS
        found = Through(attached, trace, model, machine, policy).run(0)
    assert counts(found) == counts(expected)
    assert 0 < found.memory_hits <= found.hits <= found.returning
    if (policy, prefetch, seed) in (("lru", True, 7), ("fifo", True, 7), ("queue-aware", False, 7)):
        assert found.memory_hits < found.hits < found.returning
    assert found.evictions
