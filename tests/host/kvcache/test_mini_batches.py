"""Mini-batches: the bits of one batch, and drives that attend while the host computes."""

import threading

import pytest
import torch
from pairs import some_quick
from small_models import CONFIGS, prompts, random_model

from kvdrive.errors import InputError, RangeError, UnsupportedError
from kvdrive.kvcache import layer as layers
from kvdrive.kvcache.layer import DriveLayer
from kvdrive.kvcache.mini_batches import MiniBatches
from kvdrive.kvcache.turns import Turns
from kvdrive.plugins.transformers import attach

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
        stats = cache.writeback()
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
    events, overlapped, send = HostEvents(model, seconds), [], layers.send

    def sent(jobs, here):
        jobs, seen = list(jobs), events.count
        overlapped.append(jobs[0][0].queue.start(lambda _: events.follows(seen)))
        return send(jobs, here)

    with attach(model, target, mini_batches=count) as attached, torch.no_grad():
        cache = attached.cache(rows=ROWS)
        model(ids, past_key_values=cache)
        monkeypatch.setattr(layers, "send", sent)
        for _ in range(3):
            model(ids[:, :1], past_key_values=cache)
    assert [one.result() for one in overlapped] == [count > 1] * (3 * 2 * count)


def test_a_call_that_fails_is_undone_in_all_mini_batches(target, monkeypatch):
    model, ids = model_of("qwen3"), prompts(3, 20)
    failing, right = [], DriveLayer.queries

    def queries(self, call):
        if failing and self.index == 1 and failing.pop():
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
            cache.undo(20)
    assert all(torch.equal(wanted[0], found) for found in wanted)


def test_a_cache_for_few_rows_has_few_mini_batches(target):
    model = model_of("llama")
    with attach(model, target, mini_batches=3) as attached:
        assert not isinstance(attached.cache(), MiniBatches)
        two = attached.cache(rows=2)
        assert isinstance(two, MiniBatches)
        assert len(two._caches) == 2
        with pytest.raises(UnsupportedError, match="holds 2 sequences in mini-batches, the call 3"):
            model(prompts(3, 4), past_key_values=two)
        for call in (lambda: two.crop(-1), lambda: two.reorder_cache(torch.tensor([1, 0])), lambda: two.save("x")):
            with pytest.raises(UnsupportedError, match="attach with one mini-batch"):
                call()


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
        ("llama", {"mini_batches": 0}, "a batch has one mini-batch or more, not 0"),
        ("llama", {"sessions": True}, "does not go with `sessions`: a session has one cache"),
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
        turns.leave(number)

    threads = [threading.Thread(target=work, args=(number,)) for number in range(3)]
    for thread in reversed(threads):
        thread.start()
    for thread in threads:
        thread.join(60)
    assert said == [0, 1, 2, 0, 1, 0]
