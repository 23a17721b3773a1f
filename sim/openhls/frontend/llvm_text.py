# SPDX-License-Identifier: Apache-2.0
"""Reads the LLVM IR that opt prints: functions, constants, and the places of the C++ they come from.

Only the part of the language that our passes leave is known; anything else is an error with the C++ line.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field

from openhls.errors import OpenHlsError, Unsupported
from openhls.frontend.types import Array, Int, Other, Pointer, Struct, Type, Void
from openhls.ir import UNKNOWN, Location

# ---- what was read ----


@dataclass(frozen=True)
class Local:
    """A value of the function: an argument or the result of an instruction."""

    name: str


@dataclass(frozen=True)
class Number:
    """A constant; undefined values are 0."""

    width: int
    bits: int


@dataclass(frozen=True)
class Global:
    """The address of a constant table or of a function, plus bytes."""

    name: str
    offset: int = 0


@dataclass(frozen=True)
class Null:
    """A null pointer or an aggregate without a value."""


Operand = Local | Number | Global | Null


@dataclass
class Instruction:
    """One instruction. `flag` holds what its kind needs besides operands:

    icmp: the predicate; call: the callee; phi: names of the blocks the operands come from; br, switch: target blocks
    (switch: the default first); getelementptr: the source type; alloca: the type; load, store: "volatile" or "";
    extractvalue: the index; arithmetic and casts: nuw, nsw, nneg and the like, a frozenset.
    """

    opcode: str
    name: str
    type: Type
    operands: list[Operand]
    types: list[Type]
    flag: object = ""
    location: Location = UNKNOWN
    loop: int = -1  # node of the loop's metadata, on the branch that closes it


@dataclass
class Block:
    """A basic block."""

    name: str
    instructions: list[Instruction] = field(default_factory=list)


@dataclass
class Variable:
    """A C++ variable that lives at an address: its name and where it is declared."""

    name: str
    location: Location
    argument: int = 0
    number: tuple[int, bool] | None = None  # width and sign, if it is an integer


@dataclass
class Function:
    """A function with a body. `cpp_name` has neither scopes nor template arguments, `full_name` has both."""

    name: str
    cpp_name: str
    full_name: str
    location: Location
    result: Type
    parameters: list[tuple[str, Type]]
    blocks: dict[str, Block] = field(default_factory=dict)
    variables: dict[str, list[Variable]] = field(default_factory=dict)  # by the name of an address
    by_value: set[str] = field(default_factory=set)  # pointer parameters to a copy for this function
    returned: str = ""  # the parameter that points to the result
    declared_result: tuple[int, bool] | None = None  # width and sign of an integer result


@dataclass
class Module:
    """All functions with a body, constant tables as (bytes, type) and the start of each loop."""

    functions: dict[str, Function] = field(default_factory=dict)
    tables: dict[str, tuple[bytes, Type]] = field(default_factory=dict)
    loop_starts: dict[int, tuple[str, int, int]] = field(default_factory=dict)


# ---- tokens ----

_TOKEN = re.compile(
    r'\s*(?:(c"(?:[^"\\]|\\.)*")|([%@](?:"[^"]*"|[\w.$-]+))|(-?\d+)|([A-Za-z_][\w.]*)|("(?:[^"\\]|\\.)*")|(![\w.]*(?:\(.*\))?)|(\.\.\.|<\{|\}>|.))'
)
_CONSTANT_WORDS = frozenset({"undef", "poison", "true", "false", "null", "zeroinitializer", "getelementptr", "asm"})


class Cursor:
    """The tokens of one line."""

    def __init__(self, text: str, structs: dict[str, Type]) -> None:
        self._tokens = [match.group(0).strip() for match in _TOKEN.finditer(text) if match.group(0).strip()]
        self._position = 0
        self._structs = structs

    def peek(self) -> str:
        """The next token, "" at the end."""
        return self._tokens[self._position] if self._position < len(self._tokens) else ""

    def next(self) -> str:
        """Takes a token."""
        self._position += 1
        return self._tokens[self._position - 1]

    def accept(self, *words: str) -> bool:
        """Takes the next token if it is one of `words`."""
        if self.peek() in words:
            self._position += 1
            return True
        return False

    def expect(self, word: str) -> None:
        """Takes `word`, which must come."""
        if not self.accept(word):
            raise OpenHlsError(f"LLVM IR not understood at {self.peek()!r} (wanted {word!r}): {' '.join(self._tokens)}")

    def skip_parentheses(self) -> None:
        """Skips a group in parentheses, if there is one."""
        if not self.accept("("):
            return
        depth = 1
        while depth:
            token = self.next()
            depth += (token == "(") - (token == ")")

    def type(self) -> Type:
        """Reads a type."""
        token = self.next()
        if re.fullmatch(r"i\d+", token):
            return Int(int(token[1:]))
        if token == "ptr":
            return Pointer()
        if token in ("void", "label", "metadata"):
            return Void()
        if token == "[":
            length = int(self.next())
            self.expect("x")
            element = self.type()
            self.expect("]")
            return Array(length, element)
        if token in ("{", "<{"):
            closing = "}" if token == "{" else "}>"
            fields = []
            while not self.accept(closing):
                fields.append(self.type())
                self.accept(",")
            return Struct(tuple(fields), packed=token == "<{")
        if token.startswith("%"):
            return self._structs[token]
        if token == "<":
            while self.next() != ">":
                pass
        return Other(token)

    def attributes(self) -> None:
        """Skips the attributes of a parameter."""
        while re.fullmatch(r"[a-z_][\w.]*", self.peek()) and self.peek() not in _CONSTANT_WORDS:
            word = self.next()
            if word == "align" and self.peek().isdigit():
                self.next()
            self.skip_parentheses()

    def value(self, of: Type) -> Operand:
        """Reads a value of type `of`."""
        token = self.next()
        if token.startswith("%"):
            return Local(clean(token))
        if token.startswith("@"):
            return Global(clean(token))
        if token in ("undef", "poison", "zeroinitializer"):
            return Number(of.width, 0) if isinstance(of, Int) else Null()
        if token in ("true", "false"):
            return Number(1, int(token == "true"))
        if token == "null":
            return Null()
        if re.fullmatch(r"-?\d+", token) and isinstance(of, Int):
            return Number(of.width, int(token) % (1 << of.width))
        if token == "getelementptr":
            return self._constant_address()
        return Null()

    def _constant_address(self) -> Operand:
        while self.peek() != "(":
            self.next()
        self.expect("(")
        source = self.type()
        self.expect(",")
        self.expect("ptr")
        base = self.value(Pointer())
        offset, current = 0, source
        first = True
        while self.accept(","):
            index = self.value(self.type())
            assert isinstance(index, Number)
            step = index.bits - (1 << index.width if index.bits >> (index.width - 1) else 0)
            if first:
                offset += step * current.size
                first = False
            elif isinstance(current, Array):
                current = current.element
                offset += step * current.size
            elif isinstance(current, Struct):
                offset += current.offsets()[step]
                current = current.fields[step]
        self.expect(")")
        assert isinstance(base, Global)
        return Global(base.name, base.offset + offset)


def clean(token: str) -> str:
    """The name in a token `%name` or `@"name"`."""
    return token[1:].strip('"')


# ---- debug information ----


class DebugInfo:
    """Metadata nodes of a module."""

    def __init__(self, text: str, hidden: str) -> None:
        self._hidden = hidden
        self._nodes = dict(re.findall(r"^(!\d+) = (?:distinct )?(.*)$", text, re.MULTILINE))
        self._locations: dict[str, Location] = {}

    def node(self, reference: str) -> str:
        """The text of a node."""
        return self._nodes.get(reference, "")

    def entry(self, reference: str, key: str) -> str:
        """The value of `key: value` in a node."""
        match = re.search(rf'\b{key}: (?:"([^"]*)"|([^,)]+))', self.node(reference))
        return (match.group(1) if match.group(1) is not None else match.group(2)) if match else ""

    def file(self, scope: str) -> str:
        """The file of a scope."""
        reference = self.entry(scope, "file")
        name, directory = self.entry(reference, "filename"), self.entry(reference, "directory")
        return name if name.startswith("/") or not directory else f"{directory}/{name}"

    def location(self, reference: str) -> Location:
        """The C++ line of a DILocation, with its callers."""
        if reference not in self._locations:
            inlined_at = self.entry(reference, "inlinedAt")
            caller = self.location(inlined_at) if inlined_at else None
            line = int(self.entry(reference, "line") or 0)
            file = self.file(self.entry(reference, "scope"))
            inner = caller is not None and file.startswith(self._hidden)
            self._locations[reference] = caller if inner and caller else Location(file, line, caller)
        return self._locations[reference]

    def variable(self, reference: str) -> Variable:
        """A DILocalVariable."""
        location = Location(self.file(self.entry(reference, "scope")), int(self.entry(reference, "line") or 0))
        number = self.number(self.entry(reference, "type"))
        return Variable(self.entry(reference, "name"), location, int(self.entry(reference, "arg") or 0), number)

    def number(self, reference: str) -> tuple[int, bool] | None:
        """Width and sign of an integer type, through names, references and const."""
        text = self.node(reference)
        if text.startswith("!DIBasicType"):
            encoding = self.entry(reference, "encoding")
            if encoding == "DW_ATE_boolean":
                return 1, False
            return int(self.entry(reference, "size")), not encoding.startswith("DW_ATE_unsigned")
        if text.startswith("!DIDerivedType"):
            return self.number(self.entry(reference, "baseType"))
        named = re.fullmatch(r"ap_(u?)int<(\d+)>", self.entry(reference, "name"))
        return (int(named.group(2)), not named.group(1)) if named else None

    def full_name(self, reference: str) -> str:
        """The name of a function with its namespaces."""
        scope = self.entry(reference, "scope")
        outer = self.full_name(scope) if self.node(scope).startswith("!DINamespace") else ""
        return "::".join(part for part in (outer, self.entry(reference, "name")) if part)

    def result(self, subprogram: str) -> tuple[int, bool] | None:
        """Width and sign of what a function returns."""
        types = self.node(self.entry(self.entry(subprogram, "type"), "types"))
        first = re.match(r"!\{(!\d+)", types)
        return self.number(first.group(1)) if first else None

    def loop_start(self, reference: str) -> tuple[str, int, int] | None:
        """File, line and column of the keyword of a loop, from its metadata."""
        for inner in re.findall(r"!\d+", self.node(reference))[1:]:
            if self.node(inner).startswith("!DILocation"):
                place = self.location(inner)
                return place.file, place.line, int(self.entry(inner, "column") or 0)
        return None


# ---- instructions ----

_BINARY = frozenset(["add", "sub", "mul", "udiv", "sdiv", "urem", "srem", "shl", "lshr", "ashr", "and", "or", "xor"])
_CASTS = frozenset(["zext", "sext", "trunc", "bitcast", "ptrtoint", "inttoptr"])
_FLAGS = frozenset(
    ["nuw", "nsw", "exact", "disjoint", "nneg", "samesign", "inbounds", "nusw", "tail", "musttail", "notail"]
)


class Reader:
    """Reads the text of a module."""

    def __init__(self, text: str, hidden: str) -> None:
        self._text = text
        self._debug = DebugInfo(text, hidden)
        self._structs: dict[str, Type] = {}
        self.module = Module()
        self._read_structs()
        self._read_tables()
        for match in re.finditer(r"^define (.*?) \{\n(.*?)^\}$", text, re.MULTILINE | re.DOTALL):
            self._read_function(match.group(1), match.group(2))

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
            data = _constant_bytes(cursor, of)
            if data is not None:
                self.module.tables[clean(name)] = (data, of)

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
        self.module.functions[name] = function
        function.declared_result = self._debug.result(subprogram)
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
        self._fill(instruction, cursor)
        return instruction

    def _fill(self, it: Instruction, cursor: Cursor) -> None:
        while cursor.accept("tail", "musttail", "notail"):
            pass
        it.opcode = cursor.next()
        if it.opcode == "icmp":
            cursor.accept("samesign")
            it.flag = cursor.next()
        elif it.opcode in ("load", "store"):
            it.flag = "volatile" if cursor.accept("volatile") else ""
        elif it.opcode != "call":
            flags = set()
            while cursor.peek() in _FLAGS:
                flags.add(cursor.next())
            it.flag = frozenset(flags)
        method = getattr(self, f"_read_{it.opcode}", None)
        if method is not None:
            method(it, cursor)
        elif it.opcode in _BINARY or it.opcode == "icmp":
            self._operands(it, cursor, cursor.type())
            it.type = Int(1) if it.opcode == "icmp" else it.types[0]
        elif it.opcode in _CASTS:
            self._typed(it, cursor)
            cursor.expect("to")
            it.type = cursor.type()
        elif re.match(r"f(add|sub|mul|div|rem|neg|cmp|p)|[us]itofp", it.opcode):
            raise Unsupported(it.location, "floating point arithmetic", "use integers (ap_int, ap_uint) instead")
        elif it.opcode != "unreachable":
            raise Unsupported(it.location, f"it needs the instruction {it.opcode}", "keep to integers and streams")

    def _operands(self, it: Instruction, cursor: Cursor, of: Type) -> None:
        """Values of one type, separated by commas."""
        while True:
            it.operands.append(cursor.value(of))
            it.types.append(of)
            if not cursor.accept(","):
                return

    def _typed(self, it: Instruction, cursor: Cursor) -> None:
        """One `type value`."""
        it.types.append(cursor.type())
        it.operands.append(cursor.value(it.types[-1]))

    def _read_select(self, it: Instruction, cursor: Cursor) -> None:
        for _ in range(3):
            self._typed(it, cursor)
            cursor.accept(",")
        it.type = it.types[1]

    def _read_freeze(self, it: Instruction, cursor: Cursor) -> None:
        self._typed(it, cursor)
        it.type = it.types[0]

    def _read_phi(self, it: Instruction, cursor: Cursor) -> None:
        it.type = cursor.type()
        blocks = []
        while cursor.accept("["):
            it.operands.append(cursor.value(it.type))
            it.types.append(it.type)
            cursor.expect(",")
            blocks.append(clean(cursor.next()))
            cursor.expect("]")
            cursor.accept(",")
        it.flag = blocks

    def _read_br(self, it: Instruction, cursor: Cursor) -> None:
        if cursor.accept("i1"):
            it.operands.append(cursor.value(Int(1)))
            it.types.append(Int(1))
            cursor.expect(",")
        targets = []
        while cursor.accept("label"):
            targets.append(clean(cursor.next()))
            cursor.accept(",")
        it.flag = targets

    def _read_switch(self, it: Instruction, cursor: Cursor) -> None:
        self._typed(it, cursor)
        cursor.expect(",")
        cursor.expect("label")
        targets = [clean(cursor.next())]
        cursor.expect("[")
        while not cursor.accept("]"):
            self._typed(it, cursor)
            cursor.expect(",")
            cursor.expect("label")
            targets.append(clean(cursor.next()))
        it.flag = targets

    def _read_ret(self, it: Instruction, cursor: Cursor) -> None:
        of = cursor.type()
        if not isinstance(of, Void):
            it.types.append(of)
            it.operands.append(cursor.value(of))

    def _read_alloca(self, it: Instruction, cursor: Cursor) -> None:
        it.flag = cursor.type()
        it.type = Pointer()

    def _read_load(self, it: Instruction, cursor: Cursor) -> None:
        it.type = cursor.type()
        cursor.expect(",")
        self._typed(it, cursor)

    def _read_store(self, it: Instruction, cursor: Cursor) -> None:
        self._typed(it, cursor)
        cursor.expect(",")
        self._typed(it, cursor)

    def _read_getelementptr(self, it: Instruction, cursor: Cursor) -> None:
        it.flag = cursor.type()
        it.type = Pointer()
        while cursor.accept(","):
            self._typed(it, cursor)

    def _read_extractvalue(self, it: Instruction, cursor: Cursor) -> None:
        self._typed(it, cursor)
        cursor.expect(",")
        it.flag = int(cursor.next())
        of = it.types[0]
        it.type = of.fields[it.flag] if isinstance(of, Struct) else Other("aggregate")

    def _read_call(self, it: Instruction, cursor: Cursor) -> None:
        while cursor.accept("noundef", "zeroext", "signext", "nonnull", "noalias", "range", "dereferenceable"):
            cursor.skip_parentheses()
        it.type = cursor.type()
        cursor.skip_parentheses()
        if cursor.accept("asm"):
            while not cursor.peek().startswith('"'):
                cursor.next()
            it.flag = "asm:" + cursor.next().strip('"')
            return
        callee = cursor.next()
        it.flag = clean(callee)
        if not callee.startswith("@"):
            raise Unsupported(it.location, "a call through a pointer", "call the function by its name")
        cursor.expect("(")
        while not cursor.accept(")"):
            it.types.append(cursor.type())
            cursor.attributes()
            it.operands.append(cursor.value(it.types[-1]))
            cursor.accept(",")


def _constant_bytes(cursor: Cursor, of: Type) -> bytes | None:
    """Reads an initialiser; None for one with addresses or other types."""
    token = cursor.peek()
    if token in ("zeroinitializer", "undef", "poison"):
        cursor.next()
        return bytes(of.size)
    if isinstance(of, Int):
        value = cursor.value(of)
        return value.bits.to_bytes(of.size, "little") if isinstance(value, Number) else None
    if token.startswith('c"'):
        text = cursor.next()[2:-1]
        return bytes(int(a, 16) if a else ord(b) for a, b in re.findall(r"\\([0-9A-Fa-f]{2})|(.)", text, re.DOTALL))
    if not isinstance(of, Array | Struct) or not cursor.accept("[", "{", "<{"):
        return None
    data = bytearray(of.size)
    kinds = [of.element] * of.length if isinstance(of, Array) else list(of.fields)
    offsets = [i * of.element.size for i in range(of.length)] if isinstance(of, Array) else of.offsets()
    for kind, offset in zip(kinds, offsets, strict=False):
        part = _constant_bytes(cursor, cursor.type())
        if part is None:
            return None
        data[offset : offset + kind.size] = part
        cursor.accept(",")
    cursor.accept("]", "}", "}>")
    return bytes(data)


def read_module(text: str, hidden: str) -> Module:
    """Reads a module. Code of files below `hidden` counts as that of the line that calls it.

    Raises Unsupported for an instruction outside the subset, OpenHlsError for text it does not understand.
    """
    return Reader(text, hidden).module
