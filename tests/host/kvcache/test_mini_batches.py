"""Mini-batches: the bits of one batch, and drives that attend while the host computes."""

import copy
import threading

import pytest
import torch
from pairs import some_quick
from small_models import CONFIGS, prompts, random_model

from kvdrive.errors import InputError, RangeError, UnsupportedError
from kvdrive.kvcache import asking
from kvdrive.kvcache.mini_batches import Pace
from kvdrive.kvcache.on_drives import DriveLayer
from kvdrive.kvcache.turns import Turns
from kvdrive.plugins.transformers import attach
from kvdrive.targets.wrapped import WrappedTarget

ROWS, STEPS = 5, 8

CHOOSING = [("llama", torch.bfloat16, {"attention": name, "ratio": 1 / 4}) for name in ("sparf", "groups")]


def model_of(name, dtype=torch.bfloat16):
    return random_model(CONFIGS[name]).to(dtype)


def logits(model, target, **options):
    """Logits of a padded prompt, of steps, and of a later turn of several tokens; and the statistics."""
    ids, nexts, turn = prompts(ROWS, 40), prompts(ROWS, STEPS, seed=3), prompts(ROWS, 9, seed=4)
    mask = torch.ones(ROWS, 100, dtype=torch.int64)
    mask[0, :7] = mask[3, :2] = 0
    found = []
    with attach(model, target, spill=5, **options) as attached, torch.no_grad():
        cache = attached.cache(rows=ROWS)
        for tokens in (ids, *nexts.split(1, dim=1), turn, nexts[:, :1]):
            length = cache.get_seq_length() + tokens.shape[1]
            output = model(tokens, attention_mask=mask[:, :length], past_key_values=cache)
            assert output.past_key_values is cache
            found.append(output.logits)
        stats = cache.batch.statistics.writeback()
    return torch.cat(found, dim=1), stats


@pytest.mark.parametrize(
    ("name", "dtype", "options"),
    some_quick(
        [(name, dtype, {}) for name in ("opt", "llama", "qwen3") for dtype in (torch.float32, torch.bfloat16)]
        + [("opt", torch.bfloat16, {"xcache": 0.4}), ("qwen3", torch.float32, {"xcache": 1.0}), *CHOOSING],
        [
            ("opt", torch.float32, {}),
            ("qwen3", torch.bfloat16, {}),
            ("opt", torch.bfloat16, {"xcache": 0.4}),
            *CHOOSING,
        ],
    ),
    ids=str,
)
def test_logits_have_the_bits_of_one_batch(target, name, dtype, options):
    model = model_of(name, dtype)
    wanted, before = logits(model, target, **options)
    for count in (2, 3):
        found, stats = logits(model, target, mini_batches=count, **options)
        assert torch.equal(found, wanted)
        for same in ("pending_tokens", "bytes_sent", "heads_scaled"):
            assert stats[same] == before[same]
        assert (stats["xcache"] or {}).get("alpha") == pytest.approx((before["xcache"] or {}).get("alpha"))
        assert stats["unread"] == pytest.approx(before["unread"])
    assert target._drive.sessions() == []


class HostEvents:
    """Beginnings and ends of the model's layers, and how long a drive waits for the next one."""

    def __init__(self, model, seconds):
        self.count, self.changed, self.seconds = 0, threading.Condition(), seconds
        for module in model.get_decoder().layers:
            module.register_forward_pre_hook(self.happened)
            module.register_forward_hook(self.happened)

    def happened(self, *_):
        with self.changed:
            self.count += 1
            self.changed.notify_all()

    def follows(self, seen):
        with self.changed:
            return self.changed.wait_for(lambda: self.count > seen, self.seconds)


@pytest.mark.parametrize(("count", "seconds"), [(1, 0.01), (2, 60), (3, 60)])
def test_the_host_computes_while_the_drives_attend(target, monkeypatch, count, seconds):
    """The drive answers queries when the host has begun or ended a layer since they were sent; one batch never does."""
    model, ids = model_of("llama"), prompts(ROWS, 20)
    events, overlapped, send = HostEvents(model, seconds), [], asking.send

    def sent(jobs, here):
        jobs, seen = list(jobs), events.count
        overlapped.append(jobs[0][0].queue.start(lambda _: events.follows(seen)))
        return send(jobs, here)

    with attach(model, target, mini_batches=count) as attached, torch.no_grad():
        cache = attached.cache(rows=ROWS)
        model(ids, past_key_values=cache)
        monkeypatch.setattr(asking, "send", sent)
        for _ in range(3):
            model(ids[:, :1], past_key_values=cache)
    assert [one.result() for one in overlapped] == [count > 1] * (3 * 2 * count)


