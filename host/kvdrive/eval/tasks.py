"""Retrieval tasks: statements hidden in real text, a question at its end, an answer that only a statement gives."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from kvdrive.errors import InputError

Tokens = NDArray[np.int64]


class Encoder(Protocol):
    """The part of a tokenizer that a task uses."""

    def __call__(self, text: str) -> list[int]:
        """Tokens of a text, without special tokens."""


@dataclass(frozen=True)
class Case:
    """One question. `answer` follows `prompt` directly. `depth`: place of the statement, 0 = start, 1 = end."""

    task: str
    prompt: Tokens
    answer: Tokens
    depth: float


def passkey_lines(key: str) -> tuple[str, str, str]:
    """Statement, question and answer of the passkey task."""
    return f"# The pass key is {key}. Remember it.\n", "# What is the pass key? The pass key is ", f"{key}.\n"


def register_line(name: str, value: str) -> str:
    """A line of the line-retrieval task."""
    return f"line {name}: REGISTER = {value}\n"


def register_question(name: str, value: str) -> tuple[str, str]:
    """Question and answer of the line-retrieval task."""
    return f"assert line {name}: REGISTER = ", f"{value}\n"


def document_line(name: str, key: str) -> str:
    """A statement of the two-document task."""
    return f"# Document {name}: the pass key is {key}. Remember it.\n"


def document_question(names: Sequence[str], keys: Sequence[str]) -> tuple[str, str]:
    """Question and answer of the two-document task: the keys of both documents."""
    question = f"# What are the pass keys of documents {' and '.join(names)}? The pass keys are "
    return question, f"{' and '.join(keys)}.\n"


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


def passkey(encode: Encoder, text: Tokens, tokens: int, depth: float, rng: np.random.Generator) -> Case:
    """One pass key of five digits in `tokens` tokens of `text`."""
    statement, question, answer = passkey_lines(digits(rng, 5))
    prompt = _hide(text, tokens, [(depth, encode(statement))], encode(question), rng)
    return Case("passkey", prompt, np.array(encode(answer), np.int64), depth)


def lines(encode: Encoder, text: Tokens, tokens: int, depth: float, rng: np.random.Generator, count: int = 10) -> Case:
    """`count` named lines spread evenly over the text, the one nearest to `depth` is asked for."""
    names = register_names(rng, count)
    values = [digits(rng, 5) for _ in names]
    depths = [(i + 0.5) / count for i in range(count)]
    asked = int(np.argmin(np.abs(np.array(depths) - depth)))
    statements = [
        (where, encode(register_line(name, value))) for where, name, value in zip(depths, names, values, strict=True)
    ]
    question, answer = register_question(names[asked], values[asked])
    prompt = _hide(text, tokens, statements, encode(question), rng)
    return Case("lines", prompt, np.array(encode(answer), np.int64), depths[asked])


def documents(encode: Encoder, text: Tokens, tokens: int, depth: float, rng: np.random.Generator) -> Case:
    """Two documents of half the tokens, each with a pass key at `depth` of it. The answer is both keys."""
    names, keys = register_names(rng, 2), [digits(rng, 5) for _ in range(2)]
    question, answer = document_question(names, keys)
    sizes, ends = (tokens // 2, tokens - tokens // 2), ("", question)
    parts = [
        _hide(text, size, [(depth, encode(document_line(name, key)))], encode(end) if end else [], rng)
        for size, end, name, key in zip(sizes, ends, names, keys, strict=True)
    ]
    return Case("documents", np.concatenate(parts), np.array(encode(answer), np.int64), depth / 2)


TASKS = {"passkey": passkey, "lines": lines, "documents": documents}


def cases(
    names: Sequence[str], encode: Encoder, text: Tokens, tokens: int, depths: Sequence[float], repeats: int, seed: int
) -> list[Case]:
    """`repeats` cases of each task at each depth, prompts of `tokens` tokens out of `text`.

    Same arguments, same cases. Raises InputError for unknown tasks and for too little text.
    """
    unknown = [name for name in names if name not in TASKS]
    if unknown:
        raise InputError(f"no task '{unknown[0]}': choose among {', '.join(TASKS)}")
    rng = np.random.default_rng(seed)
    return [TASKS[name](encode, text, tokens, depth, rng) for name in names for depth in depths for _ in range(repeats)]


def _hide(
    text: Tokens, tokens: int, statements: list[tuple[float, list[int]]], question: list[int], rng: np.random.Generator
) -> Tokens:
    """`tokens` tokens: a random stretch of `text` with each statement at its depth, then the question."""
    filler = tokens - len(question) - sum(len(statement) for _, statement in statements)
    if filler <= 0:
        raise InputError(f"a prompt of {tokens} tokens has no room for the task: take a longer context")
    if filler > len(text):
        raise InputError(f"{tokens} tokens of prompt cannot be filled from {len(text)} tokens of text: name more text")
    start = int(rng.integers(0, len(text) - filler + 1))
    stretch = text[start : start + filler]
    parts: list[NDArray[np.int64]] = []
    done = 0
    for depth, statement in statements:
        here = round(depth * filler)
        parts += [stretch[done:here], np.array(statement, np.int64)]
        done = here
    return np.concatenate([*parts, stretch[done:], np.array(question, np.int64)])
