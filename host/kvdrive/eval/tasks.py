"""Retrieval tasks: statements hidden in real text, a question at its end, an answer that only a statement gives."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from kvdrive.errors import InputError
from kvdrive.eval.wording import Comments, Style, Wording, digits

Tokens = NDArray[np.int64]
_COMMENTS = Comments()


class Encoder(Protocol):
    """The part of a tokenizer that a task uses."""

    def __call__(self, text: str) -> list[int]:
        """Tokens of a text, without special tokens."""


@dataclass(frozen=True)
class Case:
    """One question. `answer` [n] follows `prompt` directly. `depth`: place of the statement, 0 = start, 1 = end.

    `counted`: for each token of the answer, whether the model must know it; None: all.
    """

    task: str
    prompt: Tokens
    answer: Tokens
    depth: float
    counted: list[bool] | None = None


def that_count(right: list[bool], counted: list[bool] | None) -> list[bool]:
    """Those of an answer's tokens that count, `counted` as in Case."""
    return right if counted is None else [one for one, counts in zip(right, counted, strict=True) if counts]


def passkey(
    encode: Encoder, text: Tokens, tokens: int, depth: float, rng: np.random.Generator, style: Style = _COMMENTS
) -> Case:
    """One pass key of five digits in `tokens` tokens of `text`."""
    wording = style.passkey(digits(rng, 5))
    return _case("passkey", encode, text, tokens, [depth], depth, rng, wording)


def lines(
    encode: Encoder, text: Tokens, tokens: int, depth: float, rng: np.random.Generator, style: Style = _COMMENTS,
    count: int = 10,
) -> Case:  # fmt: skip
    """`count` named values spread evenly over the text, the one nearest to `depth` is asked for."""
    names = style.names(rng, count)
    values = [digits(rng, 5) for _ in names]
    depths = [(i + 0.5) / count for i in range(count)]
    asked = int(np.argmin(np.abs(np.array(depths) - depth)))
    return _case("lines", encode, text, tokens, depths, depths[asked], rng, style.lines(names, values, asked))


def documents(
    encode: Encoder, text: Tokens, tokens: int, depth: float, rng: np.random.Generator, style: Style = _COMMENTS
) -> Case:
    """Two documents of half the tokens, each with a key at `depth` of it. The answer is both keys."""
    names, keys = style.names(rng, 2), [digits(rng, 5) for _ in range(2)]
    wording = style.documents(names, keys)
    first, second = ([(depth, encode(statement))] for statement in wording.statements)
    parts = [
        _hide(text, tokens // 2, first, encode(wording.opening), [], rng),
        _hide(text, tokens - tokens // 2, second, [], encode(wording.question), rng),
    ]
    return Case("documents", np.concatenate(parts), *_answer(encode, wording, depth / 2))


TASKS: dict[str, Callable[..., Case]] = {"passkey": passkey, "lines": lines, "documents": documents}


def cases(
    names: Sequence[str], encode: Encoder, text: Tokens, tokens: int, depths: Sequence[float], repeats: int, seed: int,
    style: Style = _COMMENTS,
) -> list[Case]:  # fmt: skip
    """`repeats` cases of each task at each depth, prompts of `tokens` tokens out of `text`.

    Same arguments, same cases. Raises InputError for unknown tasks and for too little text.
    """
    unknown = [name for name in names if name not in TASKS]
    if unknown:
        raise InputError(f"no task '{unknown[0]}': choose among {', '.join(TASKS)}")
    rng = np.random.default_rng(seed)
    return [
        TASKS[name](encode, text, tokens, depth, rng, style)
        for name in names
        for depth in depths
        for _ in range(repeats)
    ]


def _case(
    task: str, encode: Encoder, text: Tokens, tokens: int, depths: Sequence[float], asked: float,
    rng: np.random.Generator, wording: Wording,
) -> Case:  # fmt: skip
    """Statements at `depths`; `asked`: the depth of the one that the answer needs."""
    statements = [(depth, encode(said)) for depth, said in zip(depths, wording.statements, strict=True)]
    prompt = _hide(text, tokens, statements, encode(wording.opening), encode(wording.question), rng)
    return Case(task, prompt, *_answer(encode, wording, asked))


def _answer(encode: Encoder, wording: Wording, depth: float) -> tuple[Tokens, float, list[bool]]:
    pieces = [(encode(piece), counts) for piece, counts in wording.answer]
    counted = [counts for tokens, counts in pieces for _ in tokens]
    return np.array([token for tokens, _ in pieces for token in tokens], np.int64), depth, counted


def _hide(
    text: Tokens, tokens: int, statements: list[tuple[float, list[int]]], opening: list[int], question: list[int],
    rng: np.random.Generator,
) -> Tokens:  # fmt: skip
    """`tokens` tokens: the opening, a random stretch of `text` with each statement at its depth, then the question."""
    filler = tokens - len(opening) - len(question) - sum(len(statement) for _, statement in statements)
    if filler <= 0:
        raise InputError(f"a prompt of {tokens} tokens has no room for the task: take a longer context")
    if filler > len(text):
        raise InputError(f"{tokens} tokens of prompt cannot be filled from {len(text)} tokens of text: name more text")
    start = int(rng.integers(0, len(text) - filler + 1))
    stretch = text[start : start + filler]
    parts: list[NDArray[np.int64]] = [np.array(opening, np.int64)]
    done = 0
    for depth, statement in statements:
        here = round(depth * filler)
        parts += [stretch[done:here], np.array(statement, np.int64)]
        done = here
    return np.concatenate([*parts, stretch[done:], np.array(question, np.int64)])
