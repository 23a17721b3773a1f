# SPDX-License-Identifier: Apache-2.0
"""Which calls are the stages of a dataflow region: its statements that are calls. Where such a function has INLINE and
only calls others, these are the stages."""

from __future__ import annotations

import re

from openhls.frontend.syntax import NO_CALLS, Syntax

_NAME = re.compile(r"(?:::)?\w+(?:::\w+)*")


class StageCalls:
    """The calls of stages in a preprocessed text."""

    def __init__(self, syntax: Syntax) -> None:
        self._syntax = syntax
        self._masked = syntax.masked
        self._found: set[int] = set()  # bodies of functions with INLINE whose calls are known to be stages
        self._known_bodies: dict[str, set[int]] = {}
        self._known_scopes: dict[str, set[int]] = {}

    def of_region(self, scope: int) -> list[int]:
        """Where the calls of stages begin that are not in the answer for another region."""
        starts = []
        for start in self._calls(scope):
            bodies = self._inlined_bodies(start)
            for body in sorted(bodies - self._found):
                self._found.add(body)
                starts += self.of_region(body)
            if not bodies:
                starts.append(start)
        return starts

    def _calls(self, scope: int) -> list[int]:
        """The statements of a scope that are calls, up to a return."""
        found = []
        for start, stop in self._syntax.statements(scope):
            if self._syntax.is_return(start):
                break
            if self._syntax.is_call(start, stop):
                found.append(start)
        return found

    def _inlined_bodies(self, start: int) -> set[int]:
        """The bodies of the functions that a statement may call: if all of them have INLINE and are no regions of their
        own, call at least two others in statements, and have no other statement than these and declarations; and if
        they are called as statements of such bodies and of dataflow regions alone. Otherwise none."""
        head = _NAME.match(self._masked, start)
        name = head.group().rpartition("::")[2] if head else ""
        if name not in self._known_bodies:
            bodies = {brace for _, brace in self._syntax.definitions(name)} if name else set()
            known = bodies and bodies <= self._scopes("INLINE") - self._scopes("DATAFLOW")
            known = known and all(map(self._only_calls, bodies))
            self._known_bodies[name] = bodies if known and self._called_by_regions(name) else set()
        return self._known_bodies[name]

    def _only_calls(self, scope: int) -> bool:
        words = {
            re.split(r"\W", self._masked[start : start + 20], maxsplit=1)[0]
            for start, _ in self._syntax.statements(scope)
        }
        return len(self._calls(scope)) > 1 and not words & {"", *NO_CALLS} - {"static_assert"}

    def _called_by_regions(self, name: str) -> bool:
        """True if each call of a function is a statement of a dataflow region, or of a function with INLINE."""
        around = self._scopes("INLINE") | self._scopes("DATAFLOW")
        known = {start for scope in around for start in self._calls(scope)}
        heads = {head for head, _ in self._syntax.definitions(name)}
        for match in re.finditer(rf"(?<![\w.>])(?:\w+::)*{re.escape(name)}\s*[<(]", self._masked):
            opening = self._masked.find("(", match.start())
            if opening not in heads and match.start() not in known and not self._is_declared(match.start()):
                return False
        return True

    def _is_declared(self, name: int) -> bool:
        """True if a name is that of a declaration: nothing but a type stands before it."""
        before = max(self._masked.rfind(end, 0, name) for end in ";}{")
        text = re.sub(r"^#[^\n]*$", "", self._masked[before + 1 : name], flags=re.MULTILINE)
        words = set(re.findall(r"\w+", text))
        return (
            bool(words) and not words & {"return", "else", "do"} and re.fullmatch(r"[\w\s:<>,*&=]+", text) is not None
        )

    def _scopes(self, kind: str) -> set[int]:
        """The scopes that have a pragma, which is not off."""
        if kind not in self._known_scopes:
            pattern = rf"^[ \t]*#pragma[ \t]+HLS[ \t]+{kind}\b(?!.*\boff\b)"
            found = re.finditer(pattern, self._syntax.source, re.MULTILINE | re.IGNORECASE)
            self._known_scopes[kind] = {
                scope for match in found if (scope := self._syntax.scope_around(match.start())) >= 0
            }
        return self._known_scopes[kind]
