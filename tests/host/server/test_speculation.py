"""Drafted tokens in the server: the tokens, chances and stored sessions that there are without, in fewer calls."""

import json
import shutil
from contextlib import closing
from dataclasses import dataclass, field

import pytest
import torch
from agent_requests import WEATHER
from scheduled import LONG, Requests, prompt
from served_here import ServedHere
from transformers import LlamaForCausalLM, MistralConfig
from transformers.cache_utils import DynamicCache
from typer.testing import CliRunner

from kvdrive.cli.main import app
from kvdrive.config.run import RunConfig
from kvdrive.errors import InputError, UnsupportedError
from kvdrive.generation import checkpoints
from kvdrive.generation.decode import steps
from kvdrive.generation.rules import Rules
from kvdrive.generation.sampling import GREEDY, Sampling
from kvdrive.kvcache.budget import MemoryOptions
from kvdrive.kvcache.on_drives import DriveLayer
from kvdrive.prefix.options import SessionOptions
from kvdrive.server.assistant import AssistantSource, drafts_of
from kvdrive.server.drafts import looked_up

pytestmark = pytest.mark.usefixtures("each_row_alone")
SAMPLED = Sampling(temperature=1.5, top_k=40, top_p=0.95, seed=7)


@dataclass(frozen=True)
class Forced(Rules):
    """An answer that is known before; the model computes it all the same."""

    wanted: list = field(default_factory=list)

    def applied(self, logits, prompt, answer):
        return torch.full_like(logits, -torch.inf).index_fill(1, torch.tensor([self.wanted[len(answer)]]), 0.0)


FILE = prompt(90, 1)
EDITED = [*FILE[:30], 7, 8, *FILE[33:70], 9, *FILE[70:]]
WORK = {  # prompt, new tokens, sampling, rules: edits of a file, what the model says itself, text that repeats nothing
    "edit": (FILE, 80, GREEDY, Forced(wanted=EDITED)),
    "sampled edit": (FILE + FILE[:20], 60, SAMPLED, Forced(wanted=EDITED[20:])),
    "free": (prompt(40, 2) * 3, 60, GREEDY, Rules(repetition=1.05)),
    "sampled": (prompt(20, 3) * 4, 50, SAMPLED, Rules(presence=0.5, frequency=0.1, least=20, ends=frozenset({11}))),
    "new": (prompt(60, 4), 40, GREEDY, Forced(wanted=prompt(40, 5))),
}


def answers(names=tuple(WORK), at_once=4, **options):
    """Tokens and chances of each request, and the metrics."""
    with Requests(running=at_once, chunk=64, **options) as requests:
        for name in names:
            given, new_tokens, sampling, rules = WORK[name]
            requests.ask(name, given, new_tokens, sampling, rules=rules, chances=3)
        requests.all_of(names)
        chances = [requests.chances[name] for name in names]
        counted = {
            what: requests.metric(f"kvdrive_{what}")
            for what in ("batch_size_sum", "drafted_tokens_total", "accepted_tokens_total", "repeated_steps_total")
        }
        return [requests.tokens[name] for name in names], chances, counted


@pytest.mark.parametrize("options", [
    {},
    {"drives": 2, "attention": RunConfig.of(spill=1)},
    {"batch": 1, "attention": RunConfig.of(kv_format="int8", spill=4)},
    pytest.param({"attention": RunConfig.of(xcache=0.5, spill=4)}, marks=pytest.mark.slow),
    {"attention": RunConfig.of(mini_batches=2), "sessions": SessionOptions()},
    pytest.param({"attention": RunConfig.of(active="memory"), "sessions": SessionOptions()}, marks=pytest.mark.slow),
    {"attention": RunConfig.of(active="memory", memory=MemoryOptions(bytes=1 << 20)), "drives": 2},
], ids=["exact", "two drives", "8 bits", "xcache", "mini-batches, sessions", "memory", "some in memory"])  # fmt: skip
def test_answers_are_those_without_drafts(options):
    """Every bit of the chances as well, in rows that draft beside rows that do not. Each step gives what it accepts."""
    tokens, chances, without = answers(**options)
    found, other_chances, drafted = answers(drafts=looked_up(3), **options)
    assert found == tokens
    assert other_chances == chances
    assert without["drafted_tokens_total"] == 0
    assert 0 < drafted["accepted_tokens_total"] < drafted["drafted_tokens_total"]
    assert drafted["repeated_steps_total"] == 0
    assert drafted["batch_size_sum"] == sum(map(len, found)) - len(found) - drafted["accepted_tokens_total"]
    assert drafted["batch_size_sum"] < 0.8 * without["batch_size_sum"]


