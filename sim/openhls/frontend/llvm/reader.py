# SPDX-License-Identifier: Apache-2.0
"""From the text of a module to its functions and tables, line by line."""

from __future__ import annotations

import re
from collections.abc import Iterable

from openhls.errors import OpenHlsError
from openhls.frontend.addresses import STREAM_BYTES
from openhls.frontend.initial import initial_values
from openhls.frontend.llvm.debug import DebugInfo
from openhls.frontend.llvm.instructions import read_instruction
from openhls.frontend.llvm.module import (
    Block,
    Function,
    Global,
    Instruction,
    Local,
    Module,
    Number,
    Static,
    Variable,
)
from openhls.frontend.llvm.tokens import Cursor, clean, constant_bytes
from openhls.frontend.tasks import task_of
from openhls.frontend.types import Array, Int, Struct, Type, Void
from openhls.ir import UNKNOWN, Location
from openhls.names import cpp_name


class Reader:
    """Reads the text of a module."""

    def __init__(self, text: str, hidden: str) -> None:
        self._text = text
        self._debug = DebugInfo(text, hidden)
        self._structs: dict[str, Type] = {}
        self.module = Module(hidden=hidden)
        self._starting: set[str] = set()  # functions that run before the program begins
        self._read_structs()
        self._read_tables()
        for match in re.finditer(r"^define (.*?) \{\n(.*?)^\}$", text, re.MULTILINE | re.DOTALL):
            self._read_function(match.group(1), match.group(2))
        self._forget_guards()
        self._sort_statics()

    def _read_structs(self) -> None:
        pending = re.findall(r'^(%(?:"[^"]*"|[\w.$-]+)) = type (.*)$', self._text, re.MULTILINE)
        while pending:
            later = []
            for name, text in pending:
                try:
                    self._structs[name] = Void() if text == "opaque" else Cursor(text, self._structs).type()
                except KeyError:
                    later.append((name, text))
            if len(later) == len(pending):
                raise OpenHlsError(f"LLVM types refer to each other: {later[0][0]}")
            pending = later

    def _read_tables(self) -> None:
        pattern = r'^(@(?:"[^"]*"|[\w.$-]+)) = ([^\n]*?\bconstant )([^\n]*)$'
        for name, _, rest in re.findall(pattern, self._text, re.MULTILINE):
            cursor = Cursor(rest, self._structs)
            of = cursor.type()
            data = constant_bytes(cursor, of)
            if data is not None:
                self.module.tables[clean(name)] = (data, of)
        pattern = r'^(@(?:"[^"]*"|[\w.$-]+)) = ([^\n]*?\bglobal )([^\n]*)$'
        for name, linkage, rest in re.findall(pattern, self._text, re.MULTILINE):
            if "external" in linkage.split():
                continue
            debug = re.search(r", !dbg (!\d+)", rest)
            cursor = Cursor(rest[: debug.start()] if debug else rest, self._structs)
            of = cursor.type()
            data = constant_bytes(cursor, of)
            if data is not None:
                variable = self._debug.static(debug.group(1)) if debug else Variable(cpp_name(clean(name)), UNKNOWN)
                self.module.statics[clean(name)] = Static(data, of, variable)

    def _forget_guards(self) -> None:
        """Static streams are made in each call: all that this says is how deep they are."""
        streams = (name for name, kept in self.module.statics.items() if _is_stream(kept.type))
        guards = {f"_ZGV{name.removeprefix('_Z')}" for name in streams} & self.module.statics.keys()
        for name in guards:
            del self.module.statics[name]
        for block in (block for function in self.module.functions.values() for block in function.blocks.values()):
            for it in [it for it in block.instructions if it.opcode in ("load", "store")]:
                place = it.operands[-1]
                if not isinstance(place, Global) or place.name not in guards:
                    continue
                if it.opcode == "store":
                    block.instructions.remove(it)
                else:
                    it.opcode, it.operands, it.types, it.flag = "freeze", [Number(8, 0)], [it.type], ""

    def _sort_statics(self) -> None:
        """Global variables that nothing changes are tables; of the others, which functions use which.

        Those whose initial values a program computes when it starts have what it computes; if that is not known, they
        are left out.
        """
        computed = {name: kept for name in self._computed() if (kept := self.module.statics.get(name)) is not None}
        plain = {name: kept.type.size for name, kept in sorted(computed.items()) if _is_plain(kept.type)}
        contents = initial_values(self._text, plain) if plain else {}
        for name, kept in computed.items():
            if name in contents:
                kept.data = contents[name]
            elif not _is_stream(kept.type):
                del self.module.statics[name]
        hardware = self._reached(self.module.functions.keys() - self._starting)
        changed: set[str] = set()
        for function in self.module.functions.values():
            changed |= _changed(function) if function.name in hardware else set()
        for name in self.module.statics.keys() - changed:
            kept = self.module.statics.pop(name)
            self.module.tables[name] = (kept.data, kept.type)
        for _ in self.module.functions:  # callers use what those they call use
            for function in self.module.functions.values():
                for it in (it for block in function.blocks.values() for it in block.instructions):
                    used = {each.name for each in it.operands if isinstance(each, Global)}
                    function.statics |= used & self.module.statics.keys()
                    if it.opcode == "call" and str(it.flag) in self.module.functions:
                        function.statics |= self.module.functions[str(it.flag)].statics

    def _computed(self) -> set[str]:
        """Global variables that change before the program begins."""
        line = re.search(r"^@llvm\.global_ctors = .*$", self._text, re.MULTILINE)
        running = re.findall(r'ptr (@(?:"[^"]*"|[\w.$-]+)), ptr', line.group()) if line else []
        self._starting = self._reached(clean(name) for name in running)
        return set().union(*(_changed(self.module.functions[name]) for name in self._starting))

    def _reached(self, names: Iterable[str]) -> set[str]:
        """Functions with a body, and those that they call."""
        pending, found = list(names), set[str]()
        while pending:
            name = pending.pop()
            if name in self.module.functions and name not in found:
                found.add(name)
                blocks = self.module.functions[name].blocks.values()
                pending += [str(it.flag) for block in blocks for it in block.instructions if it.opcode == "call"]
        return found

    def _read_function(self, head: str, body: str) -> None:
        match = re.search(r'(@(?:"[^"]*"|[\w.$-]+))\((.*)\)(.*)$', head)
        assert match is not None
        name = clean(match.group(1))
        debug = re.search(r"!dbg (!\d+)", match.group(3))
        subprogram = debug.group(1) if debug else ""
        location = Location(self._debug.file(subprogram), int(self._debug.entry(subprogram, "line") or 0))
        before = head[: match.start()].split()
        result = Cursor(
            before[-1] if before[-1] != "}" else head[head.index("{") : match.start()], self._structs
        ).type()
        full_name = self._debug.full_name(subprogram)
        cpp_name = re.sub(r"<.*", "", self._debug.entry(subprogram, "name"))
        function = Function(name, cpp_name, full_name, location, result, self._parameters(match.group(2)))
        function.cpp_name, function.task = task_of(full_name, cpp_name)
        self.module.functions[name] = function
        function.declared_result = self._debug.result(subprogram)
        for parameter, of in self._debug.parameters(subprogram).items():
            function.declared[parameter] = self._debug.spelled(of)
            if (pointee := self._debug.pointee(of)) is not None:
                function.pointees[parameter] = pointee
                if isinstance(pointee, Struct):
                    function.layouts[parameter] = self._debug.numbers(of)
            if channels := self._debug.channels(of):
                function.channels[parameter] = channels
            elif (word := self._debug.word(of)) and isinstance(self._debug.type_of(word), Struct):
                function.layouts[parameter] = self._debug.numbers(word)
        for attribute, parameter in re.findall(
            r"\b(byval|sret)\((?:[^()]|\([^()]*\))*\)[^,]*?%([\w.$-]+)", match.group(2)
        ):
            if attribute == "byval":
                function.by_value.add(parameter)
            else:
                function.returned = parameter
        joined = re.sub(
            r"\[\n(.*?)\n\s*\]", lambda cases: "[" + cases.group(1).replace("\n", " ") + " ]", body, flags=re.S
        )
        block = Block("")
        for line in joined.split("\n"):
            label = re.match(r'^("[^"]*"|[\w.$-]+):', line)
            if label:
                block = Block(label.group(1).strip('"'))
                function.blocks[block.name] = block
            elif line.strip().startswith("#dbg"):
                self._read_record(function, line)
            elif line.strip() and not line.strip().startswith(";"):
                block.instructions.append(self._instruction(line.strip()))

    def _parameters(self, text: str) -> list[tuple[str, Type]]:
        cursor = Cursor(text, self._structs)
        parameters = []
        while cursor.peek():
            of = cursor.type()
            cursor.attributes()
            parameters.append((clean(cursor.next()), of))
            cursor.accept(",")
        return parameters

    def _read_record(self, function: Function, line: str) -> None:
        match = re.match(r'\s*#dbg_(?:declare|value)\(ptr (%(?:"[^"]*"|[\w.$-]+)), (!\d+)', line)
        if match:
            function.variables.setdefault(clean(match.group(1)), []).append(self._debug.variable(match.group(2)))
            return
        pattern = r'\s*#dbg_value\(i\d+ (%(?:"[^"]*"|[\w.$-]+)), (!\d+), !DIExpression\(([^)]*)\)'
        match = re.match(pattern, line)
        if match and (name := self._debug.value_name(match.group(2), match.group(3))):
            function.value_names.setdefault(clean(match.group(1)), name)

    def _instruction(self, line: str) -> Instruction:
        debug = re.search(r", !dbg (!\d+)", line)
        loop = re.search(r", !llvm\.loop !(\d+)", line)
        location = self._debug.location(debug.group(1)) if debug else UNKNOWN
        text = re.sub(r",? ![\w.]+ !\d+", "", line)
        named = re.match(r'(%(?:"[^"]*"|[\w.$-]+)) = ', text)
        cursor = Cursor(text[named.end() :] if named else text, self._structs)
        instruction = Instruction("", clean(named.group(1)) if named else "", Void(), [], [], location=location)
        if loop:
            instruction.loop = int(loop.group(1))
            start = self._debug.loop_start(f"!{loop.group(1)}")
            if start:
                self.module.loop_starts[instruction.loop] = start
        read_instruction(instruction, cursor)
        return instruction


