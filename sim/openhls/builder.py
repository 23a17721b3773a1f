# SPDX-License-Identifier: Apache-2.0
"""Writes operations, one after the other. What all writers share is here; a subclass adds rules that simplify."""

from __future__ import annotations

from collections.abc import Callable

from openhls.evaluate import folded
from openhls.ir import FALSE, TRUE, UNKNOWN, Const, Location, Opcode, Operand, Operation, Value


class Builder:
    """Appends to `operations`, at `location`. `fresh` gives a new name for a wish.

    `emit` writes an operation as it is; the methods after it leave out what constants decide.
    """

    def __init__(self, fresh: Callable[[str], str]) -> None:
        self.fresh = fresh
        self.operations: list[Operation] = []
        self.location: Location = UNKNOWN

    def take(self) -> tuple[Operation, ...]:
        """The operations so far; a new block begins."""
        operations, self.operations = tuple(self.operations), []
        return operations

    def emit(self, opcode: Opcode, width: int, *operands: Operand, low: int = 0, name: str = "") -> Value:
        value = Value(self.fresh(name or opcode.value), width)
        self.operations.append(Operation(opcode, value, operands, self.location, low=low))
        return value

    def fold(self, opcode: Opcode, width: int, *operands: Operand, low: int = 0, name: str = "") -> Operand:
        """The operation, or the constant that it gives."""
        constant = folded(opcode, width, operands, low)
        return self.emit(opcode, width, *operands, low=low, name=name) if constant is None else constant

    def both(self, a: Operand, b: Operand) -> Operand:
        if FALSE in (a, b):
            return FALSE
        if TRUE in (a, b):
            return b if a == TRUE else a
        return self.emit(Opcode.AND, 1, a, b)

    def either(self, a: Operand, b: Operand) -> Operand:
        if TRUE in (a, b):
            return TRUE
        if FALSE in (a, b):
            return b if a == FALSE else a
        return self.emit(Opcode.OR, 1, a, b)

    def inverted(self, a: Operand) -> Operand:
        """`a` is one bit."""
        return self.fold(Opcode.XOR, 1, a, TRUE)

    def choice(self, condition: Operand, then: Operand, otherwise: Operand) -> Operand:
        if isinstance(condition, Const) or then == otherwise:
            return then if condition == TRUE or then == otherwise else otherwise
        return self.emit(Opcode.SELECT, then.width, condition, then, otherwise)

    def extract(self, a: Operand, low: int, width: int) -> Operand:
        return a if width == a.width else self.fold(Opcode.EXTRACT, width, a, low=low)

    def resized(self, a: Operand, width: int) -> Operand:
        """The low bits of `a`, or `a` with zeros above it."""
        return self.extract(a, 0, width) if width <= a.width else self.fold(Opcode.ZEXT, width, a)

    def extended(self, a: Operand, width: int, is_signed: bool) -> Operand:
        """`a` with more bits above it: its sign, or zeros."""
        return a if width == a.width else self.fold(Opcode.SEXT if is_signed else Opcode.ZEXT, width, a)

    def concat(self, *parts: Operand) -> Operand:
        """Most significant first."""
        return self.emit(Opcode.CONCAT, sum(part.width for part in parts), *parts)
