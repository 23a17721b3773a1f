"""Texts that end an answer, found while it streams."""

from __future__ import annotations

from collections.abc import Sequence


class StopFilter:
    """Passes text on until a stop text comes. Holds back text that may begin one. `stopped_by`: the one that came."""

    def __init__(self, stops: Sequence[str]) -> None:
        self._stops = stops
        self._waiting = ""
        self.stopped_by = ""

    @property
    def stopped(self) -> bool:
        """True if a stop text came."""
        return bool(self.stopped_by)

    def put(self, text: str) -> str:
        """The part of the text so far that is certain to be outside a stop text."""
        if self.stopped:
            return ""
        self._waiting += text
        found = [(at, stop) for stop in self._stops if (at := self._waiting.find(stop)) >= 0]
        if found:
            at, self.stopped_by = min(found)
            return self._take(at, drop_rest=True)
        return self._take(len(self._waiting) - self._held())

    def end(self) -> str:
        """The text held back. Called when no more text comes."""
        return self._take(len(self._waiting))

    def _held(self) -> int:
        """Length of the longest suffix of the text that is a prefix of a stop text."""
        longest = max((len(stop) - 1 for stop in self._stops), default=0)
        sizes = range(min(longest, len(self._waiting)), 0, -1)
        return next((n for n in sizes if any(stop.startswith(self._waiting[-n:]) for stop in self._stops)), 0)

    def _take(self, length: int, drop_rest: bool = False) -> str:
        taken, rest = self._waiting[:length], self._waiting[length:]
        self._waiting = "" if drop_rest else rest
        return taken
