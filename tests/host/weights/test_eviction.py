"""Which expert leaves memory: always the one of the lowest rank, found without looking at all of them."""

import random

import pytest

from kvdrive.weights.eviction import make_eviction


@pytest.mark.parametrize("name", ["lfu", "lru"])
def test_the_expert_of_the_lowest_rank_leaves(name, tmp_path):
    policy = make_eviction(name, tmp_path / "w")
    chance, held = random.Random(1), set()
    for _ in range(3000):
        key = (chance.randrange(4), int(chance.paretovariate(1)) % 60)
        policy.used(key)
        if key in held:
            continue
        if len(held) == 50:
            keeping = set(chance.sample(sorted(held), chance.randrange(49)))
            lowest = min(policy.rank(one) for one in held - keeping)
            leaves = policy.victim((held - keeping).__contains__)
            assert leaves in held - keeping
            assert policy.rank(leaves) == lowest
            held.remove(leaves)
        policy.came(key)
        held.add(key)
    for key in sorted(held)[:10]:
        policy.left(key)  # its read has failed
        held.remove(key)
    while held:
        held.remove(policy.victim(lambda one: True))
    assert policy.victim(lambda one: True) is None


@pytest.mark.parametrize("name", ["lfu", "lru"])
def test_an_eviction_looks_at_few_experts(name, tmp_path, monkeypatch):
    policy = make_eviction(name, tmp_path / "w")
    for expert in range(4000):
        policy.used((0, expert))
        policy.came((0, expert))
    ranks, rank = [], policy.rank
    monkeypatch.setattr(policy, "rank", lambda key: ranks.append(key) or rank(key))
    for expert in range(4000, 6000):
        policy.used((0, expert))
        policy.victim(lambda one: True)
        policy.came((0, expert))
    assert len(ranks) <= 2 * 2000 + 4000
