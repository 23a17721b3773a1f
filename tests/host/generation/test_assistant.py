"""Speculative decoding on the command line: fewer calls of the model, the tokens and K and V of single steps."""

import json
import shutil
from pathlib import Path

import pytest
import torch
from family_models import SERVED
from pairs import by_value, some_quick
from small_models import prompts, random_model
from transformers import LlamaForCausalLM
from typer.testing import CliRunner

from kvdrive.choices import KV_FORMATS
from kvdrive.cli.main import app
from kvdrive.config.run import ModelOptions
from kvdrive.errors import InputError, UnsupportedError
from kvdrive.generation import checkpoints
from kvdrive.generation.assistant import Assistant, assisted_steps, load_assistant
from kvdrive.generation.checkpoints import Checkpoint
from kvdrive.generation.decode import steps
from kvdrive.generation.sampling import GREEDY, Sampling
from kvdrive.plugins.transformers import attach
from kvdrive.targets.emulator import Emulator

PROMPT = "The drive keeps the keys and the values of every token, and the host"
NEW = 24


@pytest.fixture(scope="session")
def small(checkpoint, tmp_path_factory):
    """A draft for `checkpoint` that is often wrong: the same weights but for some noise, and its tokenizer."""
    folder = tmp_path_factory.mktemp("small")
    shutil.copytree(checkpoint, folder, dirs_exist_ok=True)
    model = LlamaForCausalLM.from_pretrained(folder)
    with torch.no_grad(), torch.random.fork_rng(devices=[]):
        torch.manual_seed(2)
        for one in model.parameters():
            one += 0.15 * one.std() * torch.randn_like(one)
    model.save_pretrained(folder)
    return folder


@pytest.fixture
def run(checkpoint, tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))

    def call(*arguments, model=checkpoint, command="generate", **more):
        given = [command, "--model", model, "--threads", 1, *arguments]
        return CliRunner().invoke(app, list(map(str, given)), **more)

    return call


@pytest.fixture
def report(run):
    def call(*arguments, **more):
        options = ["--prompt", PROMPT, "--max-new-tokens", NEW, "--ignore-stop", "--json"]
        done = run(*options, *arguments, **more)
        assert done.exit_code == 0, done.output
        return json.loads(done.stdout)

    return call


WAYS = {
    "default": (),
    "cpu": ("--target", "cpu", "--spill", 1),
    "drives": ("--spill", 1, "--drives", 2),
    "sampled": ("--temperature", 0.1, "--seed", 3),
    "memory": ("--active", "memory"),
    "xcache": ("--xcache", 1),
    **{name: ("--kv-format", name) for name in KV_FORMATS if name != "f16"},
    "recompute": ("--on-failure", "recompute"),
}


@pytest.mark.parametrize("way", some_quick(WAYS, ["drives", "sampled", "xcache", "int4"]))
def test_tokens_are_those_without_an_assistant(report, small, way):
    options = WAYS[way]
    alone = report(*options)
    drafted = report("--assistant", small, *options)
    assert drafted["tokens"] == alone["tokens"]
    assert alone["assistant"] is None
    found = drafted["assistant"]
    assert 0 < found["accepted"] < found["drafted"]  # some are right and some are wrong
    assert found["share"] == found["accepted"] / found["drafted"]
    assert found["calls"] + found["accepted"] == NEW - 1


def test_a_model_that_drafts_for_itself_is_always_right(report, run, checkpoint):
    found = report("--assistant", checkpoint, "--check")
    assert found["check"]["identical"] == NEW
    assert found["assistant"]["accepted"] == found["assistant"]["drafted"] >= NEW // 2 - 1
    shown = run("--prompt", PROMPT, "--max-new-tokens", 8, "--assistant", checkpoint, "--verbose")
    assert "100% accepted" in shown.stderr


def texts(checkpoint, assistant, target, sampling=GREEDY, stop_ids=frozenset(), spill=16):
    """Tokens and logits of a text with the assistant, then what is left in its cache."""
    ids = torch.tensor([checkpoint.encode(PROMPT)])
    with attach(checkpoint.model, target, spill=spill) as attached:
        cache = attached.cache()
        how = {"sampling": sampling, "stop_ids": stop_ids}
        if assistant is None:
            found = list(steps(checkpoint.model, ids, cache, NEW, **how))
        else:
            found = list(assisted_steps(checkpoint.model, ids, cache, NEW, assistant, **how))
        held = cache.batch.token_ids()
        again = next(steps(checkpoint.model, torch.tensor([[*held[0].tolist(), 7]]), cache, 1))
        return [int(one.tokens) for one in found], found, held, again.logits


@by_value({"spill": [1, 16], "sampling": [GREEDY, Sampling(0.1, 20, 0.95, seed=5)]})
def test_the_cache_holds_the_chosen_tokens_and_nothing_else(checkpoint, small, tmp_path, spill, sampling):
    loaded = checkpoints.load(str(checkpoint))
    found = []
    for number, assistant in enumerate((None, load_assistant(ModelOptions(assistant=str(small)), loaded))):
        with Emulator(tmp_path / f"{number}.kv", "fast", capacity_bytes=1 << 26) as target:
            found.append(texts(loaded, assistant, target, sampling, spill=spill))
    (tokens, rows, held, logits), (others, other_rows, other_held, other_logits) = found
    assert tokens == others
    assert torch.equal(held, other_held)
    assert held[0, -NEW + 1 :].tolist() == tokens[:-1]
    assert assistant.counters.drafted > assistant.counters.accepted > 0
    torch.testing.assert_close(logits, other_logits, rtol=1e-3, atol=1e-3)
    for one, other in zip(rows, other_rows, strict=True):
        torch.testing.assert_close(one.logits, other.logits, rtol=1e-3, atol=1e-3)


