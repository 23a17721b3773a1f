# SPDX-License-Identifier: Apache-2.0
"""The tokens of a line of LLVM IR, and the types, values and initialisers they make."""

from __future__ import annotations

import re

from openhls.errors import OpenHlsError
from openhls.frontend.llvm.module import Global, Local, Null, Number, Operand
from openhls.frontend.types import Array, Int, Other, Pointer, Struct, Type, Void

_TOKEN = re.compile(
    r'\s*(?:(c"(?:[^"\\]|\\.)*")|([%@](?:"[^"]*"|[\w.$-]+))|(-?\d+\.\d+(?:e[+-]\d+)?|0x[KLMHR]?[0-9A-F]+|-?\d+)|([A-Za-z_][\w.]*)|("(?:[^"\\]|\\.)*")|(![\w.]*(?:\(.*\))?)|(\.\.\.|<\{|\}>|.))'
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


def constant_bytes(cursor: Cursor, of: Type) -> bytes | None:
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
        part = constant_bytes(cursor, cursor.type())
        if part is None:
            return None
        data[offset : offset + kind.size] = part
        cursor.accept(",")
    cursor.accept("]", "}", "}>")
    return bytes(data)