def test_text_that_repeats_takes_few_steps_and_other_text_as_many_as_without():
    assert answers(["edit"], drafts=looked_up(3))[2]["batch_size_sum"] < 80 / 2.5
    _, _, counted = answers(["new"], drafts=looked_up(3))
    assert (counted["batch_size_sum"], counted["drafted_tokens_total"]) == (39, 0)


def test_text_that_misleads_is_drafted_rarely():
    """Each triple of tokens comes often, with another token behind it each time."""
    misleading = [token for number in range(150) for token in (5, 6, 7, 20 + number)]
    work = prompt(10, 1), 600, GREEDY
    with Requests(drafts=looked_up(3)) as requests:
        requests.ask("one", *work, rules=Forced(wanted=misleading))
        assert requests.all_of(["one"]) == [misleading]
        drafted, accepted = (requests.metric(f"kvdrive_{one}_tokens_total") for one in ("drafted", "accepted"))
        assert requests.metric("kvdrive_batch_size_sum") == 599 - accepted
    assert 0 < drafted < 600 / 20


@pytest.mark.parametrize("spill", [1, 16])
def test_no_rejected_token_is_ever_stored(spill):
    """At each commit the index names tokens of the answers only, and at the end what it names without drafts."""
    stored = []
    for drafts in (looked_up(0), looked_up(3)):
        named = []
        with Requests(
            attention=RunConfig.of(spill=spill), sessions=SessionOptions(), running=2, idle=10, drafts=drafts
        ) as requests:

            def held(store):
                return [store.lookup_of("").tokens_of(name) for name in ("edit", "free")]

            def watch(store, named=named, held=held):
                store.context.on_step = lambda step: named.extend(held(store)) if step == "committed" else None

            requests.scheduler.with_sessions(watch).result(30)
            for name in ("edit", "free"):
                given, new_tokens, sampling, rules = WORK[name]
                requests.ask(name, given, new_tokens, sampling, rules=rules, session=name)
            requests.all_of(["edit", "free"])
            accepted = requests.metric("kvdrive_accepted_tokens_total")
            texts = [WORK[name][0] + requests.tokens[name] for name in ("edit", "free")]
            stored.append(requests.scheduler.with_sessions(held).result(30))
        assert (accepted > 0) == (drafts() is not None)
        assert len(named) > 4
        for one in named:
            assert any(text[: len(one)] == one for text in texts), one
        assert stored[-1] == [text[:-1] for text in texts]
    assert stored[0] == stored[1]


def test_a_request_that_is_left_ends_between_two_steps():
    with Requests(drafts=looked_up(2), sessions=SessionOptions(), idle=4, running=1) as requests:
        job = requests.ask("left", [5, 6, 7] * 10, 3000, rules=Forced(wanted=[5, 6, 7] * 1000))
        requests.wait(lambda: len(requests.tokens["left"]) > 20)
        job.cancelled.set()
        requests.wait(lambda: "left" in requests.ends)
        said = list(requests.tokens["left"])
        assert said == ([5, 6, 7] * 1000)[: len(said)]
        held = requests.scheduler.with_sessions(lambda store: [one.tokens for one in store.index.entries()]).result(30)
        assert held == [30 + len(said) - 1]
        requests.ask("later", [5, 6, 7] * 10 + said, 5, rules=Forced(wanted=[8] * 5))
        assert requests.all_of(["later"]) == [[8] * 5]


