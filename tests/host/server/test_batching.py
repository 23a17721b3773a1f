"""Sequences that share calls of the model: the same tokens as alone, joining and leaving, long prompts in chunks."""

import logging
from fractions import Fraction

import pytest
from scheduled import LONG, Requests, prompt
from small_models import SMALL
from transformers import MistralConfig

from kvdrive.config.run import RunConfig
from kvdrive.errors import RangeError, UnsupportedError
from kvdrive.generation.rules import Rules
from kvdrive.generation.sampling import Sampling
from kvdrive.kvcache.budget import MemoryOptions
from kvdrive.kvcache.on_drives import DriveLayer
from kvdrive.kvcache.parts import PartsLayer
from kvdrive.prefix.options import SessionOptions
from kvdrive.prefix.rates import Rates
from kvdrive.server.jobs import DeadlinePassed
from kvdrive.server.metrics import RATE_SECONDS, Rate


def test_a_token_that_cannot_be_chosen_ends_its_sequence_alone():
    """As a rule does that leaves no number. The others, and later requests, are served."""
    with Requests(running=2) as requests:
        requests.ask("good", prompt(40, 1), 12)
        requests.ask("bad", prompt(30, 2), 12, Sampling(temperature=1.0), rules=Rules(bias={5: float("nan")}))
        (found,) = requests.all_of(["good"])
        assert len(found) == 12
        requests.wait(lambda: "bad" in requests.ends)
        assert isinstance(requests.ends["bad"].error, RuntimeError)
        requests.ask("later", prompt(40, 1), 12)
        assert requests.all_of(["later"]) == [found]
        assert requests.scheduler.failure is None


WORK = {
    "a": (prompt(70, 1), 20, Sampling()),
    "b": (prompt(131, 2), 12, Sampling(temperature=1.5, seed=7)),
    "c": (prompt(3, 3), 24, Sampling(temperature=1.2, top_k=40, seed=8)),
    "d": (prompt(64, 4), 18, Sampling(temperature=2.0, top_p=0.9, seed=9)),
    "e": (prompt(200, 5), 7, Sampling()),
}


def tokens_of(**options):
    with Requests(running=4, chunk=64, **options) as requests:
        for name, work in WORK.items():
            requests.ask(name, *work)
        found = requests.all_of(WORK)
        joined = requests.metric("kvdrive_batch_size_sum") > requests.metric("kvdrive_batch_size_count")
        assert requests.metric("kvdrive_repeated_steps_total") == 0
    return found, joined


@pytest.mark.usefixtures("each_row_alone")
@pytest.mark.parametrize("options", [
    pytest.param({}, marks=pytest.mark.slow),
    {"drives": 2},
    pytest.param({"attention": RunConfig.of(attention="sparf", ratio=Fraction(1, 4), spill=8)}, marks=pytest.mark.slow),
    {"attention": RunConfig.of(attention="groups", ratio=Fraction(1, 4), unit=16, spill=8)},
    {"sessions": SessionOptions()},
    pytest.param({"attention": RunConfig.of(active="memory"), "sessions": SessionOptions()}, marks=pytest.mark.slow),
    {"attention": RunConfig.of(active="memory", memory=MemoryOptions(bytes=1 << 20)), "drives": 2},
], ids=["exact", "two drives", "sparf", "groups", "sessions", "memory", "some in memory"])  # fmt: skip
def test_a_request_gets_the_tokens_that_it_gets_alone(options):
    """Five requests of several lengths, with sampling; one joins when another leaves."""
    together, joined = tokens_of(**options)
    alone, never = tokens_of(**options, batch=1)
    assert together == alone
    assert joined
    assert not never


@pytest.mark.parametrize("sessions", [None, SessionOptions()], ids=["no sessions", "sessions"])
def test_the_end_of_a_request_says_what_it_left_unread(sessions):
    """It counts the steps of this request only, also where it continues with what an earlier one has left."""
    attention = RunConfig.of(attention="groups", ratio=Fraction(1, 4), unit=16)
    with Requests(attention=attention, sessions=sessions, running=1, idle=1) as requests:
        for name in ("first", "second"):
            requests.ask(name, prompt(200, 1), 9)
            requests.all_of([name])
            unread = requests.ends[name].unread
            assert 8 <= unread["steps"] <= 9  # a resumed prompt computes its last token as a step
            assert 0 < unread["mean"] <= unread["worst"] < 1
    with Requests() as requests:
        requests.ask("exact", prompt(200, 1), 3)
        requests.all_of(["exact"])
        assert requests.ends["exact"].unread is None


