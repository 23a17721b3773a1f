# SPDX-License-Identifier: Apache-2.0
"""How much the values of a loop grow from iteration to iteration, where that is linear in its counters."""

from __future__ import annotations

from openhls.ir import Block, Const, Loop, Opcode, Operand, Operation, Value, signed
from openhls.wrapping import Wrapping

VARIES = "varies"  # a slope that is the same in every iteration, but no constant
Slope = int | str
C_WIDTHS = (32, 64)  # signed numbers of C++, which do not wrap around


class NotEven(Exception):
    """The loop does not fit; the text says why."""


class Slopes:
    """Slopes of the values of `loop`, whose body is the block `body`."""

    def __init__(self, loop: Loop, body: Block, wrapping: Wrapping) -> None:
        self._sources = {each.result: each for each in body.operations if each.result is not None}
        self._carried = {each.value: each for each in loop.carried}
        self._wrapping = wrapping
        self._found: dict[Operand, Slope] = {}
        self._open: set[Operand] = set()  # that are being worked out

    def of(self, operand: Operand) -> Slope:
        """How much a value grows in each iteration, modulo its width; 0 for what stays. Raises NotEven."""
        if isinstance(operand, Const):
            return 0
        if operand not in self._found:
            if operand in self._open:
                raise NotEven("the address does not move in even steps")
            self._open.add(operand)
            slope = self._new_slope(operand)
            if isinstance(slope, int):
                slope = signed(slope % (1 << operand.width), operand.width)
            self._found[operand] = slope
        return self._found[operand]

    def _new_slope(self, operand: Value) -> Slope:
        source = self._sources.get(operand)
        if operand in self._carried:
            return self._carried_slope(operand)
        if source is None:
            return 0
        if source.target:
            raise NotEven("the address depends on what an iteration reads")
        slopes = [self.of(each) for each in source.operands]
        if all(slope == 0 for slope in slopes):
            return 0
        return self._operation_slope(source, slopes)

    def _carried_slope(self, value: Value) -> Slope:
        following = self._carried[value].following
        if following == value:
            return 0
        source = self._sources.get(following) if isinstance(following, Value) else None
        if source is not None and source.opcode in (Opcode.ADD, Opcode.SUB):
            a, b = source.operands
            if source.opcode is Opcode.ADD and b == value:
                a, b = b, a
            if a == value:
                if isinstance(b, Const):
                    return b.bits if source.opcode is Opcode.ADD else -b.bits
                if b != value and self.of(b) == 0:
                    return VARIES
        raise NotEven("the address does not move in even steps")

    def _operation_slope(self, source: Operation, slopes: list[Slope]) -> Slope:
        opcode = source.opcode
        if opcode in (Opcode.ADD, Opcode.SUB):
            a, b = slopes
            if isinstance(a, str) or isinstance(b, str):
                return VARIES
            return a + b if opcode is Opcode.ADD else a - b
        if opcode is Opcode.MUL and 0 in slopes:
            which = 0 if slopes[1] == 0 else 1
            moving, other = slopes[which], source.operands[1 - which]
            return moving * other.bits if isinstance(other, Const) and isinstance(moving, int) else VARIES
        if opcode is Opcode.SHL and slopes[1] == 0:
            moving, other = slopes[0], source.operands[1]
            return moving << other.bits if isinstance(other, Const) and isinstance(moving, int) else VARIES
        if opcode is Opcode.EXTRACT and source.low == 0:
            return slopes[0]
        if opcode in (Opcode.ZEXT, Opcode.SEXT):
            self._check_wrap(source.operands[0], opcode is Opcode.SEXT)
            return slopes[0]
        if opcode is Opcode.CONCAT:
            return self._concat_slope(source, slopes)
        raise NotEven("the address does not move in even steps")

    def _concat_slope(self, source: Operation, slopes: list[Slope]) -> Slope:
        """A shift, perhaps under zeros: only one part moves."""
        moving = [which for which, slope in enumerate(slopes) if slope != 0]
        if len(moving) != 1:
            raise NotEven("the address does not move in even steps")
        which = moving[0]
        if which > 0:
            self._check_wrap(source.operands[which], is_signed=False)
        slope = slopes[which]
        shift = sum(part.width for part in source.operands[which + 1 :])
        return slope << shift if isinstance(slope, int) else VARIES

    # ---- wrapping around ----

    def _check_wrap(self, operand: Operand, is_signed: bool) -> None:
        """A narrow number that moves must not wrap around before it is extended."""
        if not self._is_straight(operand, is_signed):
            raise NotEven(f"an index of {operand.width} bits that may wrap around; use int")

    def _is_straight(self, operand: Operand, is_signed: bool) -> bool:
        """True if a value never wraps around from iteration to iteration, as an unsigned or a signed number."""
        if self.of(operand) == 0 or self._wrapping.fits(operand, operand.width - 1):
            return True  # from one half of the range, no step leads around it
        if is_signed and operand.width in C_WIDTHS:
            return True
        proved = self._wrapping.signed if is_signed else self._wrapping.unsigned
        if isinstance(operand, Value) and operand in self._carried:
            return self._carried[operand].following in proved
        assert isinstance(operand, Value)
        source = self._sources[operand]
        if source.opcode is Opcode.ZEXT or (source.opcode is Opcode.SEXT and is_signed):
            return True  # its own operand was looked at, for its slope
        if source.opcode is Opcode.EXTRACT:
            return not is_signed and self._wrapping.fits(source.operands[0], operand.width)
        if source.opcode is Opcode.CONCAT:
            top = source.operands[0]
            return self._is_straight(top, is_signed) if self.of(top) != 0 else True
        if source.opcode in (Opcode.ADD, Opcode.SUB, Opcode.MUL, Opcode.SHL):
            if operand in proved and all(self._is_straight(each, is_signed) for each in source.operands):
                return True
            sums = (Opcode.ADD, Opcode.SUB) if is_signed else (Opcode.ADD,)
            return source.opcode in sums and all(self._has_room(each, is_signed) for each in source.operands)
        return False

    def _has_room(self, operand: Operand, is_signed: bool) -> bool:
        """True if the sum of two such numbers fits in their width."""
        if isinstance(operand, Const):
            top = operand.bits >> (operand.width - 2)
            return top in (0, 3) if is_signed else top in (0, 1)
        source = self._sources.get(operand)
        if source is None or source.opcode not in (Opcode.ZEXT, Opcode.SEXT):
            return False
        added = operand.width - source.operands[0].width
        if source.opcode is Opcode.SEXT:
            return is_signed
        return added >= (2 if is_signed else 1)
