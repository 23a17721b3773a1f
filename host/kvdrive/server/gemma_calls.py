"""Calls as Gemma writes them: call:NAME{KEY:VALUE,...}, whose texts stand between markers."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from kvdrive.server.calls import Call, Parse, json_value, named_call

_MOST_DEPTH = 64


def gemma_calls(quote: str) -> Parse:
    """`quote`: the marker before and behind a text."""

    def parse(text: str) -> list[Call] | None:
        name, brace, rest = text.strip().removeprefix("call:").partition("{")
        if not brace or not text.strip().startswith("call:"):
            return None
        try:
            reader = _Values("{" + rest, quote)
            found = reader.value()
            reader.end()
        except _Unclear:
            return None
        call = named_call(name, found)
        return [call] if call else None

    return parse


class _Unclear(Exception):
    """The text is no value."""


class _Values:
    """Reads values of a text, from its beginning on."""

    def __init__(self, text: str, quote: str) -> None:
        self._text, self._quote = text, quote
        self._at = self._depth = 0

    def value(self) -> Any:
        """The value here, as of JSON. Raises _Unclear."""
        if self._text.startswith(self._quote, self._at):
            return self._quoted()
        if self._text.startswith("{", self._at):
            return dict(self._several("}", self._pair))
        if self._text.startswith("[", self._at):
            return self._several("]", self.value)
        bare = self._until(",}]").strip()
        if not bare:
            raise _Unclear
        found = json_value(bare)
        return bare if found is None and bare != "null" else found

    def end(self) -> None:
        """Raises _Unclear if something follows."""
        if self._text[self._at :].strip():
            raise _Unclear

    def _pair(self) -> tuple[str, Any]:
        quoted = self._text.startswith(self._quote, self._at)
        key = self._quoted() if quoted else self._until(":").strip()
        self._take(":")
        return key, self.value()

    def _several(self, last: str, one: Callable[[], Any]) -> list[Any]:
        """What stands between the bracket here and `last`, with commas between."""
        self._at += 1
        self._depth += 1
        if self._depth > _MOST_DEPTH:
            raise _Unclear
        found: list[Any] = []
        while not self._text.startswith(last, self._at):
            if found:
                self._take(",")
            found.append(one())
        self._take(last)
        self._depth -= 1
        return found

    def _quoted(self) -> str:
        first = self._at + len(self._quote)
        end = self._text.find(self._quote, first)
        if end < 0:
            raise _Unclear
        self._at = end + len(self._quote)
        return self._text[first:end]

    def _until(self, stops: str) -> str:
        ends = [end for one in stops if (end := self._text.find(one, self._at)) >= 0]
        if not ends:
            raise _Unclear
        found, self._at = self._text[self._at : min(ends)], min(ends)
        return found

    def _take(self, expected: str) -> None:
        if not self._text.startswith(expected, self._at):
            raise _Unclear
        self._at += len(expected)