def test_a_long_prompt_does_not_stop_running_streams():
    """Between the beginning of a prompt and its first token, a running stream gets a token for each chunk."""
    between = {}
    for chunk in (64, 0):
        with Requests(running=2, chunk=chunk) as requests:
            stream = requests.ask("stream", prompt(20, 1), 3000)
            requests.wait(lambda requests=requests: len(requests.order) >= 5)
            requests.ask("long", prompt(1000, 2), 2)
            requests.wait(lambda requests=requests: "long" in requests.ends)
            stream.cancelled.set()
            requests.wait(lambda requests=requests: "stream" in requests.ends)
            first = requests.order.index("long")
            between[chunk] = first, requests.metric("kvdrive_prefill_chunks_total") - 1
            after = len(requests.order) - first
        assert after > 1
    assert between[64][1] == 16  # 1000 / 64
    assert between[64][0] >= 5 + 15
    assert between[0][1] == 1


def test_two_prompts_take_turns():
    """A short prompt behind a long one does not wait for all of it."""
    with Requests(running=3, chunk=64) as requests:
        requests.ask("long", prompt(2000, 1), 2)
        requests.ask("short", prompt(30, 2), 2)
        requests.all_of(["long", "short"])
        assert requests.order.index("short") < requests.order.index("long")


def test_a_prompt_is_left_between_two_chunks():
    with Requests(running=2, chunk=64) as requests:
        requests.ask("stream", prompt(20, 1), 500)
        requests.wait(lambda: len(requests.order) >= 3)
        begun = len(requests.order)
        long = requests.ask("long", prompt(3000, 2), 2)
        requests.wait(lambda: len(requests.order) >= begun + 4)
        long.cancelled.set()
        requests.wait(lambda: "long" in requests.ends)
        assert "stream" not in requests.ends
        assert requests.tokens["long"] == []
        assert requests.metric("kvdrive_prefill_chunks_total") < 1 + 47
        assert requests.metric("kvdrive_cancelled_requests_total") == 1


def test_deadlines_end_waiting_and_running_requests():
    with Requests(running=1) as requests:
        requests.ask("running", prompt(20, 1), 4000, seconds=0.5)
        requests.ask("waiting", prompt(20, 1), 4000, seconds=0.01)
        requests.ask("last", prompt(20, 1), 3)
        requests.wait(lambda: "last" in requests.ends)
        assert isinstance(requests.ends["waiting"].error, DeadlinePassed)
        assert isinstance(requests.ends["running"].error, DeadlinePassed)
        assert requests.tokens["waiting"] == []
        assert 0 < len(requests.tokens["running"]) < 4000
        assert len(requests.tokens["last"]) == 3


@pytest.mark.usefixtures("each_row_alone")
def test_a_sequence_that_fails_leaves_the_others_alone(monkeypatch):
    """The shared step is undone and repeated one by one; only the sequence at fault ends."""
    alone, _ = tokens_of(batch=1)
    update, failing = DriveLayer.update, {}

    def faulty(self, key_states, *args, **kwargs):
        if self.stored.index == 1 and self.stored.tokens == 131 + 5 and key_states.shape[2] == 1:
            failing["part"] = self.part
        if self.stored.index == 1 and failing.get("part") is self.part:
            raise RangeError("K of layer 1 outgrew its scale")
        return update(self, key_states, *args, **kwargs)

    monkeypatch.setattr(DriveLayer, "update", faulty)
    with Requests(running=4, chunk=64) as requests:
        for name, work in WORK.items():
            requests.ask(name, *work)
        requests.wait(lambda: len(requests.ends) == len(WORK))
        assert requests.metric("kvdrive_repeated_steps_total") == 1
    assert isinstance(requests.ends["b"].error, RangeError)
    found = [requests.tokens[name] for name in WORK]
    assert found[1] == alone[1][: len(found[1])]
    assert 0 < len(found[1]) < 12
    assert [found[0], *found[2:]] == [alone[0], *alone[2:]]


