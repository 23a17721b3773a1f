"""Bounds of prompts before and while they are tokenized."""

import asyncio
import threading
from pathlib import Path

import pytest
from transformers import AutoTokenizer

from kvdrive.server.errors import ApiError
from kvdrive.server.prompts import Prompts


class Counting:
    """A tokenizer that counts the characters that it gets."""

    def __init__(self, checkpoint):
        self.tokenizer = AutoTokenizer.from_pretrained(checkpoint)
        self.lengths = []

    def get_vocab(self):
        return self.tokenizer.get_vocab()

    def __call__(self, text, **options):
        self.lengths.append(len(text))
        return self.tokenizer(text, **options)


@pytest.fixture
def tokenizer(checkpoint):
    return Counting(checkpoint)


def test_a_prompt_that_fits_is_tokenized_once_and_as_ever(tokenizer):
    ids = Prompts(tokenizer, 100).encode("The drive keeps the keys", "prompt")
    assert ids == tokenizer.tokenizer("The drive keeps the keys")["input_ids"]
    assert len(tokenizer.lengths) == 1


def test_more_characters_than_the_tokens_can_have_are_not_tokenized(tokenizer):
    most = 100 * max(map(len, tokenizer.get_vocab()))
    prompts = Prompts(tokenizer, 100)
    with pytest.raises(ApiError, match=f"has {most + 1} characters") as refused:
        prompts.encode("a" * (most + 1), "prompt")
    assert refused.value.code == "context_length_exceeded"
    assert tokenizer.lengths == []


def test_a_long_text_is_refused_after_a_look_at_its_beginning():
    tokenizer = Counting(Path(__file__).parents[3] / "models/mini")  # with tokens of many characters
    with pytest.raises(ApiError, match="more than the 100 tokens"):
        Prompts(tokenizer, 100).encode("a b " * 210, "prompt")
    assert tokenizer.lengths == [800]


def test_one_at_a_time_and_with_a_deadline(tokenizer):
    prompts = Prompts(tokenizer, 100, seconds=0.2)
    release, running = threading.Event(), []

    async def both():
        first = asyncio.ensure_future(prompts.run(release.wait))
        second = asyncio.ensure_future(prompts.run(lambda: running.append("second")))
        results = await asyncio.gather(first, second, return_exceptions=True)
        release.set()
        return results

    results = asyncio.run(both())
    assert [(result.status, result.code) for result in results] == [(503, "busy"), (503, "busy")]
    assert running == []


def test_a_body_is_no_larger_than_its_prompt_can_be(tokenizer):
    longest = max(map(len, tokenizer.get_vocab()))
    assert Prompts(tokenizer, 10).body_bytes == 12 * 10 * longest + (64 << 10)
    assert Prompts(tokenizer, 1 << 24).body_bytes == 16 << 20
