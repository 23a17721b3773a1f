"""Training sequences with tokens that only far earlier text determines. They teach a small model to look back."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray
from tokenizers import Tokenizer

from kvdrive.eval.wording import digits, passkey_lines, register_line, register_names, register_question

Piece = tuple[list[int], list[float]]  # tokens, weight of each in the loss
UNKNOWABLE, QUESTION, TEXT, RECALLED = 0.0, 0.2, 1.0, 2.0


class Tasks:
    """Sequences of `length` tokens: real text with statements early on that are asked for later."""

    def __init__(self, tokenizer: Tokenizer, text: NDArray[np.uint16], rng: np.random.Generator) -> None:
        self._tokenizer, self._text, self._rng = tokenizer, text, rng
        self._size = tokenizer.get_vocab_size()

    def sequence(self, length: int) -> tuple[NDArray[np.int64], NDArray[np.float32]]:
        """One sequence of one of the tasks: tokens and weights, both [length]."""
        kinds: list[Callable[[int], Piece]] = [self.repeats, self.repeats, self.passkey, self.registers]
        tokens, weights = kinds[self._rng.integers(len(kinds))](length)
        return np.array(tokens[:length], np.int64), np.array(weights[:length], np.float32)

    def repeats(self, length: int) -> Piece:
        """Segments of random tokens or of text, each of which is repeated after others."""
        tokens: list[int] = []
        weights: list[float] = []
        seen: list[list[int]] = []
        while len(tokens) < length:
            if seen and self._rng.random() < 0.5:
                segment = seen[self._rng.integers(len(seen))]
                start = int(self._rng.integers(0, max(1, len(segment) // 2)))
                again = segment[start:]
                tokens += again
                weights += [UNKNOWABLE] * min(3, len(again)) + [RECALLED] * (len(again) - 3)
            else:
                segment = self._segment(int(self._rng.integers(8, max(9, min(96, length // 6)))))
                seen.append(segment)
                tokens += segment
                weights += [UNKNOWABLE] * len(segment)
        return tokens, weights

    def passkey(self, length: int) -> Piece:
        """A pass key in real text, asked for one to three times."""
        said, question, answer = passkey_lines(digits(self._rng, 5))
        return self._among_text(length, [said], [(question, answer)] * int(self._rng.integers(1, 4)))

    def registers(self, length: int) -> Piece:
        """Lines with names and values, some asked for."""
        names = register_names(self._rng, int(self._rng.integers(2, 12)))
        values = [digits(self._rng, 5) for _ in names]
        lines = [register_line(name, value) for name, value in zip(names, values, strict=True)]
        asked = self._rng.integers(0, len(names), len(names))
        return self._among_text(length, lines, [register_question(names[i], values[i]) for i in asked])

    def _among_text(self, length: int, said: list[str], asked: list[tuple[str, str]]) -> Piece:
        statements = [(self._encode(line), UNKNOWABLE, []) for line in said]
        questions = [(self._encode(question), QUESTION, self._encode(answer)) for question, answer in asked]
        fixed = sum(len(a) + len(b) for a, _, b in statements + questions)
        gaps = self._rng.dirichlet(np.full(len(said) + len(asked), 0.6)) * max(0, length - fixed)
        tokens: list[int] = []
        weights: list[float] = []
        for gap, (line, weight, answer) in zip(gaps, statements + questions, strict=True):
            filler = self._filler(int(gap))
            tokens += filler + line + answer
            weights += [TEXT] * len(filler) + [weight] * len(line) + [RECALLED] * len(answer)
        missing = length - len(tokens)
        return tokens + self._filler(missing), weights + [TEXT] * max(0, missing)

    def _segment(self, count: int) -> list[int]:
        if self._rng.random() < 0.5:
            low = int(self._rng.integers(1, self._size - 64))
            high = self._size if self._rng.random() < 0.5 else low + 64
            return self._rng.integers(low, high, count).tolist()
        return self._filler(count)

    def _filler(self, count: int) -> list[int]:
        if count <= 0:
            return []
        start = int(self._rng.integers(0, len(self._text) - count))
        return self._text[start : start + count].tolist()

    def _encode(self, text: str) -> list[int]:
        return self._tokenizer.encode(text).ids