def test_a_stop_token_in_a_draft_ends_the_answer():
    wanted = FILE[:60]
    for drafts in (looked_up(0), looked_up(3)):
        with Requests(drafts=drafts, sessions=SessionOptions(), idle=4) as requests:
            requests.ask("one", FILE, 60, rules=Forced(ends=frozenset({FILE[40]}), wanted=wanted))
            assert requests.all_of(["one"]) == [FILE[: FILE.index(FILE[40]) + 1]]
            held = requests.scheduler.with_sessions(lambda store: [one.tokens for one in store.index.entries()])
            assert held.result(30) == [90 + FILE.index(FILE[40])]


def test_a_step_that_fails_is_repeated_without_drafts(monkeypatch):
    alone, _, _ = answers(["edit", "free"])
    queries, failed = DriveLayer.queries, []

    def faulty(self, call):
        if call.query.shape[2] > 1 and len(failed) < 3:
            failed.append(call)
            raise RuntimeError("once")
        return queries(self, call)

    monkeypatch.setattr(DriveLayer, "queries", faulty)
    found, _, counted = answers(["edit", "free"], drafts=looked_up(3))
    assert found == alone
    assert counted["repeated_steps_total"] == 3


# ---- requests over HTTP ----

SCHEMA = {
    "type": "object",
    "properties": {"disks": {"type": "array", "items": {"enum": ["flash disk", "hard disk"]}, "minItems": 3}},
    "required": ["disks"],
    "additionalProperties": False,
}
REPEATS = "the flash disk, the flash disk, the hard disk, the flash disk, the hard disk, the flash disk. " * 2
ASKED = {
    "text": ("completions", {"prompt": REPEATS, "max_tokens": 60, "logprobs": 2}),
    "stop": ("completions", {"prompt": REPEATS, "max_tokens": 60, "stop": ["e"], "logprobs": 0}),
    "choices": ("completions", {"prompt": REPEATS, "max_tokens": 30, "n": 2, "temperature": 0.8, "seed": 3}),
    "schema": (
        "chat/completions",
        {
            "messages": [{"role": "user", "content": REPEATS}],
            "max_tokens": 120,
            "temperature": 1.2,
            "seed": 3,
            "response_format": {"type": "json_schema", "json_schema": {"name": "x", "schema": SCHEMA, "strict": True}},
        },
    ),
    "tool": (
        "chat/completions",
        {
            "messages": [{"role": "user", "content": REPEATS}],
            "max_tokens": 80,
            "tools": [WEATHER],
            "tool_choice": "required",
            "seed": 1,
            "temperature": 1.0,
        },
    ),
}


def said(server, path, fields):
    """All of an answer but its name, its time and the names of its calls."""
    answer = server.client.post(f"/v1/{path}", json={"model": "tiny", "temperature": 0} | fields)
    assert answer.status_code == 200, answer.text
    found = json.loads(
        answer.text, object_hook=lambda one: {k: v for k, v in one.items() if k not in ("id", "created")}
    )
    found.pop("kvdrive", None)
    return found


def test_requests_get_the_same_answers(tools_checkpoint, tmp_path):
    """Choices, stop texts, schemas and calls of tools."""
    found = []
    for number, drafts in enumerate((looked_up(0), looked_up(2))):
        folder = tmp_path / str(number)
        with closing(ServedHere(tools_checkpoint, folder, context=1024, slots=4, drafts=drafts)) as server:
            found.append({name: said(server, *asked) for name, asked in ASKED.items()})
            counted = [server.metric(f"kvdrive_{one}_tokens_total") for one in ("drafted", "accepted")]
            stats = server.client.get("/v1/stats").json()
            assert [stats["drafted_tokens"], stats["accepted_tokens"]] == counted
    assert found[0] == found[1]
    assert counted[0] > counted[1] > 0


