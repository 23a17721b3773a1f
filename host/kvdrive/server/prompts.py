"""Turns the body of a request into the tokens of its prompt, with bounds on memory and time."""

from __future__ import annotations

from kvdrive.generation.tokenizer import Tokenizer
from kvdrive.server.errors import ApiError
from kvdrive.server.reading import MOST_BYTES, Reading

_FIRST_LOOK = 8  # characters per allowed token that are tokenized first of a long text
_SLACK = 64  # tokens that a text may lose where it was cut


class Prompts(Reading):
    """`longest`: tokens of the longest prompt. `seconds`, `tenants`: see Reading; tokenizing counts as well."""

    def __init__(
        self,
        tokenizer: Tokenizer,
        longest: int,
        body_bytes: int = MOST_BYTES,
        seconds: float = 30,
        tenants: int = 1,
    ) -> None:
        self._tokenizer = tokenizer
        self._longest = longest
        self._most_characters = longest * max(map(len, tokenizer.get_vocab()))
        # A character takes at most 12 bytes of JSON: two escapes of 6 bytes.
        super().__init__(min(body_bytes, 12 * self._most_characters + (64 << 10)), seconds, tenants)

    def check_characters(self, count: int, param: str) -> None:
        """Raises ApiError for a text whose length shows that it has too many tokens."""
        if count > self._most_characters:
            text = f"the prompt has {count} characters; {self._longest} tokens, which are served, have fewer"
            raise ApiError(400, text, param=param, code="context_length_exceeded")

    def encode(self, text: str, param: str, special: bool = True) -> list[int]:
        """Tokens of `text`. A text with far too many is refused after a look at its beginning. Raises ApiError."""
        self.check_characters(len(text), param)
        size = _FIRST_LOOK * self._longest
        while size < len(text):
            if len(self._tokens(text[:size], special)) > self._longest + _SLACK:
                text = f"the prompt has more than the {self._longest} tokens that are served"
                raise ApiError(400, text, param=param, code="context_length_exceeded")
            size *= 4
        return self._tokens(text, special)

    def _tokens(self, text: str, special: bool) -> list[int]:
        ids: list[int] = self._tokenizer(text, add_special_tokens=special, verbose=False)["input_ids"]
        return ids
