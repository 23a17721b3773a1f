"""Tokens of a session in the prompts that go on with it, where the tokenizer would spell the same text otherwise."""

import random
from pathlib import Path

import pytest
from transformers import AutoTokenizer, PreTrainedTokenizerFast

from kvdrive.errors import InputError
from kvdrive.generation import places
from kvdrive.generation.conversation import as_text, wants_special
from kvdrive.generation.spelling import as_held
from kvdrive.prefix.chain import common_length

TEXT = " Keys and values, naïve as they are, stay on the drive: 12345 of them ≥ 7, \t and 漢字.\n\n" * 3


@pytest.fixture(params=["mini", "smollm2"])
def tokenizer(request):
    try:
        return AutoTokenizer.from_pretrained(places.find(request.param))
    except InputError as error:
        pytest.skip(str(error))


def sampled(tokenizer, text, rng):
    """Other tokens of the text: pieces that end anywhere are tokenized by themselves."""
    ids, rest = [], text
    while rest:
        size = rng.randint(1, 5)
        ids += tokenizer(rest[:size], add_special_tokens=False)["input_ids"]
        rest = rest[size:]
    assert tokenizer.decode(ids, clean_up_tokenization_spaces=False) == text
    return ids


def test_a_turn_goes_on_behind_sampled_tokens(tokenizer):
    question = [{"role": "user", "content": "What stays?"}]
    special = wants_special(tokenizer)
    asked = tokenizer(as_text(tokenizer, question), add_special_tokens=special)["input_ids"]
    for seed in range(5):
        held = asked + sampled(tokenizer, TEXT, random.Random(seed))
        messages = [*question, {"role": "assistant", "content": TEXT}, {"role": "user", "content": "And then?"}]
        text = as_text(tokenizer, messages)
        plain = tokenizer(text, add_special_tokens=special)["input_ids"]
        assert plain[: len(held)] != held
        found = as_held(tokenizer, plain, held[:-1])  # the last token was sampled, and never computed
        assert len(found) > len(plain)
        assert common_length(found, held) >= len(held) - 4  # up to a place where both begin a token
        assert tokenizer.decode(found) == tokenizer.decode(plain)


def test_another_text_is_spelled_anew(tokenizer):
    held = sampled(tokenizer, TEXT, random.Random(1))
    for other in ("", "Something else", TEXT[:40] + "!" + TEXT[40:]):
        plain = tokenizer(other, add_special_tokens=False)["input_ids"]
        found = as_held(tokenizer, plain, held)
        assert tokenizer.decode(found) == tokenizer.decode(plain)
    assert as_held(tokenizer, plain, []) == plain
    assert as_held(tokenizer, held, held) == held
    assert as_held(tokenizer, held[:20], held) == held[:20]


def test_a_special_token_is_not_its_name(checkpoint):
    """A model that samples the letters of a special token has not sampled the token."""
    tokenizer = PreTrainedTokenizerFast.from_pretrained(Path(checkpoint))
    end = tokenizer.eos_token_id
    letters = [i for letter in "<end>" for i in tokenizer(letter, add_special_tokens=False)["input_ids"]]
    word = tokenizer("drive", add_special_tokens=False)["input_ids"]
    assert as_held(tokenizer, [*word, end, *word], [*word, *letters, *word]) == [*word, end, *word]
