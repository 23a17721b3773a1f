"""Prompts for `kvdrive run`, and for `generate` without one: real text with an answer that stands far back in it."""

from __future__ import annotations

import random
from dataclasses import dataclass
from typing import Protocol

from kvdrive.errors import InputError
from kvdrive.eval import library
from kvdrive.eval.wording import around, passkey_lines
from kvdrive.generation.tokenizer import Tokenizer

_LONGEST_TOKEN = 32  # characters; for n tokens, only the first n times as many characters of a text are tokenized
_TOKENS = 8192
_ROOM = 1024  # positions reserved for the answer
_DEPTH = 1 / 4  # the share of the text that comes before the statement
_SEED = 7
_INSTRUCTION = "Read the text below and remember the special magic number hidden in it.\n\n"
_FACT = "The special magic number for Lima is"
_QUESTION = "What is the special magic number for Lima mentioned in the text?"


class Texts(Protocol):
    """A model that is asked. `context`: the most tokens that a prompt and its continuation may have together."""

    @property
    def context(self) -> int: ...

    @property
    def tokenizer(self) -> Tokenizer: ...

    def encode(self, text: str, special: bool = True) -> list[int]:
        """Token numbers of a text, with the tokenizer's `special` tokens. Raises InputError for no tokens."""


@dataclass(frozen=True)
class Demonstration:
    """A prompt (`ids`), its subject (`about`), the `question` at its end, and the `answer` that a right text has."""

    ids: list[int]
    about: str
    question: str
    answer: str
    tokens_back: int  # distance from the end of the prompt to the statement with the answer

    def verdict(self, text: str) -> str:
        """One line: did the model find it?"""
        found = "found" if self.answer in text else "not found"
        return f"the answer, {self.answer}, stands {self.tokens_back:,} tokens back: {found}"


def demonstration(checkpoint: Texts, tokens: int = 0) -> Demonstration:
    """A prompt of `tokens` tokens, 0: 8192 or what fits: a question to models with a chat template, a pass key in
    source code to others.

    Raises InputError when there is not so much text.
    """
    tokens = tokens or min(_TOKENS, checkpoint.context - _ROOM)
    return _question(checkpoint, tokens) if checkpoint.tokenizer.chat_template else _pass_key(checkpoint, tokens)


def _pass_key(checkpoint: Texts, tokens: int) -> Demonstration:
    """A key stated in modules of the standard library that models/mini was not trained on, asked for at their end."""
    key = _key()
    statement, question, _ = passkey_lines(key)
    hidden, asked = checkpoint.encode(statement), checkpoint.encode(question)
    names, text = held_out(checkpoint, tokens - len(hidden) - len(asked))
    here = int(len(text) * _DEPTH)
    ids = text[:here] + hidden + text[here:] + asked
    about = f"{len(ids):,} tokens of {names}, with a pass key in a comment"
    return Demonstration(ids, about, question.strip(), key, len(ids) - here)


def held_out(checkpoint: Texts, tokens: int) -> tuple[str, list[int]]:
    """Names and first tokens of the longest modules held out from the training of models/mini. Raises InputError."""
    if tokens <= 0:
        raise InputError("the question alone has so many tokens: take more `prompt_tokens`")
    names: list[str] = []
    ids: list[int] = []
    for module in library.held_out_modules():
        names.append(module.name)
        ids += checkpoint.encode(module.text[: tokens * _LONGEST_TOKEN])
        if len(ids) >= tokens:
            return ", ".join(names), ids[:tokens]
    raise InputError(f"the held-out modules have {len(ids)} tokens: take fewer `prompt_tokens`")


def _question(checkpoint: Texts, tokens: int) -> Demonstration:
    """A number stated in the language reference that comes with Python, asked for by the model's chat template.

    The prompt ends with the first words of the answer, because small models otherwise talk about the question.
    """
    from pydoc_data import topics

    text = "\n\n".join(topics.topics[name] for name in sorted(topics.topics))
    key = _key()
    left, right = _chat(checkpoint)
    hidden = checkpoint.encode(f"\n{_FACT} {key}.\n", special=False)
    room = tokens - len(left) - len(hidden) - len(right)
    document = checkpoint.encode(text[: max(room, 1) * _LONGEST_TOKEN], special=False)[: max(room, 0)]
    if len(document) < room or room <= 0:
        raise InputError(f"no prompt of {tokens} tokens can be made of {len(document)} tokens: change `prompt_tokens`")
    here = int(len(document) * _DEPTH)
    ids = left + document[:here] + hidden + document[here:] + right
    about = f"{len(ids):,} tokens of the Python language reference, with a number stated in it"
    return Demonstration(ids, about, f"{_QUESTION} {_FACT}", key, len(ids) - len(left) - here)


def _key() -> str:
    """Five digits, the same in every run."""
    return f"{random.Random(_SEED).randrange(100_000):05}"


def _chat(checkpoint: Texts) -> tuple[list[int], list[int]]:
    """The tokens of the chat template before and after the document."""
    left, right = around(checkpoint.tokenizer, _INSTRUCTION, f"\n\n{_QUESTION}")
    return checkpoint.encode(left, special=False), checkpoint.encode(right + _FACT, special=False)
