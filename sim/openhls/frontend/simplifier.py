# SPDX-License-Identifier: Apache-2.0
"""Makes operations, simplifying as it goes: constants are folded, equal operations made once, wiring kept as wiring.

A value that only picks bits of others (extensions, truncations, shifts and masks by constants) is known by its
segments, least significant first. Masks and bitwise operations are done segment by segment, so that a word put together
from lanes stays a concatenation instead of a chain of wide logic.
"""

from __future__ import annotations

from collections.abc import Callable

from openhls.builder import Builder
from openhls.evaluate import folded
from openhls.frontend.wiring import Segment, Segments, aligned, bit_runs, cut, joined, runs
from openhls.ir import FALSE, PREDICATED, TRUE, Const, Opcode, Operand, Operation, Value


class Simplifier(Builder):
    """Operations of the block in progress, and what is known about all values that are visible there."""

    def __init__(self, fresh: Callable[[str], str]) -> None:
        super().__init__(fresh)
        self._segments: dict[Value, Segments] = {}
        self._made: dict[object, Value] = {}
        self._scopes: list[dict[object, Value]] = []

    # ---- scopes ----

    def open_scope(self) -> None:
        """Operations made from now on are reused until the matching `close_scope` only."""
        self._scopes.append(dict(self._made))

    def close_scope(self) -> None:
        """See `open_scope`."""
        self._made = self._scopes.pop()

    # ---- operations with an effect ----

    def access(
        self,
        opcode: Opcode,
        target: str,
        operands: tuple[Operand, ...],
        width: int,
        predicate: Operand,
        hint: str = "",
        row: int | None = None,
    ) -> Operand:
        """A stream or array access; returns its result (a constant without meaning for WRITE and STORE)."""
        assert opcode in PREDICATED
        result = Value(self.fresh(hint or f"{target}_{opcode.value}"), width) if width else None
        self.operations.append(Operation(opcode, result, operands, self.location, predicate, target, row=row))
        return result or FALSE

    # ---- pure operations ----

    def make(self, opcode: Opcode, width: int, *operands: Operand, low: int = 0, hint: str = "") -> Operand:
        """The result of an operation, simplified."""
        constant = folded(opcode, width, operands, low)
        if constant is not None:
            return constant
        simplified = self._simplify(opcode, width, operands, low, hint)
        return self.emit(opcode, width, *operands, low=low, name=hint) if simplified is None else simplified

    def emit(self, opcode: Opcode, width: int, *operands: Operand, low: int = 0, name: str = "") -> Value:
        """The operation as it is, made once."""
        key = (opcode, width, operands, low)
        if key not in self._made:
            self._made[key] = super().emit(opcode, width, *operands, low=low, name=name)
        return self._made[key]

    def _simplify(
        self, opcode: Opcode, width: int, operands: tuple[Operand, ...], low: int, hint: str
    ) -> Operand | None:
        a = operands[0]
        if opcode in (Opcode.ZEXT, Opcode.SEXT, Opcode.EXTRACT) and width == a.width:
            return a
        match opcode:
            case Opcode.ZEXT:
                return self.join([*self.segments(a), Segment(Const(width - a.width, 0), 0, width - a.width)], hint)
            case Opcode.EXTRACT:
                return self.join(cut(self.segments(a), low, width), hint)
            case Opcode.CONCAT:
                return self.join([segment for part in reversed(operands) for segment in self.segments(part)], hint)
            case Opcode.SEXT:
                return self._extend_sign(a, width, hint)
            case Opcode.SHL | Opcode.LSHR | Opcode.ASHR if isinstance(operands[1], Const):
                return self._shift(opcode, a, operands[1].bits, hint)
            case Opcode.AND | Opcode.OR | Opcode.XOR:
                return self._bitwise(opcode, operands, hint)
            case Opcode.SELECT:
                return self._select(operands[0], operands[1], operands[2], hint)
            case Opcode.EQ | Opcode.NE:
                return self._equal(opcode, operands, hint)
            case Opcode.ULT | Opcode.ULE | Opcode.SLT | Opcode.SLE:
                return self._less(opcode, operands, hint)
            case Opcode.ADD | Opcode.SUB | Opcode.MUL:
                return self._arithmetic(opcode, width, operands, hint)
        return None

    # ---- wiring ----

    def segments(self, operand: Operand) -> Segments:
        """Where its bits come from."""
        if isinstance(operand, Value) and operand in self._segments:
            return self._segments[operand]
        return (Segment(operand, 0, operand.width),)

    def join(self, segments: list[Segment], hint: str = "") -> Operand:
        """The value of segments, least significant first."""
        merged = joined(segments)
        width = sum(segment.width for segment in merged)
        if len(merged) == 1:
            return self._pick(merged[0], hint)
        parts = tuple(self._pick(segment) for segment in reversed(merged))
        if len(parts) == 2 and isinstance(parts[0], Const) and parts[0].bits == 0:
            value = self.emit(Opcode.ZEXT, width, *parts[1:], name=hint)
        else:
            value = self.emit(Opcode.CONCAT, width, *parts, name=hint)
        self._segments[value] = merged
        return value

    def _pick(self, segment: Segment, hint: str = "") -> Operand:
        constant = segment.bits()
        if constant is not None:
            return Const(segment.width, constant)
        if segment.width == segment.source.width:
            return segment.source
        value = self.emit(Opcode.EXTRACT, segment.width, segment.source, low=segment.low, name=hint)
        self._segments[value] = (segment,)
        return value

    def _extend_sign(self, a: Operand, width: int, hint: str) -> Operand | None:
        top = self.segments(a)[-1].bits()
        if top is None:
            return None
        is_set = top >> (self.segments(a)[-1].width - 1) & 1
        added = width - a.width
        return self.join([*self.segments(a), Segment(Const(added, (1 << added) - 1 if is_set else 0), 0, added)], hint)

    def _shift(self, opcode: Opcode, a: Operand, amount: int, hint: str) -> Operand | None:
        width = a.width
        amount = min(amount, width)
        if amount == 0:
            return a
        if opcode is Opcode.ASHR:
            amount = min(amount, width - 1)
            kept = self.make(Opcode.EXTRACT, width - amount, a, low=amount)
            return self.make(Opcode.SEXT, width, kept, hint=hint)
        zeros = Segment(Const(amount, 0), 0, amount)
        if opcode is Opcode.SHL:
            return self.join([zeros, *cut(self.segments(a), 0, width - amount)], hint)
        return self.join([*cut(self.segments(a), amount, width - amount), zeros], hint)

    def _bitwise(self, opcode: Opcode, operands: tuple[Operand, ...], hint: str) -> Operand | None:
        pieces, useful = [], 0
        for left, right in aligned(self.segments(operands[0]), self.segments(operands[1])):
            result = self._bitwise_segment(opcode, left, right)
            pieces.append((left, right, result))
            useful += result is not None
        if not useful:
            return None
        segments: list[Segment] = []
        for lefts, rights, result in runs(pieces):
            if result is None:
                made = self.emit(opcode, sum(s.width for s in lefts), self.join(lefts), self.join(rights))
                segments += [Segment(made, 0, made.width)]
            else:
                segments += result
        return self.join(segments, hint)

    def _bitwise_segment(self, opcode: Opcode, a: Segment, b: Segment) -> list[Segment] | None:
        """The result where it needs no logic: in segments, because a mask may alternate."""
        if a.bits() is not None:
            a, b = b, a
        mask = b.bits()
        if mask is None:
            if a != b:
                return None
            return [Segment(Const(a.width, 0), 0, a.width)] if opcode is Opcode.XOR else [a]
        runs = list(bit_runs(mask, a.width))
        if len(runs) > 16:
            return None
        result = []
        for low, width, bit in runs:
            kept = a.part(low, width)
            if opcode is Opcode.XOR and bit:
                known = kept.bits()
                ones = Const(width, (1 << width) - 1)
                if known is None and len(runs) == 1:
                    return None
                inverted: Operand = (
                    Const(width, known ^ ones.bits)
                    if known is not None
                    else self.emit(Opcode.XOR, width, self._pick(kept), ones)
                )
                result.append(Segment(inverted, 0, width))
            elif (opcode is Opcode.AND and not bit) or (opcode is Opcode.OR and bit):
                result.append(Segment(Const(width, (1 << width) - 1 if bit else 0), 0, width))
            else:
                result.append(kept)
        return result

    def _select(self, condition: Operand, a: Operand, b: Operand, hint: str) -> Operand | None:
        if isinstance(condition, Const):
            return a if condition.bits else b
        if a == b:
            return a
        if a.width == 1 and isinstance(a, Const):
            return condition if a.bits and b == FALSE else self._select_bit(condition, a, b, hint)
        if a.width == 1 and isinstance(b, Const):
            return self._select_bit(condition, a, b, hint)
        pieces = [
            (left, right, [left] if left == right else None)
            for left, right in aligned(self.segments(a), self.segments(b))
        ]
        if all(same is None for _, _, same in pieces):
            return None
        segments: list[Segment] = []
        for left, right, same in runs(pieces):
            if same is None:
                low, high = self.join(left), self.join(right)
                made = self.make(Opcode.SELECT, low.width, condition, low, high)
                segments += self.segments(made)
            else:
                segments += same
        return self.join(segments, hint)

    def _select_bit(self, condition: Operand, a: Operand, b: Operand, hint: str) -> Operand:
        """A select of bits of which one is constant, as AND or OR."""
        if a == TRUE:
            return self.make(Opcode.OR, 1, condition, b, hint=hint)
        if b == FALSE:
            return self.make(Opcode.AND, 1, condition, a, hint=hint)
        negated = self.make(Opcode.XOR, 1, condition, TRUE)
        return self.make(Opcode.AND if a == FALSE else Opcode.OR, 1, negated, b if a == FALSE else a, hint=hint)

    # ---- arithmetic ----

    def _equal(self, opcode: Opcode, operands: tuple[Operand, ...], hint: str) -> Operand | None:
        a, b = operands
        if a == b:
            return Const(1, int(opcode is Opcode.EQ))
        different = []
        for one, other in aligned(self.segments(a), self.segments(b)):
            if one == other:
                continue
            if one.bits() is not None and other.bits() is not None:
                return Const(1, int(opcode is Opcode.NE))
            different.append((one, other))
        left, right = self.join([a for a, _ in different]), self.join([b for _, b in different])
        if left.width == 1 and isinstance(right, Const):
            return (
                left if bool(right.bits) == (opcode is Opcode.EQ) else self.make(Opcode.XOR, 1, left, TRUE, hint=hint)
            )
        return None if left.width == a.width else self.emit(opcode, 1, left, right, name=hint)

    def zeros_above(self, operand: Operand) -> int:
        """How many of its most significant bits are known to be 0."""
        zeros = 0
        for segment in reversed(self.segments(operand)):
            bits = segment.bits()
            if bits is None:
                break
            zeros += segment.width - bits.bit_length()
            if bits:
                break
        return zeros

    def _less(self, opcode: Opcode, operands: tuple[Operand, ...], hint: str) -> Operand | None:
        a, b = operands
        if a == b:
            return Const(1, int(opcode in (Opcode.ULE, Opcode.SLE)))
        width = a.width
        zeros = min(self.zeros_above(a), self.zeros_above(b))
        if opcode is Opcode.SLT and b == Const(width, 0):
            return self.make(Opcode.EXTRACT, 1, a, low=width - 1, hint=hint)
        if opcode is Opcode.SLT and a == Const(width, (1 << width) - 1):
            return self.make(Opcode.XOR, 1, self.make(Opcode.EXTRACT, 1, b, low=width - 1), TRUE, hint=hint)
        if zeros == 0:
            return None
        unsigned = {Opcode.SLT: Opcode.ULT, Opcode.SLE: Opcode.ULE}.get(opcode, opcode)
        left, right = (self.make(Opcode.EXTRACT, width - zeros, operand) for operand in operands)
        return self.make(unsigned, 1, left, right, hint=hint)

    def _arithmetic(self, opcode: Opcode, width: int, operands: tuple[Operand, ...], hint: str) -> Operand | None:
        a, b = operands
        if isinstance(a, Const) and opcode is not Opcode.SUB:
            return self.make(opcode, width, b, a, hint=hint)
        if isinstance(b, Const):
            if b.bits == 0:
                return b if opcode is Opcode.MUL else a
            if opcode is Opcode.MUL and b.bits & (b.bits - 1) == 0:
                return self._shift(Opcode.SHL, a, b.bits.bit_length() - 1, hint)
        if opcode is Opcode.SUB:
            return None
        used = [max(1, width - self.zeros_above(operand)) for operand in operands]
        needed = max(used) + 1 if opcode is Opcode.ADD else used[0] + used[1]
        if needed >= width:
            return None
        left, right = (
            self.make(Opcode.EXTRACT, min(n, needed), operand) for n, operand in zip(used, operands, strict=True)
        )
        wide = [self.make(Opcode.ZEXT, needed, part) if part.width < needed else part for part in (left, right)]
        return self.make(Opcode.ZEXT, width, self.emit(opcode, needed, *wide, name=hint))