def test_steps_that_no_model_can_share_are_not_tried_again(monkeypatch):
    def refuse(self, call):
        raise UnsupportedError("the model masks tokens of a decode step")

    monkeypatch.setattr(PartsLayer, "attend", refuse)
    with Requests(running=4, chunk=64) as requests:
        for name in "abd":
            requests.ask(name, *WORK[name])
        requests.all_of("abd")
        assert 1 <= requests.metric("kvdrive_repeated_steps_total") <= 2


def test_a_model_with_layers_in_memory_runs_one_sequence_at_a_time(caplog):
    config = MistralConfig(**SMALL, num_key_value_heads=4, sliding_window=32)
    with caplog.at_level(logging.WARNING), Requests(config, running=2) as requests:
        for name in "ab":
            requests.ask(name, *WORK[name])
        requests.all_of("ab")
        assert requests.metric("kvdrive_batch_size_sum") == requests.metric("kvdrive_batch_size_count") > 0
    assert "sequences do not share decode steps: its K and V, or some of them, are on the host alone" in caplog.text


@pytest.mark.parametrize("kind", ["sliding window", "h2o"])
def test_a_conversation_continues_where_no_drive_can_store_it(kind):
    """The finished sequence stays in the process. One whose window has moved on cannot go back to an earlier token."""
    sliding = MistralConfig(**LONG, num_key_value_heads=4, sliding_window=32) if kind == "sliding window" else None
    attention = RunConfig.of(attention="h2o", ratio=Fraction(1, 4)) if kind == "h2o" else None
    with Requests(sliding, attention, sessions=SessionOptions(), running=2) as requests:
        requests.ask("first", *WORK["a"])
        text = WORK["a"][0] + requests.all_of(["first"])[0]
        requests.ask("again", [*text, 5, 6], 4)
        requests.ask("back", [*text[:80], 5, 6], 4)
        found = requests.all_of(["again", "back"])
        assert [len(tokens) for tokens in found] == [4, 4]
        ways = requests.metrics.text().decode()
        assert 'kvdrive_resumes_total{strategy="attend"}' in ways or kind == "h2o"  # h2o drops what it evicted


def test_sequences_in_memory_have_prompts_in_parts():
    with Requests(attention=RunConfig.of(active="memory"), running=2, chunk=64) as requests:
        for name in "be":
            requests.ask(name, *WORK[name])
        found = requests.all_of("be")
        assert requests.metric("kvdrive_prefill_chunks_total") == 3 + 4
        assert requests.metric("kvdrive_drive_attention_jobs_total") == 0
    assert [len(tokens) for tokens in found] == [12, 7]


def test_the_session_of_a_waiting_request_is_prefetched():
    loading_pays = Rates(1, 0, 1, 0, 1e-9, 0, 0, 1, 1)
    with Requests(attention=RunConfig.of(active="memory"), sessions=SessionOptions(), running=1) as requests:
        requests.scheduler.with_sessions(lambda store: setattr(store.costs, "rates", loading_pays)).result(30)
        requests.ask("first", *WORK["a"])
        text = WORK["a"][0] + requests.all_of(["first"])[0]
        requests.ask("long", prompt(131, 2), 400)
        requests.wait(lambda: requests.tokens["long"])
        requests.ask("again", [*text, 5], 3)
        requests.wait(lambda: requests.metric("kvdrive_sessions_loads_total") == 1)
        assert "long" not in requests.ends
        assert requests.metric("kvdrive_resumes_total") == 2
        requests.all_of(["again"])
        assert requests.metric("kvdrive_sessions_hits_total") == requests.metric("kvdrive_sessions_loads_total") == 1
        assert 'kvdrive_resumes_total{strategy="load"} 1.0' in requests.metrics.text().decode()


def test_the_rate_counts_the_last_seconds():
    now = [0.0]
    rate = Rate(lambda: now[0])
    for _ in range(20):
        rate.add(1)
        now[0] += 1
    assert rate.per_second() == pytest.approx(1)
    now[0] += RATE_SECONDS + 1
    assert rate.per_second() == 0
