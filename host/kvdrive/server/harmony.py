"""Answers of GPT-OSS: messages in channels, as OpenAI's description of the format "harmony" has them.

The package openai-harmony is not used: it downloads a vocabulary when it is first called, and all that is to do here
is to tell messages apart by their markers.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from kvdrive.errors import InputError
from kvdrive.server.calls import Marker, Piece, Thought, Tool, json_value, named_call
from kvdrive.server.grammar import Schema, schema_in_lark

_CHANNEL, _CONSTRAIN, _MESSAGE, _START = "<|channel|>", "<|constrain|>", "<|message|>", "<|start|>"
_ENDS = ("<|end|>", "<|call|>", "<|return|>")
_MARKERS = (_CHANNEL, _CONSTRAIN, _MESSAGE, _START, *_ENDS)
_RECIPIENT = re.compile(r"to=functions\.(\S+)")
_THOUGHTS = "analysis"
_BETWEEN = "\n\n"  # two messages that are said
NO_CHOICE = "this model's calls cannot be told from JSON: send response_format only where tool_choice is none"


class Harmony:
    """The format. `always`: answers are read in the same way where no tools are offered."""

    name = "GPT-OSS"
    signs: Sequence[str] = (_CHANNEL, _CONSTRAIN)
    always = True

    def must_call(self, tools: Sequence[Tool], marker: Marker, *, several: bool) -> str:
        """A grammar in Lark for an answer that calls one of `tools`, without thoughts before it."""
        name = marker(_CHANNEL)
        calls = [
            f'call_{number}: {name} "commentary to=functions.{tool.name} " {marker(_CONSTRAIN)} "json" '
            f"{marker(_MESSAGE)} {schema_in_lark(tool.parameters)}"
            for number, tool in enumerate(tools)
        ]
        return "\n".join([f"start: {' | '.join(f'call_{number}' for number in range(len(tools)))}", *calls])

    def may_call(self, tools: Sequence[Tool], marker: Marker, schema: Schema, *, several: bool) -> str:
        """Raises InputError."""
        raise InputError(NO_CHOICE)


class HarmonyReader:
    """Splits an answer, while it comes, into what is said, thoughts and calls. See `calls.Reader`.

    Text without a header is said, which an answer that keeps to a grammar is.
    """

    def __init__(self, *, several: bool = True) -> None:
        self._several = several
        self._waiting = ""
        self._header: str | None = None  # of the message that is read; None: its content has begun
        self._of = "final"  # the header of that content
        self._content = ""  # of a call
        self._said = self._pause = self._thought = False
        self.calls = 0

    def put(self, text: str) -> list[Piece]:
        """The pieces and calls that are certain with this text."""
        self._waiting += text
        found: list[Piece] = []
        while (marker := self._marker()) is not None:
            before, _, self._waiting = self._waiting.partition(marker)
            found += self._text(before) + self._at(marker)
        held = next((n for n in range(12, 0, -1) if any(one.startswith(self._waiting[-n:]) for one in _MARKERS)), 0)
        certain = len(self._waiting) - min(held, len(self._waiting))
        text, self._waiting = self._waiting[:certain], self._waiting[certain:]
        return found + self._text(text)

    def end(self) -> list[Piece]:
        """What is left when no more text comes."""
        text, self._waiting = self._waiting, ""
        return self._text(text) + self._close()

    def _marker(self) -> str | None:
        """The first marker in the waiting text."""
        there = [(at, one) for one in _MARKERS if (at := self._waiting.find(one)) >= 0]
        return min(there)[1] if there else None

    def _text(self, text: str) -> list[Piece]:
        if not text:
            return []
        if self._header is not None:
            self._header += text
            return []
        if _RECIPIENT.search(self._of):
            self._content += text
            return []
        return self._think(text) if self._is_thought else self._say(text)

    def _at(self, marker: str) -> list[Piece]:
        """What a marker completes."""
        if marker == _MESSAGE:
            self._of, self._header = (self._header or "final").strip(), None
            self._pause = self._thought if self._is_thought else self._said
            return []
        if marker in (_START, *_ENDS):
            found, self._header = self._close(), ""
            return found
        if marker == _CHANNEL:  # the role stands before it, perhaps with the recipient
            found, recipient = [] if self._header else self._close(), _RECIPIENT.search(self._header or "")
            self._header = f"{recipient[0]} " if recipient else ""
            return found
        return self._text(" ")

    def _close(self) -> list[Piece]:
        """The end of a message."""
        recipient, content = _RECIPIENT.search(self._of), self._content
        self._of, self._content = "final", ""
        if recipient is None:
            return []
        call = named_call(recipient[1], json_value(content))
        if call is None:
            return self._say(content)
        self.calls += 1
        return [call] if self._several or self.calls == 1 else []

    @property
    def thinks(self) -> bool:
        """True while thoughts come."""
        return self._header is None and self._is_thought

    @property
    def _is_thought(self) -> bool:
        return _THOUGHTS in self._of.split()

    def _think(self, text: str) -> list[Piece]:
        pause, self._pause, self._thought = _BETWEEN if self._pause else "", False, True
        return [Thought(pause + text)] if text else []

    def _say(self, text: str) -> list[Piece]:
        pause, self._pause, self._said = _BETWEEN if self._pause else "", False, True
        return [pause + text] if text else []
