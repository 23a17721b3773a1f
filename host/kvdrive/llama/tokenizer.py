"""The vocabulary of a GGUF file with the methods that the server asks of a tokenizer (`generation.tokenizer`)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from kvdrive.llama.template import rendered
from kvdrive.llama.vocabulary import Vocabulary

_NAMES = {"bos_token", "eos_token"}  # of special tokens, which templates know


class GgufTokenizer:
    """See Tokenizer. It lives as long as its model. Raises InputError for a model without a vocabulary."""

    def __init__(self, vocabulary: Vocabulary) -> None:
        vocabulary.require_text()
        self._vocabulary = vocabulary
        self.chat_template = vocabulary.template or None
        self.bos_token = vocabulary.written(vocabulary.begin) or None
        self.eos_token = vocabulary.written(vocabulary.end) or None

    @cached_property
    def stop_ids(self) -> frozenset[int]:
        """The tokens that end a text."""
        return frozenset(filter(self._vocabulary.ends, range(len(self))))

    @cached_property
    def all_special_ids(self) -> list[int]:
        return list(filter(self._vocabulary.is_special, range(len(self))))

    @cached_property
    def all_special_tokens(self) -> list[str]:
        return [self._vocabulary.written(token) for token in self.all_special_ids]

    @property
    def added_tokens_decoder(self) -> dict[int, Any]:
        """What `all_special_tokens` has is all."""
        return {}

    def __len__(self) -> int:
        return self._vocabulary.size

    def __call__(
        self, text: str, *, add_special_tokens: bool = True, split_special_tokens: bool = False, verbose: bool = True
    ) -> dict[str, list[int]]:
        return {"input_ids": self._vocabulary.tokens(text, add_special_tokens, not split_special_tokens)}

    def decode(
        self, tokens: Sequence[int], *, skip_special_tokens: bool = False, clean_up_tokenization_spaces: bool = False
    ) -> str:
        pieces = (self._vocabulary.piece(token, special=not skip_special_tokens) for token in tokens)
        return b"".join(pieces).decode(errors="replace")

    def convert_ids_to_tokens(self, ids: int | Sequence[int]) -> str | list[str]:
        return self._vocabulary.name(ids) if isinstance(ids, int) else [self._vocabulary.name(one) for one in ids]

    def get_vocab(self) -> dict[str, int]:
        return dict(self._numbers)

    def get_added_vocab(self) -> dict[str, int]:
        return dict(self._added)

    def apply_chat_template(
        self, messages: Sequence[Mapping[str, Any]], *, tokenize: bool, add_generation_prompt: bool, **more: Any
    ) -> str:
        """See Tokenizer. `more`: `tools`. Raises InputError."""
        assert not tokenize, "tokens are made of the text"
        names = {name: getattr(self, name) or "" for name in _NAMES}
        return rendered(
            self._vocabulary.template, messages, add_generation_prompt=add_generation_prompt, **names, **more
        )

    def pieces(self) -> GgufPieces:
        """See Spelled."""
        vocabulary = self._vocabulary
        spelled = [vocabulary.piece(token, special=True) for token in range(len(self))]
        return GgufPieces(vocabulary, spelled, self.all_special_ids, vocabulary.begin, max(self.stop_ids, default=0))

    @cached_property
    def _added(self) -> dict[str, int]:
        named = filter(self._vocabulary.is_named, range(len(self)))
        return {self._vocabulary.written(token): token for token in named}

    @cached_property
    def _numbers(self) -> dict[str, int]:
        return {self._vocabulary.name(token): token for token in range(len(self))}


@dataclass(frozen=True)
class GgufPieces:
    """See `generation.tokenizer.Pieces`."""

    vocabulary: Vocabulary
    tokens: Sequence[bytes]
    special_token_ids: Sequence[int]
    bos_token_id: int | None
    eos_token_id: int

    def __call__(self, text: str | bytes) -> list[int]:
        return self.vocabulary.tokens(text if isinstance(text, str) else text.decode(errors="replace"), False, False)
