"""The training data of the model, and runs that continue after a stop."""

import json

import numpy as np
import pytest
import torch
from transformers import AutoModelForCausalLM, AutoTokenizer

from kvdrive.eval.library import Module, held_out_modules, module_names, read
from mini import trainer
from mini.corpus import training_modules
from mini.tasks import QUESTION, RECALLED, TEXT, UNKNOWABLE, Tasks

LENGTH = 600


@pytest.fixture(scope="module")
def few_modules():
    return [read(name) for name in ("bisect.py", "heapq.py", "json/decoder.py", "typing.py")]


@pytest.fixture(scope="module")
def tokenizer(few_modules):
    return trainer.train_tokenizer(few_modules)


@pytest.fixture
def tasks(tokenizer, few_modules):
    return Tasks(tokenizer, trainer.encode(tokenizer, few_modules), np.random.default_rng(1))


def recalled(tokens, weights):
    return "".join(map(str, tokens[weights == RECALLED]))


def test_what_is_not_held_out_is_trained_on():
    held_out = {module.name for module in held_out_modules()}
    training = {module.name for module in training_modules()}
    assert held_out | training == set(module_names())
    assert not held_out & training


def test_numbers_are_single_digits_and_text_comes_back(tokenizer):
    text = "value = 31415\n"
    encoded = tokenizer.encode(text)
    assert tokenizer.decode(encoded.ids) == text
    assert [token for token in encoded.tokens if token.isdigit()] == list("31415")


@pytest.mark.parametrize("kind", ["repeats", "passkey", "registers"])
def test_recalled_tokens_stand_earlier_in_the_sequence(tasks, kind):
    for _ in range(10):
        tokens, weights = (np.array(part[:LENGTH]) for part in getattr(tasks, kind)(LENGTH))
        assert len(tokens) == len(weights) == LENGTH
        assert set(weights.tolist()) <= {UNKNOWABLE, QUESTION, TEXT, RECALLED}
        runs = np.split(np.arange(LENGTH), np.flatnonzero(np.diff(weights == RECALLED)) + 1)
        for run in (run for run in runs if weights[run[0]] == RECALLED):
            said = tokens[run][:5].tolist()  # digits of a value, or the start of a segment
            earlier = tokens[: run[0]].tolist()
            assert any(earlier[i : i + len(said)] == said for i in range(len(earlier))), (kind, said)


def test_sequences_repeat_themselves_with_the_seed(tokenizer, few_modules):
    text = trainer.encode(tokenizer, few_modules)
    first, again = (Tasks(tokenizer, text, np.random.default_rng(7)).sequence(LENGTH) for _ in range(2))
    np.testing.assert_array_equal(first, again)


def test_lengths_grow_and_the_rate_falls():
    lengths = [trainer.length_at(share) for share in np.linspace(0, 0.999, 50)]
    assert lengths == sorted(lengths)
    assert (lengths[0], lengths[-1]) == (512, 8192)
    assert trainer.rate_at(0.0, 0) < trainer.rate_at(0.5, 1000) == 1.0
    assert trainer.rate_at(1.0, 1000) == pytest.approx(0.05)


def test_a_stopped_run_goes_on(tmp_path, few_modules, monkeypatch):
    """Tiny shapes and few modules. The time is over at once, so each call takes one step."""
    tiny = {"hidden_size": 64, "intermediate_size": 64, "num_hidden_layers": 1, "num_attention_heads": 1}
    monkeypatch.setattr(trainer, "SHAPE", trainer.SHAPE | tiny | {"num_key_value_heads": 1})
    monkeypatch.setattr(trainer, "STEP_TOKENS", 512)
    monkeypatch.setattr(trainer, "training_modules", lambda: [Module(m.name, m.text[:20000]) for m in few_modules])
    out, work = tmp_path / "out", tmp_path / "work"
    run = trainer.Trainer(1.0, out, work, "relu")
    run.step(512)
    run.progress.seconds = 61.0
    run.run()
    again = trainer.Trainer(1.0, out, work, "relu")
    assert again.progress.steps == 1
    for name, value in run.model.state_dict().items():
        assert torch.equal(again.model.state_dict()[name], value)
    again.step(512)
    assert not torch.equal(again.model.lm_head.weight, run.model.lm_head.weight)
    model = AutoModelForCausalLM.from_pretrained(out)
    assert (model.dtype, model.config.hidden_act) == (torch.bfloat16, "relu")
    assert AutoTokenizer.from_pretrained(out)("x = 12")["input_ids"] == again.tokenizer.encode("x = 12").ids
    assert json.loads((out / "training.json").read_text())["steps"] == 1