def test_a_call_that_fails_is_undone_in_all_mini_batches(target, monkeypatch):
    model, ids = model_of("qwen3"), prompts(3, 20)
    failing, right = [], DriveLayer.queries

    def queries(self, call):
        if failing and self.stored.index == 1 and failing.pop():
            raise RangeError("too large")
        return right(self, call)

    with attach(model, target, mini_batches=3) as attached, torch.no_grad():
        cache, wanted = attached.cache(rows=3), []
        model(ids, past_key_values=cache)
        monkeypatch.setattr(DriveLayer, "queries", queries)
        for fails in ([], [True], [True, False], [True, False, False]):
            failing[:] = fails
            if fails:
                with pytest.raises(RangeError, match="too large"):
                    model(ids[:, :1], past_key_values=cache)
            assert cache.get_seq_length() == 20
            wanted.append(model(ids[:, :1], past_key_values=cache).logits)
            cache.batch.undo(20)
    assert all(torch.equal(wanted[0], found) for found in wanted)


def test_a_failed_call_is_undone_where_only_some_mini_batches_had_written(target, monkeypatch):
    """The first mini-batch has sent its pending tokens when the second one fails: both continue from one state."""
    model, ids = model_of("llama"), prompts(2, 15)
    right, fails = DriveLayer.queries, []

    def queries(self, call):
        if fails and self.stored.index == 1:
            fails.pop()
            if not fails:
                raise RangeError("too large")
        return right(self, call)

    with attach(model, target, mini_batches=2, spill=4) as attached, torch.no_grad():
        cache = attached.cache(rows=2)
        model(ids, past_key_values=cache)
        monkeypatch.setattr(DriveLayer, "queries", queries)
        fails[:] = [1, 2]
        with pytest.raises(RangeError, match="too large"):
            model(ids[:, :1], past_key_values=cache)
        found = [model(ids[:, at : at + 1], past_key_values=cache).logits for at in range(6)]
    with attach(model, target, spill=4) as attached, torch.no_grad():
        cache = attached.cache(rows=2)
        model(ids, past_key_values=cache)
        wanted = [model(ids[:, at : at + 1], past_key_values=cache).logits for at in range(6)]
    assert all(torch.equal(one, other) for one, other in zip(found, wanted, strict=True))


def test_rows_move_and_tokens_go_between_two_calls(target, tmp_path):
    """Crops, beams, copies and saved caches are those of one batch, whatever a call's schedule is."""
    model, ids = model_of("qwen3"), prompts(3, 20)

    def logits_of(count):
        found = []
        with attach(model, target, mini_batches=count) as attached, torch.no_grad():
            cache = attached.cache(rows=3)

            def step(past):
                rows = len(past.batch.sequences)
                found.append(model(ids[:rows, :1], past_key_values=past).logits)

            model(ids, past_key_values=cache)
            step(cache)
            cache.crop(-3)
            step(cache)
            cache.reorder_cache(torch.tensor([2, 2, 0]))
            step(cache)
            copied = copy.deepcopy(cache)
            step(copied)
            attached.save(cache, tmp_path / "saved.json")
            step(cache)
            cache.batch_select_indices(torch.tensor([0, 2]))
            step(cache)
            attached._calls.recovery.recompute(cache.batch)
            step(cache)
            copied.batch.reset()
        return found

    wanted = logits_of(1)
    for count in (2, 3):
        assert all(torch.equal(*both) for both in zip(logits_of(count), wanted, strict=True))


def test_calls_with_other_rows_than_the_batch_are_refused(target):
    model = model_of("llama")
    with attach(model, target, mini_batches=3) as attached:
        cache = attached.cache(rows=2)
        model(prompts(2, 4), past_key_values=cache)
        with pytest.raises(UnsupportedError, match="holds 2 sequences, the call 3"):
            model(prompts(3, 4), past_key_values=cache)


