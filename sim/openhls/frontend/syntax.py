# SPDX-License-Identifier: Apache-2.0
"""What of the structure of C++ can be seen without a parser: brackets, scopes, statements, definitions of functions."""

from __future__ import annotations

import re
from bisect import bisect_right
from collections.abc import Iterator

NO_CALLS = ("if", "for", "while", "do", "switch", "return", "asm", "static_assert")  # before a parenthesis


_NAME = re.compile(r"(?:::\s*)?\w+(?:\s*::\s*\w+)*")
_LITERAL = re.compile(
    r'(?<!\w)(?:u8|[uUL])?R"(?P<mark>[^()\\\s]{0,16})\((?s:.*?)\)(?P=mark)"'
    r'|"(?:[^"\\\n]|\\.)*"'
    r"|(?<!\w)(?:u8|[uUL])?'(?:[^'\\\n]|\\.)*'"
)


def blank_literals(text: str) -> str:
    """The text with the contents of string and character literals replaced, so that braces in them do not count."""

    def blank(match: re.Match[str]) -> str:
        literal = match.group()
        return literal[0] + re.sub(r"[^\n]", "_", literal[1:-1]) + literal[-1]

    return _LITERAL.sub(blank, text)


class Syntax:
    """A preprocessed text. In `masked` the contents of literals are blank; `closing` has the place of the bracket that
    closes the one at a place."""

    def __init__(self, source: str) -> None:
        self.source = source
        self.masked = blank_literals(source)
        self.closing = self._match_brackets()
        self.opening = sorted(start for start in self.closing if self.masked[start] == "{")

    def _match_brackets(self) -> dict[int, int]:
        """Offset of each opening bracket: that of the closing one."""
        closing: dict[int, int] = {}
        stack: list[tuple[str, int]] = []
        for match in re.finditer(r"^#.*$|[(){}]", self.masked, re.MULTILINE):
            character = match.group(0)
            if character in "({":
                stack.append((character, match.start()))
            elif character in ")}" and stack:
                closing[stack.pop()[1]] = match.start()
        return closing

    def skip_space(self, offset: int) -> int:
        match = re.compile(r"(?:\s|^#[^\n]*\n)*", re.MULTILINE).match(self.masked, offset)
        assert match is not None
        return match.end()

    def scope_around(self, offset: int) -> int:
        """The brace that opens the innermost scope, or -1."""
        for start in reversed(self.opening[: bisect_right(self.opening, offset)]):
            if self.closing[start] > offset:
                return start
        return -1

    def definitions(self, name: str) -> Iterator[tuple[int, int]]:
        """The opening parenthesis of the parameters and the brace of the body of each definition of a function."""
        for match in re.finditer(rf"(?<![\w.>])(?:\w+::)*{re.escape(name)}\s*\(", self.masked):
            first = match.end() - 1
            brace = self.skip_space(self.closing[first] + 1) if first in self.closing else len(self.masked)
            if self.masked[brace : brace + 1] == "{":
                yield first, brace

    def statements(self, scope: int) -> Iterator[tuple[int, int]]:
        """Where the statements of a scope begin and end."""
        position, end = scope + 1, self.closing[scope]
        while (start := self.skip_space(position)) < end:
            stop = self.end_of_statement(start, end)
            yield start, stop
            position = stop + 1

    def end_of_statement(self, start: int, end: int) -> int:
        offset = start
        while offset < end:
            character = self.masked[offset]
            if character == "(" or character == "{":
                offset = self.closing[offset]
                if character == "{":
                    return offset
            elif character == ";":
                return offset
            offset += 1
        return end

    def is_return(self, start: int) -> bool:
        """True if a statement is a return, not a name that begins like one."""
        return re.compile(r"return\b").match(self.masked, start) is not None

    def end_of_arguments(self, offset: int) -> int:
        """The bracket that closes the arguments of a template, whose `<` is at `offset`; -1 if there is none."""
        depth, at = 0, offset
        while at < len(self.masked) and self.masked[at] not in ";)}":
            if self.masked.startswith(("<<", "<=", ">=", "->"), at):
                at += 1
            elif self.masked[at] in "({":
                at = self.closing.get(at, len(self.masked))
            elif self.masked[at] in "<>":
                depth += 1 if self.masked[at] == "<" else -1
                if depth == 0:
                    return at
            at += 1
        return -1

    def is_call(self, start: int, stop: int) -> bool:
        """True if a statement is `f(...)`, `a::f<...>(...)` or `(f<...>)(...)`, not a declaration."""
        at = self.skip_space(start)
        if self.masked[at] == "(":
            return True
        while (name := _NAME.match(self.masked, at)) is not None and name.group() not in NO_CALLS:
            at = self.skip_space(name.end())
            if self.masked[at] == "<" and (end := self.end_of_arguments(at)) >= 0:
                at = self.skip_space(end + 1)
            if not self.masked.startswith("::", at):
                return at < stop and self.masked[at] == "("
        return False
