# SPDX-License-Identifier: Apache-2.0
"""`hls::task` and the channels of hls_np_channel.h, as calls of functions that never return.

A declaration `hls::task t(f, a, b);` becomes the stage `openhls::run_task<f>(a, b);`, and so does `t[i](f, a, b);` of
an array of tasks. A channel `c` is a stage as well: `c.openhls_run<...>();` at the end of its scope. Lines stay.
"""

from __future__ import annotations

import re

from openhls.errors import Unsupported
from openhls.frontend.places import Places
from openhls.frontend.syntax import Syntax
from openhls.ir import Life

_HEADERS = re.compile(r'^# \d+ "[^"]*/(?:hls_task|hls_np_channel)\.h"', re.MULTILINE)
_BEFORE = r"(?<![\w:])((?:(?:static|thread_local|const|inline)\s+)*)(?:(?:::\s*)?(hls)\s*::\s*)?"
_TASK = re.compile(_BEFORE + r"\btask\s+(\w+)\s*((?:\[[^;(){}]*\]\s*)*)([(;,{=])")
_CHANNEL = re.compile(_BEFORE + r"\b(?:split|merge)\s*::\s*(\w+)\s*<")
_FUNCTION = re.compile(r"(?:::\s*)?\w+(?:\s*::\s*\w+|\s*<.*>)*", re.DOTALL)
_NO_FUNCTION = re.compile(r"\s*(?:inline\s+)?(?:namespace|struct|class|union|enum|extern)\b")
_DATAFLOW = re.compile(r"^[ \t]*#pragma[ \t]+HLS[ \t]+DATAFLOW\b(?!.*\boff\b)", re.MULTILINE | re.IGNORECASE)


def task_of(full_name: str, name: str) -> tuple[str, Life | None]:
    """What the process of a function is called, and how long it lives if it is a task."""
    if full_name.startswith("openhls::run_task<"):
        task = re.match(r"openhls::run_task<&(?:(?:\w+|\(anonymous namespace\))::)*(\w+)", full_name)
        return f"{task.group(1) if task else 'run'}_task", Life.PROGRAM
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
        for match in self._users(_TASK, r"namespace\s+hls\b|hls\s*::\s*task\b"):
            self._task(match)
        for match in self._users(_CHANNEL, r"namespace\s+hls\b"):
            self._channel(match)

    def text(self) -> str:
        pieces, position = [], 0
        for start, end, replacement in sorted(self._edits):
            kept = self._source[position:start]
            pieces += [kept, replacement, "\n" * self._source.count("\n", start, end)]
            position = end
        return "".join([*pieces, self._source[position:]])

    def _users(self, pattern: re.Pattern[str], known_by: str) -> list[re.Match[str]]:
        """What a pattern finds in the user's files, with `hls::` or after a using of it, in no other namespace."""
        masked = self._syntax.masked
        is_known = re.search(rf"\busing\s+(?:{known_by})", masked) is not None
        return [
            match
            for match in pattern.finditer(masked)
            if self._places.is_users(match.start())
            and (is_known or match.group(2))
            and not masked[: match.start()].rstrip().endswith("::")
        ]

    def _task(self, match: re.Match[str]) -> None:
        """Replaces a declaration, and the calls of what it declares."""
        qualifiers, _, name, length, following = match.groups()
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
        uses = re.compile(rf"(?<![\w.>:]){name}\b").finditer(
            self._syntax.masked, match.end(), self._syntax.closing[scope]
        )
        starts = [use.start() for use in uses]
        for start in starts:
            opening = self._behind_indices(start + len(name))
            if self._syntax.masked[opening] != "(":
                where, advice = self._places.location(start), f"call it: {name}(f, ...)"
                raise Unsupported(where, f"the task {name} that is used otherwise than by a call", advice)
            self._call(start, opening)
        if not starts:
            raise Unsupported(place, f"the task {name}, which runs nothing", f"run a function: {name}(f, ...)")

    def _behind_indices(self, offset: int) -> int:
        """The first place behind `[...][...]`."""
        masked, at = self._syntax.masked, self._syntax.skip_space(offset)
        while masked[at] == "[":
            depth = 0
            while depth + (masked[at] == "[") - (masked[at] == "]"):
                depth += (masked[at] == "[") - (masked[at] == "]")
                at += 1
            at = self._syntax.skip_space(at + 1)
        return at

    def _call(self, start: int, opening: int) -> None:
        """`...(f, a, b)` from `start` on becomes a call that gets the function as an argument of the template."""
        masked, closing = self._syntax.masked, self._syntax.closing
        first = end = self._syntax.skip_space(opening + 1)
        while end < closing[opening] and masked[end] != ",":
            if masked[end] == "<":
                end = max(end, self._syntax.end_of_arguments(end))
            end = closing.get(end, end) + 1
        function = self._source[first:end].strip().lstrip("&").strip()
        after = end + 1 if masked[end] == "," else end
        if _FUNCTION.fullmatch(function) is None:
            place = self._places.location(start)
            raise Unsupported(place, f"a task that runs {function or 'nothing'}", "name a function")
        self._edits.append((start, after, f"openhls::run_task<({function})>("))

    def _channel(self, match: re.Match[str]) -> None:
        """Adds the stage of each channel that a statement declares."""
        masked, (qualifiers, _, kind) = self._syntax.masked, match.groups()
        place = self._places.location(match.start())
        end = self._syntax.end_of_arguments(match.end() - 1)
        if end >= 0 and re.compile(r"\s*\w").match(masked, end + 1) is None:
            return  # a parameter or a type
        declared = re.compile(r"\s*((?:\w+\s*(?:\{\s*\}\s*)?,\s*)*\w+)\s*(?:\{\s*\}\s*)?;").match(masked, end + 1)
        if end < 0 or declared is None:
            advice = "write its arguments with parentheses around < and >, and its name alone behind them"
            raise Unsupported(place, f"the declaration of the channel {kind}", advice)
        names = re.findall(r"\w+", declared.group(1))
        if kind != "round_robin":
            raise Unsupported(
                place,
                f"the channel {', '.join(names)}, {kind}: which word goes where would depend on when words arrive",
                "use round_robin, which hardware and software do alike",
            )
        scope = self._scope(match.start(), f"the channel {names[0]}")
        if scope not in self._regions:
            advice = "put #pragma HLS DATAFLOW into the scope that declares it"
            raise Unsupported(place, f"the channel {names[0]} outside a dataflow region", advice)
        statements = self._syntax.statements(scope)
        returns = (start for start, _ in statements if self._syntax.is_return(start))
        last = next(returns, self._syntax.closing[scope])
        kept = "true" if "static" in qualifiers or "thread_local" in qualifiers else "false"
        runs = "".join(f" {name}.openhls_run<{kept}>();" for name in names)
        self._edits.append((last, last, runs + " "))

    def _scope(self, offset: int, what: str) -> int:
        scope = self._syntax.scope_around(offset)
        if scope < 0 or not self._is_in_function(offset):
            raise Unsupported(self._places.location(offset), f"{what} outside a function", "declare it in the top")
        return scope

    def _is_in_function(self, offset: int) -> bool:
        """True if one of the scopes around an offset is the body of a function."""
        return any(
            self._is_body(start) for start in self._syntax.opening if start < offset < self._syntax.closing[start]
        )

    def _is_body(self, brace: int) -> bool:
        before = max(self._syntax.masked.rfind(end, 0, brace) for end in ";{}")
        head = re.sub(r"^#[^\n]*$", "", self._syntax.masked[before + 1 : brace], flags=re.MULTILINE)
        return "(" in head and _NO_FUNCTION.match(head) is None