def _is_stream(of: Type) -> bool:
    """True for a stream, and for an array of streams."""
    return of.size > 0 and of.size % STREAM_BYTES == 0


def _is_plain(of: Type) -> bool:
    """True for numbers, and arrays and structs of numbers; not for streams and what has addresses."""
    if isinstance(of, Struct):
        return all(map(_is_plain, of.fields))
    return isinstance(of, Int) or (isinstance(of, Array) and _is_plain(of.element) and of.size < STREAM_BYTES)


def _changed(function: Function) -> set[str]:
    """Global variables that a function may store to, or whose address it hands on."""
    origins: dict[str, set[str]] = {}  # of pointers, by local name

    def of(operand: object) -> set[str]:
        if isinstance(operand, Global):
            return {operand.name}
        return origins.get(operand.name, set()) if isinstance(operand, Local) else set()

    instructions = [it for block in function.blocks.values() for it in block.instructions]
    found = -1
    while found != (found := sum(map(len, origins.values()))):  # phis may come before what they choose from
        for it in instructions:
            if it.opcode in ("getelementptr", "select", "phi", "bitcast", "freeze"):
                origins.setdefault(it.name, set()).update(*(of(operand) for operand in it.operands))
    changed: set[str] = set()
    for it in instructions:
        copies = it.opcode == "call" and str(it.flag).startswith(("llvm.memcpy", "llvm.memmove"))
        if it.opcode in ("store", "call", "ptrtoint", "ret"):
            for operand in it.operands[:1] if copies else it.operands:
                changed |= of(operand)
    return changed


def read_module(text: str, hidden: str) -> Module:
    """Reads a module. Code of files below `hidden` counts as that of the line that calls it.

    Raises Unsupported for an instruction outside the subset, OpenHlsError for text it does not understand.
    """
    return Reader(text, hidden).module
