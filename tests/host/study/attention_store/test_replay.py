"""Replays: hit rates equal an independent calculation; policies, tiers and ways to resume differ as they should."""

import json
import random
from collections import OrderedDict
from itertools import pairwise

import pytest
from pairs import by_value
from typer.testing import CliRunner

from kvdrive.cli.main import app
from kvdrive.errors import InputError
from kvdrive.study.attention_store import evaluation
from kvdrive.study.attention_store.hardware import MODELS, Machine, Model
from kvdrive.study.attention_store.simulation import replay
from kvdrive.study.attention_store.traces import Context, Request, Trace, conversations, interleaved, read
from kvdrive.study.stated import watched

MODEL = Model(10, 0.001, 0.001)


def branching(count, seed):
    """Requests far apart, over trees of prefixes: they go on with, branch off and repeat earlier ones."""
    rng, requests, known, fresh = random.Random(seed), [], [[]], iter(range(1, 10**6))
    for number in range(count):
        base = rng.choice(known[-12:])
        keys = [*base[: rng.randint(0, len(base))], *(next(fresh) for _ in range(rng.randint(0, 4)))] or [next(fresh)]
        known.append(keys)
        requests.append(Request(1000.0 * number, tuple(keys), 4 * len(keys) + 1, 1, tuple(keys), 1))
    return Trace("branching", 4, requests)


def lru(trace, limit):
    """Cached tokens, hits and evictions of an LRU of whole sessions that share blocks; nothing of the store is used."""
    kept, cached, hits, evictions = OrderedDict(), 0, 0, 0

    def longest(keys):
        depth = max((common(other, keys) for other in kept.values()), default=0)
        if not depth:
            return 0, None
        names = [name for name, other in kept.items() if common(other, keys) == depth]
        whole = [name for name in names if len(kept[name]) == depth]
        return depth, (whole or names)[-1]

    for name, request in enumerate(trace.requests):
        depth, found = longest(request.keys)
        if found is not None:
            kept.move_to_end(found)
            cached += min(depth * trace.block, request.tokens - 1)
            hits += 1
        depth, found = longest(request.kept)
        if depth == len(request.kept):
            kept.move_to_end(found)
            continue
        if found is not None and len(kept[found]) == depth:
            del kept[found]
        kept[name] = request.kept
        while len({key for keys in kept.values() for key in keys}) * trace.block * MODEL.bytes_per_token > limit:
            kept.popitem(last=False)
            evictions += 1
    return cached, hits, evictions


def common(a, b):
    return next((i for i, (x, y) in enumerate(zip(a, b, strict=False)) if x != y), min(len(a), len(b)))


