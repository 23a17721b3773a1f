# SPDX-License-Identifier: Apache-2.0
"""Files, lines and columns of the offsets of a preprocessed text."""

from __future__ import annotations

import re
from bisect import bisect_right
from pathlib import Path

from openhls.ir import Location

_HEADERS = str(Path(__file__).parent / "shim")


class Places:
    """Files and lines of the offsets of a preprocessed text."""

    def __init__(self, text: str) -> None:
        self._starts: list[int] = []
        self._places: list[tuple[str, int, bool]] = []
        self._lines = [0, *(match.end() for match in re.finditer("\n", text))]
        for match in re.finditer(r'^# (\d+) "([^"]*)"((?: \d)*)$', text, re.MULTILINE):
            self._starts.append(match.end() + 1)
            self._places.append((match.group(2), int(match.group(1)), "3" in match.group(3).split()))

    def line_number(self, offset: int) -> int:
        """The line of the preprocessed text itself."""
        return bisect_right(self._lines, offset)

    def _entry(self, offset: int) -> tuple[int, tuple[str, int, bool]]:
        index = max(bisect_right(self._starts, offset) - 1, 0)
        return self._starts[index], self._places[index]

    def location(self, offset: int) -> Location:
        """The C++ line."""
        start, (file, line, _) = self._entry(offset)
        return Location(file, line + self.line_number(offset) - self.line_number(start))

    def column(self, offset: int) -> int:
        """Column, 1 is the first."""
        return offset - self._lines[self.line_number(offset) - 1] + 1

    def is_system(self, offset: int) -> bool:
        """True if the text comes from a header of the system."""
        return self._entry(offset)[1][2]

    def is_users(self, offset: int) -> bool:
        """True if the text comes from no header of the system or of openhls."""
        file, _, system = self._entry(offset)[1]
        return not system and not file.startswith(_HEADERS)

    def files(self) -> tuple[str, ...]:
        """Files that are not the system's, in order of appearance."""
        return tuple(dict.fromkeys(file for file, _, system in self._places if not system and not file.startswith("<")))