def test_sequences_of_a_shared_step_are_mini_batches(target, monkeypatch):
    model, steps = model_of("llama").double(), prompts(4, 6, seed=3)
    threads, right = set(), DriveLayer.queries
    found = {}
    for count in (1, 3):
        with attach(model, target, mini_batches=count) as attached, torch.no_grad():
            caches = [attached.cache() for _ in range(4)]
            for row, cache in enumerate(caches):
                model(prompts(1, 10 + 7 * row, seed=row), past_key_values=cache)
            with monkeypatch.context() as patch:
                patch.setattr(
                    DriveLayer, "queries", lambda self, call: threads.add(threading.get_ident()) or right(self, call)
                )
                joined = [attached.step_together(caches, ids[:, None].tolist()) for ids in steps.T]
        assert all(failed == [] for _, failed in joined)
        found[count] = torch.stack([logits for logits, _ in joined])
    assert torch.equal(found[1], found[3])
    assert len(threads) == 3


@pytest.mark.parametrize(("host", "drives", "count"), [(4, 4, 1), (4, 7, 2), (4, 8, 2), (1, 20, 1), (4, 0, 1)])
def test_two_mini_batches_are_taken_where_measured_times_say_that_they_pay(host, drives, count):
    """(host + drives) / max(2 host, drives) is 1.0, 1.37, 1.5, 1.05 and 0.5."""
    pace = Pace()
    for _ in range(3):
        assert pace.count(8) is None
        pace.took(8, host, drives)
    assert [pace.count(8) for _ in range(60)] == [count] * 60
    assert pace.count(8) is None  # the 64th call
    assert pace.count(2) is None  # another number of rows


def test_a_slow_drive_gets_mini_batches_by_itself(target):
    """Its times stand for what a clock would say: the model waits twice as long as it computes."""
    model, ids = model_of("llama"), prompts(4, 20)
    with attach(model, target) as attached:
        assert attached._schedule._pace is None  # this drive computes on the host's cores
    remote = Remote(target)
    with attach(model, remote) as attached, torch.no_grad():
        pace = attached._schedule._pace
        cache, counts, right = attached.cache(rows=4), [], pace.count
        pace.count = lambda rows: counts.append(right(rows)) or counts[-1]
        pace.took = lambda rows, host, drives: Pace.took(pace, rows, 1.0, 2.0 if drives > 0 else 0.0)
        model(ids, past_key_values=cache)
        found = [model(ids[:, :1], past_key_values=cache).logits for _ in range(5)]
    assert counts == [None, None, None, 2, 2]
    with attach(model, target) as attached, torch.no_grad():
        cache = attached.cache(rows=4)
        model(ids, past_key_values=cache)
        assert all(torch.equal(one, model(ids[:, :1], past_key_values=cache).logits) for one in found)


class Remote(WrappedTarget):
    """A drive that other machines may use as well."""

    def __init__(self, drive):
        super().__init__(drive)
        self.exclusive = False


def test_text_is_that_of_one_batch(target):
    """`model.generate` makes the cache itself, and passes the number of rows."""
    model, ids = model_of("llama"), prompts(4, 30)
    texts = []
    for count in (1, 2):
        with attach(model, target, mini_batches=count):
            texts.append(model.generate(ids, max_new_tokens=12, do_sample=False))
    assert torch.equal(*texts)


@pytest.mark.parametrize(
    ("name", "options", "sentence"),
    [
        ("llama", {"mini_batches": 0}, "a batch has 'auto' or 1 mini-batch or more, not 0"),
        ("llama", {"attention": "h2o", "ratio": 0.5}, "it retains the tokens that it chose on the host"),
        ("mixtral", {}, "an expert's products depend on how many rows"),
    ],
)
def test_what_needs_one_batch_is_refused(target, name, options, sentence):
    model = model_of(name)
    with pytest.raises((InputError, UnsupportedError), match=sentence):
        attach(model, target, **{"mini_batches": 2} | options)
    with attach(model, target):  # nothing was left behind
        pass


def test_turns_are_in_order_and_a_thread_may_leave():
    turns, said = Turns(3), []

    def work(number):
        turns.wait(number)
        for _ in range(3 - number):
            said.append(number)
            turns.pass_on(number)
        turns.end(number)

    threads = [threading.Thread(target=work, args=(number,)) for number in range(3)]
    for thread in reversed(threads):
        thread.start()
    for thread in threads:
        thread.join(60)
    assert said == [0, 1, 2, 0, 1, 0]