def test_a_stop_token_in_the_middle_of_a_draft_ends_the_text(checkpoint, tmp_path):
    loaded = checkpoints.load(str(checkpoint))
    assistant = load_assistant(ModelOptions(assistant=str(checkpoint)), loaded)
    with Emulator(tmp_path / "drive.kv", "fast", capacity_bytes=1 << 26) as target:
        tokens = texts(loaded, None, target)[0]
        stop = next(token for place, token in enumerate(tokens) if place > 4 and token not in tokens[:place])
        ended = texts(loaded, assistant, target, stop_ids=frozenset([stop]))
    assert ended[0] == tokens[: tokens.index(stop) + 1]
    assert ended[2][0, -len(ended[0]) + 1 :].tolist() == ended[0][:-1]


def test_an_assistant_with_fewer_positions_drafts_while_it_can(checkpoint, small, tmp_path, report):
    short = tmp_path / "short"
    shutil.copytree(small, short)
    config = json.loads((short / "config.json").read_text())
    tokens = len(checkpoints.load(str(checkpoint)).encode(PROMPT))
    (short / "config.json").write_text(json.dumps(config | {"max_position_embeddings": tokens + 24}))
    found = report("--assistant", short)
    assert found["tokens"] == report()["tokens"]
    assert 0 < found["assistant"]["drafted"] < report("--assistant", small)["assistant"]["drafted"]


def test_chat_and_batch_say_the_same_with_an_assistant(run, small, tmp_path):
    asked = tmp_path / "prompts.jsonl"
    asked.write_text("".join(json.dumps({"prompt": text}) + "\n" for text in ("The drive keeps", "All keys")))
    for name, more in (("alone", ()), ("drafted", ("--assistant", small))):
        done = run("--drive", tmp_path / name, "--max-new-tokens", 20, *more, command="chat", input="Who?\nAnd why?\n")
        assert done.exit_code == 0, done.output
        assert ("drafted tokens accepted" in done.stderr) == bool(more)
        answers = tmp_path / f"{name}.jsonl"
        done = run(asked, "--out", answers, "--max-new-tokens", 12, *more, command="batch")
        assert done.exit_code == 0, done.output
    for one in ("{}/messages.json", "{}.jsonl"):
        assert (tmp_path / one.format("alone")).read_text() == (tmp_path / one.format("drafted")).read_text()


def test_a_session_goes_on_after_drafts(run, small, tmp_path):
    found = []
    for name, more in (("alone", ()), ("drafted", ("--assistant", small))):
        texts = []
        for prompt in (PROMPT, " and then"):
            kept = ("--session", "s", "--drive", tmp_path / name, "--max-new-tokens", 20, "--ignore-stop", "--json")
            done = run("--prompt", prompt, *kept, *more)
            assert done.exit_code == 0, done.output
            texts.append(json.loads(done.stdout)["tokens"])
        found.append(texts)
    assert found[0] == found[1]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (("--prompt", "more"), "--assistant drafts for one sequence, not for 2: give one prompt"),
        (("--attention", "sparf", "--ratio", "1/4"), "--assistant does not go with --attention sparf"),
        (("--accepted", "1.5"), "--accepted goes with --assistant and --weights flash"),
    ],
)
def test_what_does_not_go_together_is_one_sentence(run, small, options, message):
    done = run("--prompt", PROMPT, "--assistant", small, *options)
    assert isinstance(done.exception, InputError)
    assert message in str(done.exception)


def test_an_assistant_with_another_vocabulary_is_refused(run):
    done = run("--prompt", PROMPT, "--assistant", "mini")
    assert isinstance(done.exception, InputError)
    assert "--assistant mini has another vocabulary than" in str(done.exception)


def test_a_cache_that_takes_nothing_back_is_refused(checkpoint, small, target):
    loaded = checkpoints.load(str(checkpoint))
    assistant = load_assistant(ModelOptions(assistant=str(small)), loaded)
    ids = torch.tensor([loaded.encode(PROMPT)])
    with attach(loaded.model, target, "h2o") as attached:
        drafted = assisted_steps(loaded.model, ids, attached.cache(), 4, assistant)
        with pytest.raises(UnsupportedError, match="cannot remove drafted"):
            next(drafted)


def hybrid(name, target):
    """Tokens of a random model of this family alone, and with one that is often wrong."""
    model, other = random_model(SERVED[name][0]), random_model(SERVED[name][0])
    with torch.no_grad(), torch.random.fork_rng(devices=[]):
        torch.manual_seed(2)
        other.lm_head.weight += 0.2 * other.lm_head.weight.std() * torch.randn_like(other.lm_head.weight)
    ids = prompts(1, 24)
    assistant = Assistant(Checkpoint("other", Path(), other, None))
    with attach(model, target) as attached:
        alone = [int(step.tokens) for step in steps(model, ids, attached.cache(), 24)]
        drafted = [int(step.tokens) for step in assisted_steps(model, ids, attached.cache(), 24, assistant)]
    return alone, drafted, assistant.counters


def test_layers_in_memory_with_a_sliding_window_forget_rejected_tokens(target):
    alone, drafted, counters = hybrid("gemma3", target)
    assert alone == drafted
    assert 0 < counters.accepted < counters.drafted


def test_layers_with_a_state_take_nothing_back(target):
    with pytest.raises(UnsupportedError, match="cannot remove drafted tokens: leave `assistant` out"):
        hybrid("jamba", target)
