"""A model's texts, as those ask who need no more of it."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

from kvdrive.llama.model import Model
from kvdrive.llama.tokenizer import GgufTokenizer


@dataclass(frozen=True)
class Texts:
    """See `generation.demonstration.Texts`."""

    model: Model
    context: int

    @cached_property
    def tokenizer(self) -> GgufTokenizer:
        return GgufTokenizer(self.model.vocabulary)

    def encode(self, text: str, special: bool = True) -> list[int]:
        return self.model.vocabulary.encode(text, special)
