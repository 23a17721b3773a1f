"""Text and tokens of a model, as llama.cpp translates them."""

from __future__ import annotations

import codecs
import ctypes
from collections.abc import Mapping, Sequence
from typing import Any

from kvdrive.errors import InputError
from kvdrive.llama.functions import Functions

_NONE = 0  # llama_vocab_type of models without a vocabulary
_PIECE_BYTES = 256
_UNKNOWN, _CONTROL, _USER_DEFINED = 1 << 0, 1 << 3, 1 << 4  # llama_token_attr


class Vocabulary:
    """The vocabulary of a model that lives. `template`: how messages become text, in Jinja; "": the model has none."""

    def __init__(self, functions: Functions, pointer: int, template: str) -> None:
        self._functions, self._pointer = functions, pointer
        self.template = template
        self.size = int(functions.llama_vocab_n_tokens(pointer))

    def require_text(self) -> None:
        """Raises InputError for a model without a vocabulary, whose tokens are numbers only."""
        if self._functions.llama_vocab_type(self._pointer) == _NONE:
            raise InputError("the model's file has no vocabulary: give one that has its tokenizer in it")

    def encode(self, text: str, special: bool = True) -> list[int]:
        """As `tokens`. Raises InputError for no tokens, too."""
        found = self.tokens(text, special)
        if not found:
            raise InputError("the prompt is empty: give it some text")
        return found

    def tokens(self, text: str, special: bool = True, named: bool = True) -> list[int]:
        """Token numbers of a text, with the `special` ones around it that the model wants. `named`: names of special
        tokens in the text stand for these. Raises InputError for a model without a vocabulary.
        """
        self.require_text()
        content = text.encode()
        room = len(content) + 16
        while True:
            tokens = (ctypes.c_int32 * room)()
            found = self._functions.llama_tokenize(self._pointer, content, len(content), tokens, room, special, named)
            if found >= 0:
                return list(tokens[:found])
            room = -found

    def piece(self, token: int, special: bool = False) -> bytes:
        """What a token adds to a text; special tokens nothing, unless `special`."""
        room = _PIECE_BYTES
        while True:
            text = ctypes.create_string_buffer(room)
            found = self._functions.llama_token_to_piece(self._pointer, token, text, room, 0, special)
            if found >= 0:
                return text.raw[:found]
            room = -found

    def ends(self, token: int) -> bool:
        """True if a text ends with this token."""
        return bool(self._functions.llama_vocab_is_eog(self._pointer, token))

    def name(self, token: int) -> str:
        """What the vocabulary calls a token."""
        text: bytes = self._functions.llama_vocab_get_text(self._pointer, token) or b""
        return text.decode(errors="replace")

    def is_special(self, token: int) -> bool:
        """True for a token that stands for no text."""
        return bool(self._functions.llama_vocab_get_attr(self._pointer, token) & (_UNKNOWN | _CONTROL))

    def is_named(self, token: int) -> bool:
        """True for a token that its name in a text stands for."""
        return bool(self._functions.llama_vocab_get_attr(self._pointer, token) & (_CONTROL | _USER_DEFINED))

    @property
    def begin(self) -> int | None:
        """The token that begins a text, if there is one."""
        return self._or_none(self._functions.llama_vocab_bos(self._pointer))

    @property
    def end(self) -> int | None:
        """The token that ends a text, if there is one; there may be others (`ends`)."""
        return self._or_none(self._functions.llama_vocab_eos(self._pointer))

    def chat_text(self, messages: Sequence[Mapping[str, Any]]) -> str:
        """The messages as one text that an answer goes on with. Raises InputError where the template refuses them."""
        if not self.template:
            return "".join(f"{one['role']}: {one['content'].strip()}\n" for one in messages) + "assistant:"
        from kvdrive.llama.template import rendered

        return rendered(self.template, messages, bos_token=self.written(self.begin), eos_token=self.written(self.end))

    def written(self, token: int | None) -> str:
        """A token as templates write it; "" for none."""
        return "" if token is None else self.piece(token, special=True).decode(errors="replace")

    @staticmethod
    def _or_none(token: int) -> int | None:
        return token if token >= 0 else None


class TextStream:
    """Text of a growing list of tokens; a character whose bytes span tokens comes when it is complete."""

    def __init__(self, vocabulary: Vocabulary) -> None:
        self._vocabulary = vocabulary
        self._decoder = codecs.getincrementaldecoder("utf-8")(errors="replace")

    def put(self, token: int) -> str:
        """The text that this token completes."""
        return self._decoder.decode(self._vocabulary.piece(token))

    def end(self) -> str:
        """The remaining text, even if its last character is incomplete."""
        return self._decoder.decode(b"", final=True)


def text_of(vocabulary: Vocabulary, tokens: Sequence[int]) -> str:
    """The text of tokens."""
    return b"".join(map(vocabulary.piece, tokens)).decode(errors="replace")