@by_value({"blocks": [5, 20, 60], "seed": [1, 2]})
def test_lru_equals_an_independent_calculation(blocks, seed):
    trace, limit = branching(300, seed), blocks * 4 * MODEL.bytes_per_token
    found = replay(trace, MODEL, Machine(memory=limit // 2, disk=limit - limit // 2, slots=1), "lru")
    assert (found.cached_tokens, found.hits, found.evictions) == lru(trace, limit)
    assert found.evictions > 0


def test_without_a_bound_all_history_is_found():
    trace = conversations(40, 0.5, seed=3)
    found = replay(trace, MODELS["llama-13b"], Machine(in_place=True), "lru")
    assert found.returning == found.hits > 50
    nothing = replay(trace, MODELS["llama-13b"], Machine(), "lru", keep=False)
    assert (nothing.hits, nothing.cached_tokens, nothing.bytes_written) == (0, 0, 0)
    assert nothing.prefill > 2 * found.prefill


def test_queue_aware_keeps_what_waits():
    """A burst: many conversations wait for two slots, and the store holds few of them."""
    trace = conversations(40, 1.0, seed=4, arrivals="azure")
    machine = Machine(memory=5 * 10**9, disk=4 * 10**10, slots=2)
    policies = ("queue-aware", "lru", "fifo")
    hits = {policy: replay(trace, MODELS["llama-13b"], machine, policy).hits for policy in policies}
    assert hits["queue-aware"] > hits["lru"]
    assert hits["queue-aware"] > hits["fifo"]


def test_overlap_saves_time_and_attention_in_place_loads_nothing():
    trace = conversations(30, 0.3, seed=5)
    machine = Machine(memory=10**12, disk=10**13)
    ways = {
        name: replay(trace, MODELS["llama-65b"], Machine(machine.memory, machine.disk, **options), "lru")
        for name, options in (("loaded", {"overlap": False}), ("overlapped", {}), ("in place", {"in_place": True}))
    }
    assert ways["loaded"].prefill > ways["overlapped"].prefill > ways["in place"].prefill


def test_a_restore_that_does_not_pay_is_a_recompute():
    trace, slow = conversations(20, 0.3, seed=8), Machine(memory=0, disk_rate=1e8)
    found, never = (replay(trace, MODELS["llama-13b"], slow, "lru", keep=keep) for keep in (True, False))
    assert found.recomputed > 0.9 * found.returning > 0
    assert found.prefill <= never.prefill


def test_tokens_are_found_also_where_computing_them_again_is_faster():
    trace = conversations(20, 0.3, seed=8)
    slow, fast = (replay(trace, MODELS["llama-13b"], Machine(memory=0, disk_rate=rate), "lru") for rate in (1e8, 1e12))
    assert (slow.hits, slow.cached_tokens) == (fast.hits, fast.cached_tokens)
    assert 0 <= slow.loaded_tokens < 0.1 * fast.loaded_tokens
    assert fast.loaded_tokens == fast.cached_tokens
    assert slow.figures(Machine())["token_hit_rate"] > 0.5


@pytest.mark.parametrize("name", MODELS)
def test_a_prefill_in_two_parts_takes_as_long_as_in_one(name):
    model = MODELS[name]
    assert model.compute(700) + model.compute(1300, 700) == pytest.approx(model.compute(2000))
    assert model.compute(2000) > 2 * model.compute(1000)


def test_the_published_prefill_of_llama_65b_is_the_models():
    assert MODELS["llama-65b"].compute(2048) == pytest.approx(0.360)


def test_prefetch_brings_sessions_into_memory():
    trace = conversations(50, 1.0, seed=6)
    machine = {"memory": 4 * 10**9, "disk": 10**13, "slots": 2}
    with_it, without = (
        replay(trace, MODELS["llama-13b"], Machine(**machine, prefetch=prefetch), "lru") for prefetch in (True, False)
    )
    assert with_it.memory_hits > without.memory_hits


def turns(first):
    chain = [first]
    while chain[-1].then is not None:
        chain.append(chain[-1].then)
    return chain


def test_conversations_have_the_published_statistics():
    chains = [turns(first) for first in conversations(3000, 1.0, seed=7).requests]
    longest = [max(request.tokens + request.output for request in chain) for chain in chains]
    assert 5.5 < sum(map(len, chains)) / 3000 < 6.0
    assert 0.70 < sum(len(chain) > 1 for chain in chains) / 3000 < 0.76
    assert 0.40 < sum(tokens > 2048 for tokens in longest) / 3000 < 0.55
    assert 0.22 < sum(tokens > 4096 for tokens in longest) / 3000 < 0.38


def test_a_question_comes_after_the_answer():
    """With one slot and slow steps, turns of a conversation still follow each other: their history is found."""
    trace = conversations(8, 100.0, seed=2, think=1.0)
    found = replay(trace, Model(10, 0.01, 1.0), Machine(slots=1), "lru")
    assert found.returning == found.hits > 10
    assert found.decode == pytest.approx(sum(request.output for request in trace))


def test_interleaved_turns_keep_their_order_and_their_history():
    """Turns arrive far faster than they are answered: each waits for the answer before it, and finds its history."""
    trace = interleaved(30, 100.0, seed=2)
    assert len(trace.requests) == sum(1 for _ in trace) == sum(1 for _ in conversations(30, 1.0, seed=2))
    assert [request.seconds for request in trace] == sorted(request.seconds for request in trace)
    for number in {request.conversation for request in trace}:
        turns_of = [request.turn for request in trace if request.conversation == number]
        assert turns_of == list(range(len(turns_of)))
    found = replay(trace, Model(10, 0.001, 0.01), Machine(slots=24), "lru")
    assert found.returning == found.hits > 50


def test_policies_lose_in_the_papers_order_where_turns_are_interleaved():
    """A fifth of the sessions fit: what the queue names is kept, and the order of use says little."""
    trace = interleaved(120, 20.0, seed=3, context=Context(2048))
    machine = Machine(memory=4 * 10**9, disk=38 * 10**9, slots=4, reserved=True)
    ahead, lru, fifo = (replay(trace, MODELS["llama-13b"], machine, p).hits for p in ("queue-aware", "lru", "fifo"))
    assert ahead > 1.2 * max(lru, fifo)


def test_sessions_that_take_a_whole_context_fill_the_store_sooner():
    trace = interleaved(60, 20.0, seed=3, context=Context(2048))
    own, whole = (
        replay(trace, MODELS["llama-13b"], Machine(10**9, 3 * 10**10, reserved=reserved), "lru")
        for reserved in (False, True)
    )
    assert whole.evictions > own.evictions
    assert whole.hits < own.hits
    assert replay(trace, MODELS["llama-13b"], Machine(reserved=True), "lru").cached_tokens == (
        replay(trace, MODELS["llama-13b"], Machine(), "lru").cached_tokens
    )


def test_progress_is_called_for_each_request():
    seen = []
    trace = conversations(5, 1.0, seed=1)
    replay(trace, MODELS["llama-13b"], Machine(), "lru", progress=lambda: seen.append(1))
    assert len(seen) == sum(1 for _ in trace)


@pytest.mark.parametrize("decoupled", [True, False])
def test_a_context_is_cut_at_the_window(decoupled):
    window = 512
    trace = conversations(30, 1.0, seed=3, context=Context(window, decoupled=decoupled))
    assert all(request.tokens + request.output <= window for request in trace)
    pairs = [pair for first in trace.requests for pair in pairwise(turns(first))]
    cut = [(a, b) for a, b in pairs if b.tokens <= a.tokens + a.output]
    assert len(cut) > 20
    assert all((a.kept == b.keys) == decoupled for a, b in cut)
    found = replay(trace, MODELS["llama-13b"], Machine(), "lru")
    assert (found.hits > found.returning - len(cut)) == decoupled
    # What a cut has made worthless does not stay: a conversation has one session at most.
    bounded = replay(trace, MODELS["llama-13b"], Machine(memory=0, disk=30 * window * 820_000), "lru")
    assert bounded.evictions == 0


def test_the_first_requests_are_not_counted():
    trace = conversations(20, 1.0, seed=5)
    count = sum(1 for _ in trace)
    whole, rest = (replay(trace, MODELS["llama-13b"], Machine(), "lru", warm_up=warm_up) for warm_up in (0, 50))
    assert (whole.requests, rest.requests) == (count, count - 50)
    assert rest.hits < whole.hits
    assert rest.decode < whole.decode


def test_the_recorded_evaluation_names_every_setting():
    for setting in evaluation.SETTINGS:
        assert (evaluation.result(setting).hits > 0) == bool(setting.policy)
    assert {setting.model for setting in evaluation.SETTINGS} == set(MODELS)


def test_the_recorded_evaluation_names_the_claims_whose_numbers_went_into_it():
    setting = evaluation.Setting("llama-13b")
    with watched() as replayed:
        evaluation.run(setting, share=300)
    with watched() as recorded:
        evaluation.result(setting)
    assert recorded == replayed == {"AS-01", "AS-02", "AS-03", "AS-05", "AS-13"}


@pytest.mark.slow
def test_the_recorded_evaluation_is_what_a_replay_finds():
    setting = evaluation.Setting("llama-70b")
    assert evaluation.run(setting) == evaluation.result(setting)


def write(path, rows):
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))


