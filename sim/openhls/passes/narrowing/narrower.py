# SPDX-License-Identifier: Apache-2.0
"""An operation without an effect, written for the bits of its result that matter."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from openhls.ir import COMPARISONS, Const, Opcode, Operand, Operation
from openhls.passes.narrowing.emitter import MOST_RUNS, Emitter
from openhls.passes.narrowing.facts import Fact
from openhls.passes.narrowing.shape import Shape, low_part, runs

SIGNED_DIVISIONS = {Opcode.SDIV: Opcode.UDIV, Opcode.SREM: Opcode.UREM}
UNSIGNED_COMPARISONS = {Opcode.SLT: Opcode.ULT, Opcode.SLE: Opcode.ULE}


@dataclass
class Narrower:
    """`operands` are what the operands of `origin` have become, as wide as they were; `facts` are theirs.

    Of the result, with `fact`, the bits of `mask` are looked at, and `floor` bits at least are kept together.
    """

    emitter: Emitter
    origin: Operation
    operands: Sequence[Operand]
    facts: Sequence[Fact]
    fact: Fact
    mask: int
    floor: int

    def run(self) -> Operand:
        """The result, as wide as it was."""
        shape = low_part(self.fact, self.mask, self.floor)
        if not shape.kept:
            return Const(self.fact.width, self.fact.ones)
        emitter, operands, opcode, width = self.emitter, self.operands, self.origin.opcode, self.fact.width
        match opcode:
            case Opcode.ZEXT | Opcode.SEXT:
                return emitter.extend(operands[0], width, opcode is Opcode.SEXT)
            case Opcode.EXTRACT:
                return emitter.extract(operands[0], self.origin.low, width)
            case Opcode.CONCAT:
                return emitter.concat(*self.looked_at())
            case Opcode.UDIV | Opcode.UREM | Opcode.SDIV | Opcode.SREM:
                return self.division()
            case _ if opcode in COMPARISONS:
                return self.comparison()
        return emitter.extend(self.low_part(shape), width, shape.signed)

    def low_part(self, shape: Shape) -> Operand:
        """The low bits of the result that `shape` keeps."""
        emitter, opcode, kept = self.emitter, self.origin.opcode, shape.kept
        match opcode:
            case Opcode.ADD | Opcode.SUB | Opcode.MUL:
                a, b = (emitter.low_bits(operand, kept) for operand in self.operands)
                write = {Opcode.ADD: emitter.add, Opcode.SUB: emitter.subtract, Opcode.MUL: emitter.multiply}
                return write[opcode](a, b)
            case Opcode.AND | Opcode.OR | Opcode.XOR | Opcode.SELECT:
                return self.pieces(shape)
            case Opcode.SHL | Opcode.LSHR | Opcode.ASHR:
                return self.shift(kept)
            case Opcode.POPCOUNT:
                size = max(self.facts[0].bits, 1)
                ones = emitter.fold(opcode, size, emitter.low_bits(self.operands[0], size))
                return emitter.extend(ones, kept, False) if size < kept else emitter.low_bits(ones, kept)
        return emitter.low_bits(emitter.fold(opcode, self.fact.width, *self.operands), kept)

    def looked_at(self) -> list[Operand]:
        """The parts of a concatenation, 0 for those that are not demanded."""
        kept: list[Operand] = []
        mask = self.mask
        for operand in reversed(self.operands):
            kept.append(operand if mask & ((1 << operand.width) - 1) else Const(operand.width, 0))
            mask >>= operand.width
        return kept[::-1]

    # ---- bit by bit ----

    def pieces(self, shape: Shape) -> Operand:
        """The result without the bits that are known or not demanded, if those lie in a few groups."""
        full = (1 << shape.kept) - 1
        live = full if shape.signed else full & self.mask & ~self.fact.known
        groups = list(runs(live))
        if len(groups) > MOST_RUNS:
            groups = [(0, shape.kept)]
        found: list[Operand] = []
        position = 0
        for low, width in groups:
            if low > position:
                found.append(self.fixed(position, low - position))
            found.append(self.piece(low, width))
            position = low + width
        if position < shape.kept:
            found.append(self.fixed(position, shape.kept - position))
        return self.emitter.concat(*found[::-1])

    def fixed(self, low: int, width: int) -> Const:
        return Const(width, self.fact.ones >> low & ((1 << width) - 1))

    def piece(self, low: int, width: int) -> Operand:
        emitter, operands = self.emitter, self.operands
        a, b = (emitter.extract(operand, low, width) for operand in operands[-2:])
        if self.origin.opcode is Opcode.SELECT:
            return emitter.select(operands[0], a, b)
        return emitter.bitwise(self.origin.opcode, a, b)

    # ---- shifts ----

    def shift(self, kept: int) -> Operand:
        emitter, opcode = self.emitter, self.origin.opcode
        a, b = self.operands
        amount = self.facts[1]
        if amount.constant is not None:
            return self.shift_by_constant(kept, amount.constant)
        if opcode is Opcode.SHL:
            size = kept
        elif opcode is Opcode.ASHR and self.facts[0].least < 0:
            size = self.facts[0].signed_bits
        else:
            size, opcode = self.facts[0].bits, Opcode.LSHR
        size = min(a.width, max(size, amount.bits))
        shifted = emitter.fold(opcode, size, emitter.low_bits(a, size), emitter.low_bits(b, size))
        if size < kept:
            return emitter.extend(shifted, kept, opcode is Opcode.ASHR)
        return emitter.low_bits(shifted, kept)

    def shift_by_constant(self, kept: int, bits: int) -> Operand:
        emitter, a = self.emitter, self.operands[0]
        if self.origin.opcode is Opcode.SHL:
            return emitter.shift_left(emitter.low_bits(a, kept), bits)
        signed = self.origin.opcode is Opcode.ASHR
        if bits >= a.width and not signed:
            return Const(kept, 0)
        high = emitter.extract(a, min(bits, a.width - 1), a.width - min(bits, a.width - 1))
        return emitter.low_bits(emitter.extend(high, a.width, signed), kept)

    # ---- comparisons and divisions ----

    def comparison(self) -> Operand:
        a, b = self.facts
        opcode = self.origin.opcode
        if opcode in UNSIGNED_COMPARISONS and a.least >= 0 and b.least >= 0:
            opcode = UNSIGNED_COMPARISONS[opcode]
        unsigned, signed = max(a.bits, b.bits, 1), max(a.signed_bits, b.signed_bits)
        if opcode in UNSIGNED_COMPARISONS:
            size = signed
        else:
            size = min(unsigned, signed) if opcode in (Opcode.EQ, Opcode.NE) else unsigned
        return self.emitter.compare(opcode, *(self.emitter.low_bits(operand, size) for operand in self.operands))

    def division(self) -> Operand:
        """A quotient by 0 is all ones, so that a divisor that may be 0 keeps its width unless ones are its sign."""
        a, b = self.facts
        opcode, width = self.origin.opcode, a.width
        signed = opcode in SIGNED_DIVISIONS
        if signed and a.least >= 0 and b.least >= (opcode is Opcode.SDIV):
            opcode, signed = SIGNED_DIVISIONS[opcode], False
        if signed:
            size = min(width, max(a.signed_bits, b.signed_bits) + (b.least <= -1 <= b.most))
        elif opcode is Opcode.UDIV and not b.low:
            size = width
        else:
            size = max(a.bits, b.bits, 1)
        operands = [self.emitter.low_bits(operand, size) for operand in self.operands]
        return self.emitter.extend(self.emitter.fold(opcode, size, *operands), width, signed)
