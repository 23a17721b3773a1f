"""How retrieval tasks are worded: as comments of source code, or as questions in a model's chat template."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np

from kvdrive.errors import InputError

# Names that every model knows, because the numbers are what it must find.
_TOWNS = (
    "Amsterdam", "Athens", "Berlin", "Boston", "Cairo", "Chicago", "Delhi", "Dublin", "Houston", "Lima", "London",
    "Madrid", "Miami", "Moscow", "Oslo", "Paris", "Prague", "Rome", "Seattle", "Sydney", "Tokyo", "Toronto", "Vienna",
    "Warsaw",
)  # fmt: skip


@dataclass(frozen=True)
class Wording:
    """The text of one case: `opening`, then the filler with the `statements` in it, `question`, and the answer.

    `answer`: pieces that follow the question directly, each with True where its tokens count.
    """

    statements: list[str]
    question: str
    answer: list[tuple[str, bool]]
    opening: str = ""


class Style(Protocol):
    """Words for each task."""

    def names(self, rng: np.random.Generator, count: int) -> list[str]:
        """`count` different names for what is stated."""

    def passkey(self, key: str) -> Wording:
        """One key."""

    def lines(self, names: Sequence[str], values: Sequence[str], asked: int) -> Wording:
        """Named values, of which that of index `asked` is the answer."""

    def documents(self, names: Sequence[str], keys: Sequence[str]) -> Wording:
        """Two keys, one in each document; the answer has both."""


class Comments:
    """Comments and lines of source code, as models/mini was trained on; the end of an answer's line counts as well."""

    def names(self, rng: np.random.Generator, count: int) -> list[str]:
        """Names such as "kqzv-07"."""
        return register_names(rng, count)

    def passkey(self, key: str) -> Wording:
        """A comment that is asked for by its first words."""
        statement, question, answer = passkey_lines(key)
        return Wording([statement], question, [(answer, True)])

    def lines(self, names: Sequence[str], values: Sequence[str], asked: int) -> Wording:
        """Lines "line NAME: REGISTER = VALUE"."""
        question, answer = register_question(names[asked], values[asked])
        said = [register_line(name, value) for name, value in zip(names, values, strict=True)]
        return Wording(said, question, [(answer, True)])

    def documents(self, names: Sequence[str], keys: Sequence[str]) -> Wording:
        """A comment in each document."""
        said = [
            f"# Document {name}: the pass key is {key}. Remember it.\n" for name, key in zip(names, keys, strict=True)
        ]
        question = f"# What are the pass keys of documents {' and '.join(names)}? The pass keys are "
        return Wording(said, question, [(f"{' and '.join(keys)}.\n", True)])


class Chat:
    """Questions in plain words. The model's answer is begun for it, and only the digits count."""

    def __init__(self, tokenizer: Any) -> None:
        self._tokenizer = tokenizer

    def names(self, rng: np.random.Generator, count: int) -> list[str]:
        """Towns, at most 24."""
        return [str(name) for name in rng.choice(_TOWNS, count, replace=False)]

    def passkey(self, key: str) -> Wording:
        """One sentence in the text."""
        opening, end = around(
            self._tokenizer,
            "Read the text below and remember the pass key that is hidden in it.\n\n",
            "\n\nWhat is the pass key?",
        )
        return Wording([f"\nThe pass key is {key}. Remember it.\n"], f"{end}The pass key is ", [(key, True)], opening)

    def lines(self, names: Sequence[str], values: Sequence[str], asked: int) -> Wording:
        """A number for each town."""
        return self._numbers(names, values, [asked])

    def documents(self, names: Sequence[str], keys: Sequence[str]) -> Wording:
        """A number for one town in each document; the answer has a sentence for each."""
        return self._numbers(names, keys, [0, 1])

    def _numbers(self, towns: Sequence[str], values: Sequence[str], asked: Sequence[int]) -> Wording:
        opening, end = around(
            self._tokenizer,
            "Read the text below and remember the special magic numbers that are hidden in it.\n\n",
            f"\n\nWhat is the special magic number for {' and for '.join(towns[i] for i in asked)} in the text?",
        )
        begun = [f"The special magic number for {town} is " for town in towns]
        said = [f"\n{words}{value}.\n" for words, value in zip(begun, values, strict=True)]
        answer = [(values[asked[0]], True)]
        for i in asked[1:]:
            answer += [(f".\n{begun[i]}", False), (values[i], True)]
        return Wording(said, end + begun[asked[0]], answer, opening)


def style_of(tokenizer: Any) -> Style:
    """Chat for tokenizers with a chat template, comments for others."""
    return Chat(tokenizer) if tokenizer.chat_template else Comments()


def around(tokenizer: Any, before: str, after: str) -> tuple[str, str]:
    """What stands before and after a text in a chat whose user says `before`, the text and `after`.

    The second ends where the model's answer starts. Raises InputError for a template that does not show the text once.
    """
    mark = "<<text>>"
    whole: str = tokenizer.apply_chat_template(
        [{"role": "user", "content": f"{before}{mark}{after}"}], add_generation_prompt=True, tokenize=False
    )
    if whole.count(mark) != 1:
        raise InputError(
            "the model's chat template does not show what the user says once: the task cannot be asked in it"
        )
    left, right = whole.split(mark)
    return left, right


def digits(rng: np.random.Generator, count: int) -> str:
    """`count` random digits."""
    return "".join(map(str, rng.integers(0, 10, count)))


def register_names(rng: np.random.Generator, count: int) -> list[str]:
    """`count` different names such as "kqzv-07"."""
    names: dict[str, None] = {}
    while len(names) < count:
        letters = "".join(chr(ord("a") + i) for i in rng.integers(0, 26, 4))
        names[f"{letters}-{digits(rng, 2)}"] = None
    return list(names)


def passkey_lines(key: str) -> tuple[str, str, str]:
    """Statement, question and answer of the passkey task in comments."""
    return f"# The pass key is {key}. Remember it.\n", "# What is the pass key? The pass key is ", f"{key}.\n"


def register_line(name: str, value: str) -> str:
    """A line of the line-retrieval task in source code."""
    return f"line {name}: REGISTER = {value}\n"


def register_question(name: str, value: str) -> tuple[str, str]:
    """Question and answer of the line-retrieval task in source code."""
    return f"assert line {name}: REGISTER = ", f"{value}\n"