def test_a_trace_file_is_replayed_and_reported(tmp_path):
    def row(n):
        blocks = [0, 1 + n % 3, 10 + n % 3, 20 + n]
        return {"timestamp": 60_000 * n, "input_length": 2036, "output_length": 5, "hash_ids": blocks}

    write(tmp_path / "trace.jsonl", [row(n) for n in range(12)])
    report = ["--report", str(tmp_path / "out"), "--json"]
    arguments = ["replay", str(tmp_path / "trace.jsonl"), "--policies", "lru,fifo", *report]
    done = CliRunner().invoke(app, arguments)
    assert done.exit_code == 0, done.output
    found = json.loads(done.stdout)
    assert found["results"]["lru"]["hit_rate"] == 1
    assert found["results"]["lru"]["token_hit_rate"] == (2 * 512 + 9 * 3 * 512) / (12 * 2036)
    assert found["results"]["recompute"]["token_hit_rate"] == 0
    assert json.loads((tmp_path / "out" / "replay.json").read_text()) == found
    assert (tmp_path / "out" / "replay.png").stat().st_size > 5000


def test_what_is_no_trace_is_refused(tmp_path):
    (tmp_path / "x").write_text('{"timestamp": 1}\n')
    with pytest.raises(InputError, match=r"line 1 of .* is no request"):
        read(tmp_path / "x")
    with pytest.raises(InputError, match="cannot read"):
        read(tmp_path / "nothing")
    assert CliRunner().invoke(app, ["replay", "azure", "--policies", "best"]).exit_code != 0
