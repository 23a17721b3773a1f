"""Grammars: which tokens they leave, and when that is computed."""

import json
import threading

import pytest
import torch
from llguidance import LLMatcher
from scheduled import Requests
from transformers import AutoTokenizer

from kvdrive.generation.sampling import GREEDY, Sampling
from kvdrive.server.grammar import Grammar, GrammarError, Grammars, _spaced
from kvdrive.server.transformers_engine import TransformersEngine

TOKENS, PADDED = 300, 330  # of the vocabulary, and of the logits
SCHEMA = {
    "type": "object",
    "properties": {"name": {"type": "string", "maxLength": 9}, "size": {"enum": [1, 12, 123]}},
    "required": ["name", "size"],
    "additionalProperties": False,
}


@pytest.fixture(scope="module")
def tokenizer(checkpoint):
    return AutoTokenizer.from_pretrained(checkpoint)


def made(tokenizer, vocabulary=TOKENS):
    return Grammars(tokenizer, vocabulary, frozenset([tokenizer.eos_token_id]))


def next_token(grammar, matcher, seed):
    """A likely token, after a comparison of all with what llguidance says of each token alone."""
    logits = torch.randn(1, PADDED, generator=torch.Generator().manual_seed(seed))
    before = logits.clone()
    grammar.restrict(logits)
    allowed = [token for token in range(PADDED) if matcher.validate_tokens([token])]
    rest = torch.ones(PADDED, dtype=torch.bool).index_fill(0, torch.tensor(allowed), False)
    assert torch.equal(logits, before.masked_fill(rest, -torch.inf))
    token = int(logits.argmax())
    assert token in allowed
    return token


def matcher_of(grammars, text):
    """llguidance's own, behind the tokens of `text`."""
    matcher = LLMatcher(grammars._llguidance, LLMatcher.grammar_from_json_schema(json.dumps(_spaced(SCHEMA))))
    assert matcher.consume_tokens(text)
    return matcher


@pytest.mark.parametrize("seed", range(4))
def test_those_tokens_stay_that_the_text_may_go_on_with(tokenizer, seed):
    grammars = made(tokenizer, PADDED)
    grammar, text = grammars.json(SCHEMA), []
    while not grammar.complete and len(text) < 40:
        copy = grammar.copy()
        token = next_token(grammar, matcher_of(grammars, text), 100 * seed + len(text))
        assert next_token(copy, matcher_of(grammars, text), 100 * seed + len(text)) == token
        if token == tokenizer.eos_token_id:
            break
        grammar.take(token)
        text.append(token)
    assert text


def test_a_token_that_the_grammar_excludes_is_an_error(tokenizer):
    grammar = made(tokenizer).json(SCHEMA)
    with pytest.raises(GrammarError):
        grammar.take(tokenizer.encode("x")[0])


class Panic(BaseException):
    """As Rust's."""


def test_a_failure_ends_its_grammar_and_no_other(tokenizer, monkeypatch):
    grammars = made(tokenizer)

    def panics(*_):
        raise Panic("at once")

    with monkeypatch.context() as patched:
        patched.setattr("kvdrive.server.grammar.fill_next_token_bitmask", panics)
        failed = grammars.json(SCHEMA)
        for use in (failed.copy, lambda: failed.restrict(torch.zeros(1, TOKENS)), lambda: failed.take(1)):
            with pytest.raises(GrammarError, match="at once"):
                use()
    next_token(made(tokenizer, PADDED).json(SCHEMA), matcher_of(grammars, []), 1)
    grammars.json(SCHEMA).restrict(torch.zeros(1, TOKENS))


def test_a_mask_is_computed_while_the_model_computes(tokenizer, monkeypatch):
    """No call of the model ends before the masks are there that its logits need, of each sequence with a grammar."""
    grammars, masks, lock = made(tokenizer), [], threading.Condition()
    compute, calls = Grammar.compute, []

    def noted(grammar):
        compute(grammar)
        with lock:
            masks.append(grammar)
            lock.notify()

    def watched(name):
        call = getattr(TransformersEngine, name)

        def called(engine, sequences, tokens, *more, **named):
            found = call(engine, sequences, tokens, *more, **named)
            of = sequences if isinstance(sequences, list) else [sequences]
            with lock:
                calls.append(len(of))
                expected = sum(calls)  # each row's logits need one more mask
                assert lock.wait_for(lambda: len(masks) >= expected, 30), (len(masks), calls)
            return found

        monkeypatch.setattr(TransformersEngine, name, called)

    monkeypatch.setattr(Grammar, "compute", noted)
    for name in ("compute", "step"):
        watched(name)
    with Requests(running=2, batch=2) as requests:
        for name, schema in (
            ("first", SCHEMA),
            ("second", {"type": "array", "items": {"type": "integer"}, "minItems": 9}),
        ):
            requests.ask(name, [5, 6, 7], 12, GREEDY, grammar=grammars.json(schema))
        first, second = requests.all_of(["first", "second"])
        assert requests.metric("kvdrive_batch_size_sum") == len(first) + len(second) - 2
    assert sum(calls) == len(first) + len(second)
    assert [tokenizer.decode(said)[0] for said in (first, second)] == ["{", "["]


def test_chances_are_those_before_the_grammar(tokenizer):
    """The logits are changed in place, but not those that chances are taken from."""
    grammars = made(tokenizer)
    with Requests(running=1, idle=0) as requests:
        requests.ask("free", [5, 6, 7], 1, chances=3)
        requests.ask("kept", [5, 6, 7], 1, chances=3, grammar=grammars.json(SCHEMA))
        requests.ask("sampled", [5, 6, 7], 1, Sampling(1.0, seed=1), grammar=grammars.json(SCHEMA))
        free, kept, sampled = requests.all_of(["free", "kept", "sampled"])
    assert requests.chances["kept"][0].top == requests.chances["free"][0].top
    assert free != kept
    assert [tokenizer.decode(one) for one in (kept, sampled)] == ["{", "{"]
