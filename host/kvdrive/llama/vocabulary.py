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


class Vocabulary:
    """The vocabulary of a model that lives. `template`: how messages become text, in Jinja; "": the model has none."""

    def __init__(self, functions: Functions, pointer: int, template: str) -> None:
        self._functions, self._pointer = functions, pointer
        self.template = template
        self.size = int(functions.llama_vocab_n_tokens(pointer))

    @property
    def has_text(self) -> bool:
        """True if the model has a vocabulary, and not only numbers."""
        return bool(self._functions.llama_vocab_type(self._pointer) != _NONE)

    def encode(self, text: str, special: bool = True) -> list[int]:
        """Token numbers of a text, with the `special` ones around it that the model wants. Names of special tokens in
        the text stand for these. Raises InputError for no tokens.
        """
        if not self.has_text:
            raise InputError("the model's file has no vocabulary: give one that has its tokenizer in it")
        content = text.encode()
        room = len(content) + 16
        while True:
            tokens = (ctypes.c_int32 * room)()
            found = self._functions.llama_tokenize(self._pointer, content, len(content), tokens, room, special, True)
            if found >= 0:
                break
            room = -found
        if not found:
            raise InputError("the prompt is empty: give it some text")
        return list(tokens[:found])

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

    def chat_text(self, messages: Sequence[Mapping[str, Any]]) -> str:
        """The messages as one text that an answer goes on with. Raises InputError where the template refuses them."""
        if not self.template:
            return "".join(f"{one['role']}: {one['content'].strip()}\n" for one in messages) + "assistant:"
        from kvdrive.llama.template import rendered

        begin, end = (self._functions.llama_vocab_bos(self._pointer), self._functions.llama_vocab_eos(self._pointer))
        return rendered(self.template, messages, bos_token=self._named(begin), eos_token=self._named(end))

    def _named(self, token: int) -> str:
        return self.piece(token, special=True).decode(errors="replace") if token >= 0 else ""


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
