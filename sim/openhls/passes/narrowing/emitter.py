# SPDX-License-Identifier: Apache-2.0
"""Writes operations in their simplest form: constants folded, wiring joined, nothing computed twice."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from itertools import groupby

from openhls.builder import Builder
from openhls.evaluate import folded
from openhls.ir import COMPARISONS, FALSE, TRUE, Const, Opcode, Operand, Operation, Value

COMMUTATIVE = frozenset({Opcode.ADD, Opcode.MUL, Opcode.AND, Opcode.OR, Opcode.XOR, Opcode.EQ, Opcode.NE})
MOST_RUNS = 4  # pieces that a constant may cut a value into
MOST_DIGITS = 3  # of a constant factor that is multiplied with by additions

Key = tuple[Opcode, tuple[Operand, ...], int, int]


def is_ones(operand: Operand) -> bool:
    return isinstance(operand, Const) and operand.bits == (1 << operand.width) - 1


def is_zero(operand: Operand) -> bool:
    return isinstance(operand, Const) and operand.bits == 0


class Emitter(Builder):
    """Every method returns an operand of the width that its operation has. `name` is what new values are called."""

    def __init__(self, names: Iterable[str]) -> None:
        super().__init__(self.numbered)
        self.names = set(names)
        self.definitions: dict[str, Operation] = {}
        self.seen: list[dict[Key, Value]] = [{}]
        self.name = "n"

    @contextmanager
    def scope(self) -> Iterator[None]:
        """What is written within is not visible behind it."""
        self.seen.append({})
        yield
        self.seen.pop()

    def numbered(self, name: str) -> str:
        """`name`, or one like it that is new."""
        chosen, number = name, 1
        while chosen in self.names:
            number += 1
            chosen = f"{name}.w{number}"  # other passes make names like x.2
        self.names.add(chosen)
        return chosen

    def at(self, operation: Operation) -> None:
        """Operations from here on stand for `operation`."""
        self.location = operation.location
        if operation.result is not None:
            self.name = operation.result.name

    def append(self, operation: Operation) -> None:
        self.operations.append(operation)
        if operation.result is not None:
            self.definitions[operation.result.name] = operation

    def fold(self, opcode: Opcode, width: int, *operands: Operand, low: int = 0, name: str = "") -> Operand:
        """An operation as it is, unless it is constant or there already."""
        constant = folded(opcode, width, operands, low)
        if constant is not None:
            return constant
        if opcode in COMMUTATIVE:
            operands = tuple(sorted(operands, key=lambda operand: isinstance(operand, Const)))
        key = (opcode, operands, width, low)
        for seen in reversed(self.seen):
            if key in seen:
                return seen[key]
            if opcode in COMMUTATIVE and (opcode, operands[::-1], width, low) in seen:
                return seen[opcode, operands[::-1], width, low]
        value = self.emit(opcode, width, *operands, low=low, name=name or self.name)
        self.definitions[value.name] = self.operations[-1]
        self.seen[-1][key] = value
        return value

    def definition(self, operand: Operand, opcode: Opcode) -> Operation | None:
        """The operation behind an operand, if it is of that kind."""
        found = self.definitions.get(operand.name) if isinstance(operand, Value) else None
        return found if found is not None and found.opcode is opcode else None

    # ---- wiring ----

    def extract(self, a: Operand, low: int, width: int) -> Operand:
        if low == 0 and width == a.width:
            return a
        if isinstance(a, Const):
            return Const(width, a.bits >> low & ((1 << width) - 1))
        if (operation := self.definitions.get(a.name)) is not None:
            match operation.opcode:
                case Opcode.EXTRACT:
                    return self.extract(operation.operands[0], operation.low + low, width)
                case Opcode.ZEXT | Opcode.SEXT:
                    return self.extract_extended(operation, low, width)
                case Opcode.CONCAT:
                    return self.concat(*parts(self, operation.operands, low, width))
        return self.fold(Opcode.EXTRACT, width, a, low=low)

    def extract_extended(self, operation: Operation, low: int, width: int) -> Operand:
        (source,) = operation.operands
        signed, inside = operation.opcode is Opcode.SEXT, source.width - low
        if inside >= width:
            return self.extract(source, low, width)
        if inside <= 0:
            return self.extend(self.extract(source, source.width - 1, 1), width, True) if signed else Const(width, 0)
        return self.extend(self.extract(source, low, inside), width, signed)

    def low_bits(self, a: Operand, width: int) -> Operand:
        return self.extract(a, 0, width)

    def extend(self, a: Operand, width: int, signed: bool) -> Operand:
        """`a`, or with more bits above it."""
        if width == a.width:
            return a
        if signed and (inner := self.definition(a, Opcode.SEXT)) is not None:
            a = inner.operands[0]
        if (inner := self.definition(a, Opcode.ZEXT)) is not None:
            a, signed = inner.operands[0], False
        if a.width == width:
            return a
        return self.fold(Opcode.SEXT if signed else Opcode.ZEXT, width, a)

    def concat(self, *operands: Operand) -> Operand:
        """Most significant first."""
        flat: list[Operand] = []
        for operand in operands:
            inner = self.definition(operand, Opcode.CONCAT)
            for each in inner.operands if inner is not None else (operand,):
                joined = self.joined(flat[-1], each) if flat else None
                flat[len(flat) - (joined is not None) :] = [each if joined is None else joined]
        width = sum(operand.width for operand in flat)
        if len(flat) > 1 and is_zero(flat[0]):
            return self.extend(self.concat(*flat[1:]), width, False)
        return flat[0] if len(flat) == 1 else self.fold(Opcode.CONCAT, width, *flat)

    def joined(self, above: Operand, below: Operand) -> Operand | None:
        """Two neighbours as one operand."""
        width = above.width + below.width
        if isinstance(above, Const) and isinstance(below, Const):
            return Const(width, above.bits << below.width | below.bits)
        upper, lower = self.definition(above, Opcode.EXTRACT), self.definition(below, Opcode.EXTRACT)
        if upper is None or lower is None or upper.operands != lower.operands:
            return None
        return self.extract(upper.operands[0], lower.low, width) if upper.low == lower.low + below.width else None

    # ---- bits ----

    def bitwise(self, opcode: Opcode, a: Operand, b: Operand) -> Operand:
        if isinstance(a, Const):
            a, b = b, a
        if isinstance(b, Const):
            return self.masked(opcode, a, b)
        if a == b:
            return Const(a.width, 0) if opcode is Opcode.XOR else a
        return self.fold(opcode, a.width, a, b)

    def masked(self, opcode: Opcode, a: Operand, b: Const) -> Operand:
        """AND and OR with a constant are wiring."""
        if opcode is Opcode.XOR:
            return self.inverted(a) if b == TRUE else a if b.bits == 0 else self.fold(opcode, a.width, a, b)
        groups = [(bit, len(list(group))) for bit, group in groupby(f"{b.bits:0{b.width}b}")]
        if len(groups) > MOST_RUNS:
            return self.fold(opcode, a.width, a, b)
        pieces: list[Operand] = []
        position = a.width
        for bit, length in groups:
            position -= length
            passes = (bit == "1") is (opcode is Opcode.AND)
            fixed = Const(length, 0 if opcode is Opcode.AND else (1 << length) - 1)
            pieces.append(self.extract(a, position, length) if passes else fixed)
        return self.concat(*pieces)

    def inverted(self, a: Operand) -> Operand:
        """`a` is one bit."""
        inner = self.definition(a, Opcode.XOR)
        if inner is not None and inner.operands[1] == TRUE:
            return inner.operands[0]
        return self.fold(Opcode.XOR, 1, a, TRUE)

    def select(self, condition: Operand, then: Operand, otherwise: Operand) -> Operand:
        if isinstance(condition, Const):
            return then if condition == TRUE else otherwise
        if then == otherwise:
            return then
        inner = self.definition(condition, Opcode.XOR)
        if inner is not None and inner.operands[1] == TRUE:
            return self.select(inner.operands[0], otherwise, then)
        if then.width == 1:
            if is_ones(then) or then == condition:
                return self.bitwise(Opcode.OR, condition, otherwise)
            if is_zero(otherwise) or otherwise == condition:
                return self.bitwise(Opcode.AND, condition, then)
            if is_zero(then):
                return self.bitwise(Opcode.AND, self.inverted(condition), otherwise)
            if is_ones(otherwise):
                return self.bitwise(Opcode.OR, self.inverted(condition), then)
        if isinstance(then, Const) and isinstance(otherwise, Const):
            return self.select_constants(condition, then, otherwise)
        return self.fold(Opcode.SELECT, then.width, condition, then, otherwise)

    def select_constants(self, condition: Operand, then: Const, otherwise: Const) -> Operand:
        """Copies of the condition and of its inverse where the constants differ."""
        width = then.width
        pairs = zip(f"{then.bits:0{width}b}", f"{otherwise.bits:0{width}b}", strict=True)
        groups = [(pair, len(list(group))) for pair, group in groupby(pairs)]
        if len(groups) > MOST_RUNS:
            return self.fold(Opcode.SELECT, width, condition, then, otherwise)
        pieces: list[Operand] = []
        for (one, other), length in groups:
            if one == other:
                pieces.append(Const(length, ((1 << length) - 1) * int(one)))
            else:
                bit = condition if one == "1" else self.inverted(condition)
                pieces.append(self.extend(bit, length, True))
        return self.concat(*pieces)

    # ---- numbers ----

    def add(self, a: Operand, b: Operand) -> Operand:
        if is_zero(a) or is_zero(b):
            return b if is_zero(a) else a
        return self.fold(Opcode.ADD, a.width, a, b)

    def subtract(self, a: Operand, b: Operand) -> Operand:
        if isinstance(b, Const):
            return self.add(a, Const(b.width, -b.bits & ((1 << b.width) - 1)))
        return Const(a.width, 0) if a == b else self.fold(Opcode.SUB, a.width, a, b)

    def shift_left(self, a: Operand, bits: int) -> Operand:
        """By a constant, modulo 2**width."""
        if bits >= a.width:
            return Const(a.width, 0)
        return self.concat(self.low_bits(a, a.width - bits), Const(bits, 0)) if bits else a

    def multiply(self, a: Operand, b: Operand) -> Operand:
        """By a constant of few digits, or by a bit, without a multiplier."""
        if isinstance(a, Const):
            a, b = b, a
        for one, other in ((a, b), (b, a)):
            bit = self.definition(one, Opcode.ZEXT)
            if bit is not None and bit.operands[0].width == 1:
                return self.select(bit.operands[0], other, Const(a.width, 0))
        digits = signed_digits(b.bits, b.width) if isinstance(b, Const) else []
        if not isinstance(b, Const) or len(digits) > MOST_DIGITS:
            return self.fold(Opcode.MUL, a.width, a, b)
        total: Operand = Const(a.width, 0)
        for position, sign in digits:
            term = self.shift_left(a, position)
            total = self.add(total, term) if sign > 0 else self.subtract(total, term)
        return total

    def compare(self, opcode: Opcode, a: Operand, b: Operand) -> Operand:
        assert opcode in COMPARISONS
        if a == b:
            return TRUE if opcode in (Opcode.EQ, Opcode.ULE, Opcode.SLE) else FALSE
        if opcode in (Opcode.EQ, Opcode.NE) and a.width == 1 and (isinstance(a, Const) or isinstance(b, Const)):
            value, constant = (a, b) if isinstance(b, Const) else (b, a)
            return value if (constant == TRUE) is (opcode is Opcode.EQ) else self.inverted(value)
        if opcode is Opcode.SLT and is_zero(b):
            return self.extract(a, a.width - 1, 1)
        if (opcode is Opcode.SLE and is_zero(a)) or (opcode is Opcode.SLT and is_ones(a)):
            return self.inverted(self.extract(b, b.width - 1, 1))
        if opcode is Opcode.ULT and is_zero(a):
            return self.fold(Opcode.NE, 1, b, a)
        return self.fold(opcode, 1, a, b)


def parts(emitter: Emitter, operands: Sequence[Operand], low: int, width: int) -> Iterator[Operand]:
    """The pieces of a concatenation that make up some of its bits, most significant first."""
    end = sum(operand.width for operand in operands)
    for operand in operands:
        end -= operand.width
        first, last = max(low, end), min(low + width, end + operand.width)
        if first < last:
            yield emitter.extract(operand, first - end, last - first)


def signed_digits(bits: int, width: int) -> list[tuple[int, int]]:
    """Positions and signs of the fewest powers of two whose sum is `bits` modulo 2**width, positive ones first."""
    number = bits - (1 << width) if bits >> (width - 1) else bits
    digits: list[tuple[int, int]] = []
    position = 0
    while number:
        if number & 1:
            sign = 2 - (number & 3)
            digits.append((position, sign))
            number -= sign
        number >>= 1
        position += 1
    return sorted((digit for digit in digits if digit[0] < width), key=lambda digit: -digit[1])
