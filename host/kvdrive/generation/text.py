"""Decodes tokens to text while they arrive."""

from __future__ import annotations

from kvdrive.generation.tokenizer import Tokenizer

_INCOMPLETE = "�"  # the replacement character, which tokenizers write for an incomplete character


class TextStream:
    """Text of a growing list of tokens; a character whose bytes span tokens comes when it is complete.

    Each piece is the difference of two decodings that start at the same token, because a tokenizer may write a token
    differently (or without its space) where it is the first.
    """

    def __init__(self, tokenizer: Tokenizer, *, special: bool = False) -> None:
        self._tokenizer = tokenizer
        self._special = special
        self._tokens: list[int] = []
        self._start = 0
        self._shown = 0

    def put(self, token: int) -> str:
        """The text that this token completes; special tokens have none, unless `special`."""
        self._tokens.append(token)
        return self._piece(final=False)

    def end(self) -> str:
        """The remaining text, even if its last character is incomplete."""
        return self._piece(final=True)

    def _piece(self, final: bool) -> str:
        before = self._decode(self._tokens[self._start : self._shown])
        text = self._decode(self._tokens[self._start :])
        if len(text) <= len(before) or (text.endswith(_INCOMPLETE) and not final):
            return ""
        self._start, self._shown = self._shown, len(self._tokens)
        return text[len(before) :]

    def _decode(self, tokens: list[int]) -> str:
        options = {"skip_special_tokens": not self._special, "clean_up_tokenization_spaces": False}
        text: str = self._tokenizer.decode(tokens, **options)
        return text
