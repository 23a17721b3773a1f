"""Splits an answer, while it comes, into what is said and the calls of tools."""

from __future__ import annotations

from collections.abc import Sequence

from kvdrive.server.calls import Call, Piece, Reader
from kvdrive.server.harmony import Harmony, HarmonyReader
from kvdrive.server.tool_formats import AnyFormat, Format


class CallReader:
    """What begins like a call and is none is said as it stands. White space around calls is not said.

    `several` False: calls behind the first one are left out.
    """

    def __init__(self, how: Format, *, several: bool = True) -> None:
        self._how = how
        self._several = several
        self._waiting = ""
        self._in_call = False
        self._searched = 0  # where the end of the call may begin at the earliest
        self._begun = False
        self.calls = 0

    thinks = False  # see thoughts.ThoughtReader

    def put(self, text: str) -> list[Piece]:
        """The pieces and calls that are certain with this text."""
        self._waiting += text
        found: list[Piece] = []
        while (certain := self._next()) is not None:
            found += certain
        return self._wanted(found)

    def end(self) -> list[Piece]:
        """What is left when no more text comes."""
        text, self._waiting = self._waiting, ""
        if not self._in_call:
            return self._wanted([text])
        calls = None if self._how.end else self._how.parse(text)
        return self._wanted(calls if calls else [self._how.begin + text])

    def _next(self) -> list[Piece] | None:
        """What the waiting text begins with, which is taken from it; None: nothing is certain."""
        how = self._how
        if self._in_call:
            at = self._waiting.find(how.end, self._searched) if how.end else -1
            if at < 0:
                self._searched = max(len(self._waiting) - len(how.end) + 1, 0)
                return None
            text, self._waiting = self._waiting[:at], self._waiting[at + len(how.end) :]
            self._in_call, self._searched = False, 0
            calls = how.parse(text)
            return [*calls] if calls else [how.begin + text + how.end]
        if not how.begin:
            return self._next_of_whole()
        text, begin, rest = self._waiting.partition(how.begin)
        if begin:
            self._waiting, self._in_call = rest, True
            return [text.rstrip()]
        # The end may be the beginning of a call, and what follows decides whether white space is said.
        held = next((n for n in range(len(how.begin) - 1, 0, -1) if text.endswith(how.begin[:n])), 0)
        return self._say(len(text[: len(text) - held].rstrip()))

    def _next_of_whole(self) -> list[Piece] | None:
        """The same, where an answer as a whole is a call or is none."""
        text = self._waiting.lstrip()
        if not self._begun and any(text.startswith(one) for one in self._how.first):
            self._in_call = True
            return None
        if not self._begun and any(one.startswith(text) for one in self._how.first):
            return None
        return self._say(len(self._waiting))

    def _say(self, length: int) -> list[Piece] | None:
        text, self._waiting = self._waiting[:length], self._waiting[length:]
        self._begun = self._begun or bool(text)
        return [text] if text else None

    def _wanted(self, found: Sequence[Piece]) -> list[Piece]:
        wanted: list[Piece] = []
        for one in found:
            if isinstance(one, Call):
                self.calls += 1
                if self._several or self.calls == 1:
                    wanted.append(one)
            elif isinstance(one, str) and (one.strip() or (one and not self.calls)):
                wanted.append(one)
        return wanted


def reader_of(how: AnyFormat, *, several: bool = True) -> Reader:
    """What reads answers in a format."""
    return HarmonyReader(several=several) if isinstance(how, Harmony) else CallReader(how, several=several)
