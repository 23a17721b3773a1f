# SPDX-License-Identifier: Apache-2.0
"""Divisions, bit counts and some comparisons, written out in operations that are one level of hardware each.

A division becomes a restoring recurrence, one compare-and-subtract per quotient bit, which the scheduler cuts into
stages like any other logic; by a power of two it is wiring and at most an increment. A count becomes a tree. A
comparison with a constant leaves out the low bits that cannot decide it.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace

from openhls.ir import COUNTS, TRUE, Block, Const, Loop, Opcode, Operand, Operation, Process, Region, Value

DIVISIONS = frozenset({Opcode.UDIV, Opcode.UREM, Opcode.SDIV, Opcode.SREM})


def lower(process: Process) -> Process:
    """`process` without divisions and counts."""
    return replace(process, body=lower_regions(process.body))


def lower_regions(regions: tuple[Region, ...]) -> tuple[Region, ...]:
    return tuple(lower_region(region) for region in regions)


def lower_region(region: Region) -> Region:
    match region:
        case Block():
            return replace(region, operations=lower_operations(region.operations))
        case Loop():
            return replace(region, body=lower_regions(region.body))
        case _:
            return region


def lower_operations(operations: tuple[Operation, ...]) -> tuple[Operation, ...]:
    out: list[Operation] = []
    for operation in operations:
        if operation.opcode in DIVISIONS or operation.opcode in COUNTS or decided_above(operation):
            out += Writer(operation).run()
        else:
            out.append(operation)
    return tuple(out)


def decided_above(operation: Operation) -> int:
    """How many low bits do not matter to an unsigned comparison with a constant."""
    if operation.opcode not in (Opcode.ULT, Opcode.ULE):
        return 0
    bound = exclusive_bound(operation)
    return (bound & -bound).bit_length() - 1 if bound is not None else 0


def exclusive_bound(operation: Operation) -> int | None:
    """The c of x < c or its negation x >= c, if it is a constant that splits the range of x."""
    a, b = operation.operands
    if isinstance(b, Const) == isinstance(a, Const):
        return None
    if isinstance(b, Const):
        bound = b.bits + (operation.opcode is Opcode.ULE)
    else:
        assert isinstance(a, Const)
        bound = a.bits + (operation.opcode is Opcode.ULT)
    return bound if 0 < bound < 1 << a.width else None


@dataclass
class Writer:
    """Writes the operations that replace `origin`; their names begin with that of its result."""

    origin: Operation
    operations: list[Operation] = field(default_factory=list)

    def run(self) -> list[Operation]:
        origin = self.origin
        if origin.opcode in DIVISIONS:
            shift = self.power_of_two()
            value = self.divide(*origin.operands) if shift is None else self.divide_by_power(shift)
        elif origin.opcode in (Opcode.ULT, Opcode.ULE):
            value = self.compare_above(decided_above(origin))
        elif origin.opcode is Opcode.POPCOUNT:
            value = self.ones(origin.operands[0])
        elif origin.opcode is Opcode.CLZ:
            value = self.leading_zeros(origin.operands[0])
        else:
            value = self.leading_zeros(self.reversed(origin.operands[0]))
        assert origin.result is not None
        if self.operations and self.operations[-1].result == value:
            self.operations[-1] = replace(self.operations[-1], result=origin.result)
        else:
            zero = Const(value.width, 0)
            self.operations.append(Operation(Opcode.OR, origin.result, (value, zero), origin.location))
        return self.operations

    # ---- one operation each ----

    def emit(self, opcode: Opcode, width: int, *operands: Operand, low: int = 0) -> Value:
        assert self.origin.result is not None
        value = Value(f"{self.origin.result.name}.{len(self.operations)}", width)
        self.operations.append(Operation(opcode, value, operands, self.origin.location, low=low))
        return value

    def extract(self, a: Operand, low: int, width: int) -> Operand:
        if isinstance(a, Const):
            return Const(width, a.bits >> low & ((1 << width) - 1))
        return a if width == a.width else self.emit(Opcode.EXTRACT, width, a, low=low)

    def extend(self, a: Operand, width: int) -> Operand:
        if isinstance(a, Const):
            return Const(width, a.bits)
        return a if width == a.width else self.emit(Opcode.ZEXT, width, a)

    def concat(self, *parts: Operand) -> Operand:
        return self.emit(Opcode.CONCAT, sum(part.width for part in parts), *parts)

    def negated(self, a: Operand) -> Operand:
        return self.emit(Opcode.SUB, a.width, Const(a.width, 0), a)

    def select(self, condition: Operand, then: Operand, otherwise: Operand) -> Operand:
        return self.emit(Opcode.SELECT, then.width, condition, then, otherwise)

    # ---- comparison ----

    def compare_above(self, low: int) -> Operand:
        bound = exclusive_bound(self.origin)
        assert bound is not None
        a, b = self.origin.operands
        x, width = (b if isinstance(a, Const) else a), a.width - low
        high, limit = self.extract(x, low, width), Const(width, bound >> low)
        if isinstance(a, Const):
            return self.emit(Opcode.ULE, 1, limit, high)
        return self.emit(Opcode.ULT, 1, high, limit)

    # ---- division ----

    def power_of_two(self) -> int | None:
        """k of a divisor 2**k, k > 0, that is positive in the operation's own signedness."""
        divisor, width = self.origin.operands[1], self.origin.operands[0].width
        is_signed = self.origin.opcode in (Opcode.SDIV, Opcode.SREM)
        if not isinstance(divisor, Const) or divisor.bits < 2 or divisor.bits & (divisor.bits - 1):
            return None
        shift = divisor.bits.bit_length() - 1
        return None if is_signed and shift == width - 1 else shift

    def divide_by_power(self, shift: int) -> Operand:
        """Towards zero: a negative number with low bits has a quotient one higher, and keeps them as remainder."""
        opcode, a = self.origin.opcode, self.origin.operands[0]
        width = a.width
        high, low = self.extract(a, shift, width - shift), self.extract(a, 0, shift)
        if opcode is Opcode.UDIV:
            return self.extend(high, width)
        if opcode is Opcode.UREM:
            return self.extend(low, width)
        inexact = self.emit(Opcode.NE, 1, low, Const(shift, 0))
        rounds_up = self.emit(Opcode.AND, 1, inexact, self.extract(a, width - 1, 1))
        if opcode is Opcode.SREM:
            return self.emit(Opcode.SEXT, width, self.concat(rounds_up, low))
        quotient = self.emit(Opcode.ADD, width - shift, high, self.extend(rounds_up, width - shift))
        return self.emit(Opcode.SEXT, width, quotient)

    def divide(self, a: Operand, b: Operand) -> Operand:
        """Quotient or remainder; zero divisors as openhls.ir defines them."""
        opcode, width = self.origin.opcode, a.width
        wants_quotient = opcode in (Opcode.UDIV, Opcode.SDIV)
        if opcode in (Opcode.UDIV, Opcode.UREM):
            quotient, remainder = self.recurrence(a, b)
            return quotient if wants_quotient else remainder
        a_negative, b_negative = self.extract(a, width - 1, 1), self.extract(b, width - 1, 1)
        a_magnitude = self.select(a_negative, self.negated(a), a)
        b_magnitude = self.select(b_negative, self.negated(b), b)
        quotient, remainder = self.recurrence(a_magnitude, b_magnitude)
        if not wants_quotient:
            return self.select(a_negative, self.negated(remainder), remainder)
        opposite = self.emit(Opcode.XOR, 1, a_negative, b_negative)
        signed = self.select(opposite, self.negated(quotient), quotient)
        by_zero = self.emit(Opcode.EQ, 1, b, Const(width, 0))
        return self.select(by_zero, Const(width, (1 << width) - 1), signed)

    def recurrence(self, a: Operand, b: Operand) -> tuple[Operand, Operand]:
        """Unsigned quotient and remainder; x / 0 is all ones and x % 0 is x by the recurrence itself."""
        width = a.width
        divisor = self.extend(b, width + 1)
        remainder: Operand = Const(width + 1, 0)
        digits: list[Operand] = []
        for bit in reversed(range(width)):
            kept = self.extract(remainder, 0, width)
            shifted = self.concat(kept, self.extract(a, bit, 1))
            digit = self.emit(Opcode.ULE, 1, divisor, shifted)
            remainder = self.select(digit, self.emit(Opcode.SUB, width + 1, shifted, divisor), shifted)
            digits.append(digit)
        return self.concat(*digits), self.extract(remainder, 0, width)

    # ---- counts ----

    def reversed(self, a: Operand) -> Operand:
        return self.concat(*(self.extract(a, bit, 1) for bit in range(a.width)))

    def fitted(self, count: Operand, width: int) -> Operand:
        """A count, as wide as the operand it was counted in: modulo 2**width."""
        return self.extract(count, 0, width) if count.width > width else self.extend(count, width)

    def ones(self, a: Operand) -> Operand:
        counts = [self.extract(a, bit, 1) for bit in range(a.width)]
        return self.fitted(self.tree(counts, self.sum_of), a.width)

    def sum_of(self, x: Operand, y: Operand) -> Operand:
        width = max(x.width, y.width) + 1
        return self.emit(Opcode.ADD, width, self.extend(x, width), self.extend(y, width))

    def tree(self, terms: list[Operand], join: Callable[[Operand, Operand], Operand]) -> Operand:
        while len(terms) > 1:
            pairs = [join(x, y) for x, y in zip(terms[::2], terms[1::2], strict=False)]
            terms = pairs + terms[len(terms) & ~1 :]
        return terms[0]

    def leading_zeros(self, a: Operand) -> Operand:
        """Joins halves from single bits up; ones below the operand make its length a power of two."""
        size = 1 << (a.width - 1).bit_length()
        bits = [self.extract(a, bit, 1) for bit in reversed(range(a.width))] + [TRUE] * (size - a.width)
        zero = [self.emit(Opcode.XOR, 1, bit, TRUE) for bit in bits]
        counts: list[Operand] = []  # of leading zeros, where the part is not all zero
        while len(zero) > 1:
            upper, lower = zero[::2], zero[1::2]
            counts = [self.halves(i, upper[i], counts) for i in range(len(upper))]
            zero = [self.emit(Opcode.AND, 1, x, y) for x, y in zip(upper, lower, strict=True)]
        all_zero = zero[0]
        if not counts:
            return self.fitted(all_zero, a.width)
        below = self.select(all_zero, Const(counts[0].width, 0), counts[0])
        return self.fitted(self.concat(all_zero, below), a.width)

    def halves(self, i: int, upper_zero: Operand, counts: list[Operand]) -> Operand:
        if not counts:
            return upper_zero
        return self.concat(upper_zero, self.select(upper_zero, counts[2 * i + 1], counts[2 * i]))
