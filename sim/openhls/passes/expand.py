# SPDX-License-Identifier: Apache-2.0
"""Divisions, bit counts and some comparisons, written out in operations that are one level of hardware each.

A division becomes a restoring recurrence, one compare-and-subtract per quotient bit, which the scheduler cuts into
stages like any other logic; by a power of two it is wiring and at most an increment. A count becomes a tree. A
comparison with a constant leaves out the low bits that cannot decide it.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from openhls.builder import Builder
from openhls.ir import COUNTS, TRUE, Block, Const, Loop, Opcode, Operand, Operation, Process, Region

DIVISIONS = frozenset({Opcode.UDIV, Opcode.UREM, Opcode.SDIV, Opcode.SREM})


def expand(process: Process) -> Process:
    """`process` without divisions and counts."""
    return replace(process, body=expand_regions(process.body))


def expand_regions(regions: tuple[Region, ...]) -> tuple[Region, ...]:
    return tuple(expand_region(region) for region in regions)


def expand_region(region: Region) -> Region:
    match region:
        case Block():
            return replace(region, operations=expand_operations(region.operations))
        case Loop():
            return replace(region, body=expand_regions(region.body))
        case _:
            return region


def expand_operations(operations: tuple[Operation, ...]) -> tuple[Operation, ...]:
    out: list[Operation] = []
    for operation in operations:
        if operation.opcode in DIVISIONS or operation.opcode in COUNTS or decided_above(operation):
            out += Expansion(operation).run()
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


class Expansion(Builder):
    """Writes the operations that replace `origin`; their names begin with that of its result."""

    def __init__(self, origin: Operation) -> None:
        assert origin.result is not None
        stem = origin.result.name
        super().__init__(lambda _: f"{stem}.{len(self.operations)}")
        self.origin, self.location = origin, origin.location

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

    def negated(self, a: Operand) -> Operand:
        return self.emit(Opcode.SUB, a.width, Const(a.width, 0), a)

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
            return self.resized(high, width)
        if opcode is Opcode.UREM:
            return self.resized(low, width)
        inexact = self.emit(Opcode.NE, 1, low, Const(shift, 0))
        rounds_up = self.emit(Opcode.AND, 1, inexact, self.extract(a, width - 1, 1))
        if opcode is Opcode.SREM:
            return self.emit(Opcode.SEXT, width, self.concat(rounds_up, low))
        quotient = self.emit(Opcode.ADD, width - shift, high, self.resized(rounds_up, width - shift))
        return self.emit(Opcode.SEXT, width, quotient)

    def divide(self, a: Operand, b: Operand) -> Operand:
        """Quotient or remainder; zero divisors as openhls.ir defines them."""
        opcode, width = self.origin.opcode, a.width
        wants_quotient = opcode in (Opcode.UDIV, Opcode.SDIV)
        if opcode in (Opcode.UDIV, Opcode.UREM):
            quotient, remainder = self.recurrence(a, b)
            return quotient if wants_quotient else remainder
        a_negative, b_negative = self.extract(a, width - 1, 1), self.extract(b, width - 1, 1)
        a_magnitude = self.choice(a_negative, self.negated(a), a)
        b_magnitude = self.choice(b_negative, self.negated(b), b)
        quotient, remainder = self.recurrence(a_magnitude, b_magnitude)
        if not wants_quotient:
            return self.choice(a_negative, self.negated(remainder), remainder)
        opposite = self.emit(Opcode.XOR, 1, a_negative, b_negative)
        signed = self.choice(opposite, self.negated(quotient), quotient)
        by_zero = self.emit(Opcode.EQ, 1, b, Const(width, 0))
        return self.choice(by_zero, Const(width, (1 << width) - 1), signed)

    def recurrence(self, a: Operand, b: Operand) -> tuple[Operand, Operand]:
        """Unsigned quotient and remainder; x / 0 is all ones and x % 0 is x by the recurrence itself."""
        width = a.width
        divisor = self.resized(b, width + 1)
        remainder: Operand = Const(width + 1, 0)
        digits: list[Operand] = []
        for bit in reversed(range(width)):
            kept = self.extract(remainder, 0, width)
            shifted = self.concat(kept, self.extract(a, bit, 1))
            digit = self.emit(Opcode.ULE, 1, divisor, shifted)
            remainder = self.choice(digit, self.emit(Opcode.SUB, width + 1, shifted, divisor), shifted)
            digits.append(digit)
        return self.concat(*digits), self.extract(remainder, 0, width)

    # ---- counts ----

    def reversed(self, a: Operand) -> Operand:
        return self.concat(*(self.extract(a, bit, 1) for bit in range(a.width)))

    def ones(self, a: Operand) -> Operand:
        counts = [self.extract(a, bit, 1) for bit in range(a.width)]
        return self.resized(self.tree(counts, self.sum_of), a.width)

    def sum_of(self, x: Operand, y: Operand) -> Operand:
        width = max(x.width, y.width) + 1
        return self.emit(Opcode.ADD, width, self.resized(x, width), self.resized(y, width))

    def tree(self, terms: list[Operand], join: Callable[[Operand, Operand], Operand]) -> Operand:
        while len(terms) > 1:
            pairs = [join(x, y) for x, y in zip(terms[::2], terms[1::2], strict=False)]
            terms = pairs + terms[len(terms) & ~1 :]
        return terms[0]

    def leading_zeros(self, a: Operand) -> Operand:
        """Joins halves from single bits up; ones below the operand make its length a power of two."""
        size = 1 << (a.width - 1).bit_length()
        bits = [self.extract(a, bit, 1) for bit in reversed(range(a.width))] + [TRUE] * (size - a.width)
        zero = [self.inverted(bit) for bit in bits]
        counts: list[Operand] = []  # of leading zeros, where the part is not all zero
        while len(zero) > 1:
            upper, lower = zero[::2], zero[1::2]
            counts = [self.halves(i, upper[i], counts) for i in range(len(upper))]
            zero = [self.both(x, y) for x, y in zip(upper, lower, strict=True)]
        all_zero = zero[0]
        if not counts:
            return self.resized(all_zero, a.width)
        below = self.choice(all_zero, Const(counts[0].width, 0), counts[0])
        return self.resized(self.concat(all_zero, below), a.width)

    def halves(self, i: int, upper_zero: Operand, counts: list[Operand]) -> Operand:
        if not counts:
            return upper_zero
        return self.concat(upper_zero, self.choice(upper_zero, counts[2 * i + 1], counts[2 * i]))
