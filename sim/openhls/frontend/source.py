# SPDX-License-Identifier: Apache-2.0
"""From a preprocessed source to its pragmas and the text that clang compiles instead.

Clang gets unrolling as pragmas of its own in front of each loop, and a mark at both ends of a dataflow region, whose
calls must not be inlined. Everything else is kept aside in `Notes`.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass, field, replace

from openhls.errors import OpenHlsError, Unsupported
from openhls.frontend.constants import Constants
from openhls.frontend.directives import Directive
from openhls.frontend.places import Places
from openhls.frontend.pragmas import (
    BEGIN_DATAFLOW,
    DONE_ANYWAY,
    END_DATAFLOW,
    IGNORED,
    NUMBERS,
    OF_LOOPS,
    OF_VARIABLES,
    WITH_EFFECT,
    FunctionNote,
    LoopNote,
    Notes,
    Pragma,
    VariableNote,
    parse_pragma,
    unknown_part,
)
from openhls.frontend.stage_calls import StageCalls
from openhls.frontend.syntax import Syntax
from openhls.ir import Location


@dataclass
class _Loop:
    keyword: int
    label: str
    first: int  # of its body: a block or a statement
    last: int
    unrolled: bool = False  # because something around it is pipelined
    pragmas: list[Pragma] = field(default_factory=list)

    def __contains__(self, offset: int) -> bool:
        return self.first <= offset <= self.last


class Source:
    """One pass over a preprocessed text; `notes` and `text()` are its results. `macros` gives its `#define` lines.

    `directives` are taken as pragmas of the scopes they name; `top` is the function whose array bounds are noted;
    `unrolled` are the files and lines of loops without pragmas that are unrolled, as are all around lines of `folded`.
    """

    def __init__(
        self,
        source: str,
        macros: Callable[[], str] = str,
        top: str = "",
        directives: tuple[Directive, ...] = (),
        unrolled: frozenset[tuple[str, int]] = frozenset(),
        folded: frozenset[tuple[str, int]] = frozenset(),
    ) -> None:
        self._source = source
        self._syntax = syntax = Syntax(source)
        self._masked, self._closing = syntax.masked, syntax.closing
        self._stages = StageCalls(self._syntax)
        self._unrolled = unrolled
        self._folded = folded
        self._constants = Constants(source, macros)
        self._places = Places(source)
        self._edits: list[tuple[int, int, str]] = []
        self._loops = self._find_loops()
        self.notes = Notes(files=self._places.files())
        self._replace_memory_calls()
        self._cut_exceptions()
        self._read_pragmas()
        for directive in directives:
            self._apply(directive)
        for head, _ in self._syntax.definitions(top) if top else ():
            self._note_bounds(head)
        for loop in self._loops:
            self._mark_loop(loop)

    def text(self) -> str:
        """What clang compiles."""
        pieces, position = [], 0
        for start, end, replacement in sorted(self._edits):
            pieces += [self._source[position:start], replacement]
            position = end
        return "".join([*pieces, self._source[position:]])

    def _find_loops(self) -> list[_Loop]:
        loops: list[_Loop] = []
        ends_of_do: set[int] = set()
        for match in re.finditer(r"^#.*$|\b(for|while|do)\b", self._masked, re.MULTILINE):
            keyword, start = match.group(1), match.start()
            if keyword is None or self._places.is_system(start) or start in ends_of_do:
                continue
            after = self._syntax.skip_space(match.end())
            if keyword == "do":
                if self._masked[after] != "{":
                    raise Unsupported(
                        self._places.location(start), "a do loop without braces", "put its body in braces"
                    )
                ends_of_do.add(self._syntax.skip_space(self._closing[after] + 1))
                body = after
            else:
                body = self._syntax.skip_space(self._closing[after] + 1)
            label = re.search(r"(\w+)\s*:\s*(?:#[^\n]*\n\s*)*$", self._masked[max(0, start - 400) : start])
            name = label.group(1) if label and label.group(1) not in ("default", "public", "private") else ""
            # A body without braces begins behind the condition: a pragma may stand before its statement.
            braced = self._masked[body] == "{"
            first = body if braced else self._closing[after] + 1
            last = self._closing[body] if braced else self._syntax.end_of_statement(body, len(self._masked))
            loops.append(_Loop(start, name, first, last))
        return loops

    def _read_pragmas(self) -> None:
        for match in re.finditer(r"^[ \t]*#pragma[ \t]+HLS[ \t]+(.*)$", self._source, re.MULTILINE | re.IGNORECASE):
            text = self._chosen(match.group(1), self._places.location(match.start()))
            kind = self._take(text, match.start()) if text else ""
            replacement = f'asm volatile("{BEGIN_DATAFLOW}");' if kind == "DATAFLOW" else ""
            self._edits.append((match.start(), match.end(), replacement))

    def _take(self, text: str, offset: int) -> str:
        """Notes a pragma that stands at `offset`; returns its kind."""
        pragma = self._with_numbers(parse_pragma(text, self._places.location(offset)))
        scope = self._scope_of(offset, pragma)
        if part := unknown_part(pragma):
            said = f"{pragma.kind} with {part}, which is not known"
            if pragma.kind in WITH_EFFECT:
                raise Unsupported(pragma.location, said, "correct its name, or leave it out")
            self.notes.warn(pragma.location, f"{said}: it has no effect")
        if pragma.kind in OF_VARIABLES:
            self._check_variable(pragma)
        if pragma.kind in OF_LOOPS:
            self._note_of_loop(pragma, offset, scope)
        else:
            self._note(pragma, scope)
        return pragma.kind

    def _chosen(self, text: str, location: Location) -> str:
        """The pragma behind `if (condition)`, or "" where the condition does not hold."""
        found = re.match(r"\s*if\s*\(((?:[^()]|\([^()]*\))*)\)\s*(.*)$", text)
        if found is None:
            return text
        holds = self._constants.value(found.group(1))
        kind = found.group(2).strip().partition(" ")[0].upper()
        if holds is None and kind in WITH_EFFECT:
            raise Unsupported(location, f"{kind} with a condition that is not known here", "write it with constants")
        if holds is None:
            self.notes.warn(location, f"the condition ({found.group(1)}) is not known here: the pragma has no effect")
        return found.group(2) if holds else ""

    def _replace_memory_calls(self) -> None:
        """memcpy and memset become loops (shim/openhls_memory.h)."""
        for match in re.finditer(r"^#.*$|(?:(?:\bstd)?::\s*)?\bmem(cpy|set)(?=\s*\()", self._masked, re.MULTILINE):
            if match.group(1) and not self._places.is_system(match.start()):
                name = "openhls::copy_memory" if match.group(1) == "cpy" else "openhls::set_memory"
                self._edits.append((match.start(), match.end(), name))

    def _cut_exceptions(self) -> None:
        """A `throw` is a trap. Where code that throws becomes hardware, the trap is refused (lowering.py)."""
        for match in re.finditer(r"^#.*$|\bthrow\b(\s*;)?(?!\s*\(\s*\))", self._masked, re.MULTILINE):
            if not match.group().startswith("#") and not self._places.is_system(match.start()):
                trap = "__builtin_trap();" if match.group(1) else "__builtin_trap(),"
                self._edits.append((match.start(), match.end(), trap))

    # ---- directives, and the head of the top ----

    def _apply(self, directive: Directive) -> None:
        function, _, label = directive.place.partition("/")
        found = False
        for _, brace in self._syntax.definitions(function.rpartition("::")[2]):
            inside = (loop for loop in self._loops if brace < loop.keyword < self._closing[brace])
            # A body without braces begins behind the condition, which is inside the loop, too.
            offsets = [loop.first + 1 for loop in inside if loop.label == label] if label else [brace + 1]
            for offset in offsets:
                found = True
                if self._take(directive.text, offset) == "DATAFLOW":
                    self._edits.append((offset, offset, f' asm volatile("{BEGIN_DATAFLOW}"); '))
        if not found:
            raise OpenHlsError(f"the directive {directive.text}: there is no {directive.place} in the source")

    def _note_bounds(self, head: int) -> None:
        """`int a[N]`: the parameter is a pointer to clang, which forgets N."""
        text = re.sub(r"^#[^\n]*$", "", self._masked[head + 1 : self._closing[head]], flags=re.MULTILINE)
        for part in re.split(r",(?![^<(\[]*[>)\]])", text):
            found = re.search(r"(\w+)\s*\[([^\]]+)\]\s*(?:\[[^\]]*\]\s*)*$", part.strip())
            bound = self._constants.value(found.group(2)) if found else None
            if found and bound is not None and bound > 0:
                self.notes.bounds[found.group(1)] = bound

    def _with_numbers(self, pragma: Pragma) -> Pragma:
        """The pragma with numbers in place of the names of constants."""
        found = {key: self._constants.value(text) for key, text in pragma.options.items() if key in NUMBERS}
        known = {key: str(value) for key, value in found.items() if value is not None}
        return replace(pragma, options=pragma.options | known) if known else pragma

    def _scope_of(self, offset: int, pragma: Pragma) -> int:
        scope = self._syntax.scope_around(offset)
        if scope < 0:
            raise Unsupported(pragma.location, f"{pragma.kind} outside a function", "move it into the scope it governs")
        return scope

    def _note_of_loop(self, pragma: Pragma, offset: int, scope: int) -> None:
        """A pragma belongs to the innermost loop around it, or to the function."""
        around = [loop for loop in self._loops if offset in loop]
        loop = min(around, key=lambda each: each.last - each.first, default=None)
        end = self._closing[scope] if loop is None else loop.last
        inside = [each for each in self._loops if offset < each.keyword < end]
        if pragma.kind == "PIPELINE" and "off" not in pragma.words and "off" not in pragma.options:
            for each in inside:
                each.unrolled = True
        if loop is not None:
            loop.pragmas.append(pragma)
        elif pragma.kind == "DEPENDENCE":
            for each in inside:
                each.pragmas.append(pragma)
        elif pragma.kind == "PIPELINE":
            self.notes.warn(pragma.location, "PIPELINE of a function unrolls its loops; its calls do not overlap")
        else:
            self.notes.warn(pragma.location, f"{pragma.kind} outside a loop has no effect")

    def _check_variable(self, pragma: Pragma) -> None:
        """Raises Unsupported if the user's files have no name such as the variable of a pragma."""
        name = (re.findall(r"\w+", pragma.options.get("variable", "")) or [""])[-1]
        found = re.finditer(rf"^#.*$|\b({name or '#'})\b", self._masked, re.MULTILINE)
        if not any(match.group(1) and self._places.is_users(match.start()) for match in found):
            known = f"{name}, which is no variable" if name else "no variable"
            raise Unsupported(pragma.location, f"{pragma.kind} of {known}", "name one: variable = x")

    def _note(self, pragma: Pragma, scope: int) -> None:
        off = "off" in pragma.words or "off" in pragma.options
        if pragma.kind in DONE_ANYWAY:
            if off and pragma.kind != "INLINE":
                self.notes.warn(pragma.location, f"{pragma.kind} off has no effect")
            elif pragma.kind == "INLINE" and not off:
                self.notes.inlined.append(self._of_function(pragma, scope))
        elif pragma.kind == "DATAFLOW":
            self._mark_dataflow(scope)
        elif pragma.kind == "INTERFACE":
            self.notes.interfaces.append(self._of_function(pragma, scope))
        elif pragma.kind in OF_VARIABLES:
            first = self._places.location(scope).line
            last = self._places.location(self._closing[scope]).line
            self.notes.variables.append(VariableNote(pragma, first, last))
        else:
            if pragma.kind not in IGNORED:
                raise Unsupported(
                    pragma.location,
                    f"the pragma {pragma.kind}, which is not known",
                    "correct its name, or leave it out",
                )
            self.notes.warn(pragma.location, f"the pragma {pragma.kind} has no effect")

    def _of_function(self, pragma: Pragma, scope: int) -> FunctionNote:
        before = max(self._masked.rfind(end, 0, scope) for end in ";}")
        head = self._places.location(self._syntax.skip_space(before + 1)).line
        return FunctionNote(pragma, head, self._places.location(scope).line)

    def _mark_loop(self, loop: _Loop) -> None:
        location, column = self._places.location(loop.keyword), self._places.column(loop.keyword)
        note = LoopNote(location, column, loop.label, tuple(loop.pragmas))
        self.notes.loops[(location.file, location.line, column)] = note
        named = (location.file, location.line) in self._unrolled or self._is_folded(loop)
        alone = not loop.pragmas and named
        wish = "unroll(full)" if loop.unrolled or alone else "unroll(disable)"
        for pragma in note.of_kind("UNROLL"):
            wish = f"unroll_count({pragma.options['factor']})" if "factor" in pragma.options else "unroll(full)"
            if "off" in pragma.words or pragma.options.get("off") == "true":
                wish = "unroll(disable)"
        self._edits.append((loop.keyword, loop.keyword, f"\n#pragma clang loop {wish}\n{self._margin(loop.keyword)}"))

    def _is_folded(self, loop: _Loop) -> bool:
        first, last = self._places.location(loop.keyword), self._places.location(loop.last)
        return any(file == first.file and first.line <= line <= last.line for file, line in self._folded)

    def _margin(self, offset: int) -> str:
        """What brings clang back to the line and column of an offset, at the start of a line."""
        location = self._places.location(offset)
        return f'# {location.line} "{location.file}"\n' + " " * (self._places.column(offset) - 1)

    def _mark_dataflow(self, scope: int) -> None:
        """Forbids inlining of the stages of a region, and marks its end."""
        for start in self._stages.of_region(scope):
            self._edits.append((start, start, f"[[clang::noinline]]\n{self._margin(start)}"))
            self.notes.stages.add((self._places.location(start).line, self._places.column(start)))
        statements = self._syntax.statements(scope)
        returns = (start for start, _ in statements if self._syntax.is_return(start))
        last = next(returns, self._closing[scope])
        self._edits.append((last, last, f'asm volatile("{END_DATAFLOW}"); '))
