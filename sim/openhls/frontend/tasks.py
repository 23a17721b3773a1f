# SPDX-License-Identifier: Apache-2.0
"""`hls::task` and the channels of hls_np_channel.h, as calls of functions that never return.

A declaration `hls::task t(f, a, b);` becomes the stage `openhls::run_task<f>(a, b);`, and so does `t[i](f, a, b);` of
an array of tasks. A channel `c` is a stage as well: `c.openhls_run<...>();` at the end of its scope. Lines stay.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from openhls.errors import Unsupported
from openhls.frontend.places import Places
from openhls.frontend.syntax import Syntax
from openhls.ir import Life

_HEADERS = re.compile(r'^# \d+ "[^"]*/(?:hls_task|hls_np_channel)\.h"', re.MULTILINE)
_TASK = re.compile(r"\b((?:(?:static|thread_local)\s+)*)(?:hls\s*::\s*)?task\s+(\w+)\s*(\[[^;()]*\])?\s*([(;,{=])")
_CHANNEL = re.compile(
    r"\b((?:(?:static|thread_local)\s+)*)((?:hls\s*::\s*)?(?:split|merge)\s*::\s*(\w+)\s*<)", re.MULTILINE
)
_DATAFLOW = re.compile(r"^[ \t]*#pragma[ \t]+HLS[ \t]+DATAFLOW\b(?!.*\boff\b)", re.MULTILINE | re.IGNORECASE)


def task_of(full_name: str, name: str) -> tuple[str, Life | None]:
    """What the process of a function is called, and how long it lives if it is a task."""
    if (task := re.match(r"openhls::run_task<&(?:\w+::)*(\w+)", full_name)) is not None:
        return f"{task.group(1)}_task", Life.PROGRAM
    if (channel := re.match(r"openhls::run_(split|merge)<(true|false)", full_name)) is not None:
        return f"{channel.group(1)}_task", Life.PROGRAM if channel.group(2) == "true" else Life.REGION
    return name, None


def with_tasks(source: str) -> str:
    """A preprocessed text with calls in place of tasks and channels. Raises Unsupported for what these cannot be."""
    return _Tasks(source).text() if _HEADERS.search(source) else source


class _Tasks:
    def __init__(self, source: str) -> None:
        self._source = source
        self._syntax = Syntax(source)
        self._places = Places(source)
        self._edits: list[tuple[int, int, str]] = []
        self._regions = {self._syntax.scope_around(match.start()) for match in _DATAFLOW.finditer(source)}
        is_known = re.search(r"\busing\s+(?:namespace\s+hls\b|hls\s*::\s*task\b)", source) is not None
        for match in list(self._users(_TASK)):
            if is_known or "hls" in match.group().split("task")[0]:
                self._task(match)
        for match in list(self._users(_CHANNEL)):
            self._channel(match)

    def text(self) -> str:
        pieces, position = [], 0
        for start, end, replacement in sorted(self._edits):
            kept = self._source[position:start]
            pieces += [kept, replacement, "\n" * self._source.count("\n", start, end)]
            position = end
        return "".join([*pieces, self._source[position:]])

    def _users(self, pattern: re.Pattern[str]) -> Iterator[re.Match[str]]:
        return (match for match in pattern.finditer(self._syntax.masked) if self._places.is_users(match.start()))

    def _task(self, match: re.Match[str]) -> None:
        """Replaces a declaration, and the calls of what it declares."""
        qualifiers, name, length, following = match.groups()
        place = self._places.location(match.start())
        scope = self._scope(match.start(), f"the task {name}")
        if "static" not in qualifiers and "thread_local" not in qualifiers:
            advice = f"write hls_thread_local hls::task {name}"
            raise Unsupported(place, f"the task {name} without hls_thread_local: a task outlives the call", advice)
        closing = self._syntax.closing.get(match.end() - 1, match.end())
        ends = following == ";" or self._syntax.masked[self._syntax.skip_space(closing + 1)] == ";"
        if following not in "(;" or (following == "(" and length) or not ends:
            raise Unsupported(place, f"the declaration of the task {name}", "declare one task, or one array, at a time")
        if scope not in self._regions:
            self._regions.add(scope)
            begin = f'\n#pragma HLS DATAFLOW\n# {place.line} "{place.file}"\n'
            self._edits.append((match.start(), match.start(), begin))
        if following == "(":
            self._call(match.start(), match.end() - 1)
            return
        self._edits.append((match.start(), match.end() - 1, ""))
        found = 0
        calls = re.compile(rf"(?<=[;{{}}\n\s])\b{name}\s*(\[[^\]]*\]\s*)?\(")
        for call in calls.finditer(self._syntax.masked, match.end(), self._syntax.closing[scope]):
            self._call(call.start(), call.end() - 1)
            found += 1
        if not found:
            raise Unsupported(place, f"the task {name}, which runs nothing", f"run a function: {name}(f, ...)")

    def _call(self, start: int, opening: int) -> None:
        """`...(f, a, b)` from `start` on becomes a call that gets the function as an argument of the template."""
        masked = self._syntax.masked
        first = self._syntax.skip_space(opening + 1)
        depth, end = 0, first
        while end < self._syntax.closing[opening] and (depth or masked[end] != ","):
            depth += (masked[end] in "(<[") - (masked[end] in ")>]")
            end += 1
        function = self._source[first:end].strip().lstrip("&")
        after = end + 1 if masked[end] == "," else end
        if re.fullmatch(r"[\w:]+(?:<.*>)?", function) is None:
            place = self._places.location(start)
            raise Unsupported(place, f"a task that runs {function or 'nothing'}", "name a function")
        self._edits.append((start, after, f"openhls::run_task<({function})>("))

    def _channel(self, match: re.Match[str]) -> None:
        """Adds the stage of each channel that a statement declares."""
        masked, kind = self._syntax.masked, match.group(3)
        place = self._places.location(match.start())
        depth, end = 1, match.end()
        while depth:
            depth += (masked[end] == "<") - (masked[end] == ">")
            end += 1
        declared = re.compile(r"\s*((?:\w+\s*,\s*)*\w+)\s*;").match(masked, end)
        if declared is None:
            return  # a parameter or a type
        name = declared.group(1)
        if kind != "round_robin":
            raise Unsupported(
                place,
                f"the channel {name}, {kind}: which word goes where would depend on when words arrive",
                "use round_robin, which hardware and software do alike",
            )
        scope = self._scope(match.start(), f"the channel {name}")
        if scope not in self._regions:
            advice = "put #pragma HLS DATAFLOW into the scope that declares it"
            raise Unsupported(place, f"the channel {name} outside a dataflow region", advice)
        statements = self._syntax.statements(scope)
        returns = (start for start, _ in statements if masked.startswith("return", start))
        last = next(returns, self._syntax.closing[scope])
        kept = "true" if match.group(1) else "false"
        runs = "".join(f" {each.strip()}.openhls_run<{kept}>();" for each in name.split(","))
        self._edits.append((last, last, runs + " "))

    def _scope(self, offset: int, what: str) -> int:
        scope = self._syntax.scope_around(offset)
        if scope < 0 or not self._is_in_function(offset):
            raise Unsupported(self._places.location(offset), f"{what} outside a function", "declare it in the top")
        return scope

    def _is_in_function(self, offset: int) -> bool:
        """True if one of the scopes around an offset follows a parenthesis."""
        masked, closing = self._syntax.masked, self._syntax.closing
        around = (start for start in self._syntax.opening if start < offset < closing[start])
        return any(re.search(r"\)\s*$", masked[max(0, start - 200) : start]) for start in around)