# ---- assistants ----


@pytest.fixture(scope="module")
def noisy(checkpoint, tmp_path_factory):
    """An assistant for `checkpoint` that is often wrong."""
    folder = tmp_path_factory.mktemp("noisy")
    shutil.copytree(checkpoint, folder, dirs_exist_ok=True)
    model = LlamaForCausalLM.from_pretrained(folder)
    with torch.no_grad(), torch.random.fork_rng(devices=[]):
        torch.manual_seed(2)
        model.lm_head.weight *= 8  # sure of what it drafts
        for one in model.parameters():
            one += 0.05 * one.std() * torch.randn_like(one)
    model.save_pretrained(folder)
    return folder


def test_an_assistant_drafts_for_several_sequences(checkpoint, noisy, tmp_path):
    found, counted = [], []
    for number, assistant in enumerate(("", str(noisy))):
        drafts = drafts_of(RunConfig.of(assistant=assistant), checkpoints.load(str(checkpoint)))
        fields = {"prompt": ["the drive", "all keys of a drive", "x"], "max_tokens": 50}
        with closing(ServedHere(checkpoint, tmp_path / str(number), context=1024, slots=4, drafts=drafts)) as server:
            found.append([said(server, "completions", fields | more) for more in ({}, {"temperature": 0.3, "seed": 4})])
            counted.append([server.metric(f"kvdrive_{one}_tokens_total") for one in ("drafted", "accepted")])
            text = server.client.get("/metrics").text
        assert ('kvdrive_drafted_tokens_total{by="assistant"}' in text) == bool(assistant)
    assert found[0] == found[1]
    assert counted[0] == [0, 0]
    assert counted[1][0] > counted[1][1] > 0


def test_an_assistant_drafts_what_it_says_itself(checkpoint):
    """Whatever was accepted of its last draft, and after a pause."""
    loaded = checkpoints.load(str(checkpoint))
    loaded.model.lm_head.weight.data *= 8
    text = prompt(20, 1)

    def alone(tokens):
        found = steps(loaded.model, torch.tensor([tokens]), DynamicCache(), 4)
        return [int(one.tokens) for one in found]

    source = AssistantSource(loaded)
    for accepted, more in ((4, 1), (0, 1), (2, 1), (4, 9), (1, 5)):
        drafted = source.behind(text, 4)
        assert drafted == alone(text)[: len(drafted)]
        text += drafted[:accepted] + prompt(more, len(text))
    assert source.behind([*text] + [5] * 5000, 4) == []  # beyond its positions


# ---- what is refused ----


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        (
            ("--lookup", "3", "--overflow", "trim"),
            "--lookup does not go with --overflow trim: what was drafted could not",
        ),
        (("--lookup", "3", "--attention", "sparf", "--ratio", "1/4"), "--lookup does not go with --attention sparf"),
        (("--lookup", "3", "--assistant", "SELF"), "--lookup and --assistant both draft tokens: leave one of them out"),
        (("--assistant", "mini"), "--assistant mini has another vocabulary than"),
    ],
)
def test_what_does_not_go_together_is_one_sentence(checkpoint, tmp_path, monkeypatch, options, sentence):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    options = [str(checkpoint) if one == "SELF" else one for one in options]
    done = CliRunner().invoke(app, ["serve", "--model", str(checkpoint), "--port", "0", *options])
    assert isinstance(done.exception, InputError), done.output
    assert sentence in str(done.exception)


def test_a_model_whose_windows_are_in_memory_drafts_nothing():
    config = MistralConfig(**LONG, num_key_value_heads=4, sliding_window=32)
    with pytest.raises(
        UnsupportedError, match="`lookup` does not go with this model: its K and V, or some of them, are"
    ):
        Requests(config, RunConfig.of(lookup=3)).scheduler.start()
