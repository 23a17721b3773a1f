# SPDX-License-Identifier: Apache-2.0
"""Where a loop touches memory in even steps, and how often it turns: computed before its first iteration.

The operations that an address depends on are written out twice in front of the loop, for the first and for the second
iteration; their difference is the stride. That is right for what is linear in the counters of the loop, modulo the 64
bits of an address, so only such operations are accepted. A narrower number must not wrap around before it is extended:
its type or clang says so. Signed numbers of 32 bits or more are taken not to, as C++ says of int. A loop that ends has
fewer than 2**32 iterations.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from openhls.frontend.names import Names
from openhls.frontend.wrapping import Wrapping
from openhls.ir import (
    FALSE,
    REQUEST_WIDTH,
    TRUE,
    Block,
    Const,
    Loop,
    Opcode,
    Operand,
    Operation,
    Value,
)

VARIES = "varies"  # a slope that is the same in every iteration, but no constant
Slope = int | str
C_WIDTHS = (32, 64)  # signed numbers of C++, which do not wrap around
COUNT_BITS = 32


class NotEven(Exception):
    """The loop does not fit; the text says why."""


@dataclass
class Runs:
    """Writes operations that belong in front of `loop`, whose body is the block `body`."""

    names: Names
    loop: Loop
    body: Block
    wrapping: Wrapping
    operations: list[Operation] = field(default_factory=list)

    def __post_init__(self) -> None:
        self._sources = {each.result: each for each in self.body.operations if each.result is not None}
        self._carried = {each.value: each for each in self.loop.carried}
        self._copies: list[dict[Value, Operand]] = [{}, {}]
        self._slopes: dict[Operand, Slope] = {}
        self._open: set[Operand] = set()  # slopes that are being worked out

    def take(self) -> tuple[Operation, ...]:
        """What was written since the last call."""
        taken, self.operations = tuple(self.operations), []
        return taken

    # ---- what the caller asks for ----

    def request(self, address: Operand, size: int, count: Operand) -> Operand:
        """The word that asks for `count` elements of `size` bytes, from the address in the first iteration on."""
        self._slope(address)
        first, second = self._at(address, 0), self._at(address, 1)
        difference = self._emit(Opcode.SUB, 64, second, first)
        shift = size.bit_length() - 1
        stride = self._emit(Opcode.EXTRACT, 32, difference, low=shift)
        return self._emit(Opcode.CONCAT, REQUEST_WIDTH, count, stride, first)

    def invariant(self, operand: Operand) -> Operand:
        """An operand that is the same in every iteration, in front of the loop."""
        try:
            varies = self._slope(operand) != 0
        except NotEven:
            varies = True
        if varies:
            raise NotEven("it depends on a condition that changes from iteration to iteration")
        return self._at(operand, 0)

    def moves(self, address: Operand) -> bool:
        """Whether it is surely another one in every iteration."""
        return self._slope(address) not in (0, VARIES)

    def both(self, a: Operand, b: Operand) -> Operand:
        if TRUE in (a, b):
            return b if a == TRUE else a
        return self._emit(Opcode.AND, 1, a, b)

    def count(self) -> Operand:
        """The iterations of an entry."""
        trips = self.loop.trip_count
        if trips is not None and trips.exact and trips.least == trips.most:
            return Const(COUNT_BITS, trips.most)
        if self.loop.again == FALSE:
            return Const(COUNT_BITS, 1)
        opcode, a, b = self._exit_test()
        slopes = self._slope(a), self._slope(b)
        if slopes[0] == 0 and isinstance(slopes[1], int) and slopes[1] != 0:
            limit, moving, slope = a, b, slopes[1]
        elif slopes[1] == 0 and isinstance(slopes[0], int) and slopes[0] != 0:
            limit, moving, slope = b, a, slopes[0]
        else:
            raise NotEven("the number of iterations is not known when the loop begins")
        rises = moving == a if opcode is not Opcode.NE else slope > 0
        if opcode is not Opcode.NE and rises != (slope > 0):
            raise NotEven("the loop counts away from its end")
        return self._turns(opcode, moving, limit, slope)

    # ---- the number of iterations ----

    def _exit_test(self) -> tuple[Opcode, Operand, Operand]:
        """The comparison that keeps the loop going."""
        again, inverted = self.loop.again, False
        while True:
            source = self._sources.get(again) if isinstance(again, Value) else None
            if source is None:
                raise NotEven("the number of iterations is not known when the loop begins")
            if source.opcode is Opcode.XOR and source.operands[1] == TRUE:
                again, inverted = source.operands[0], not inverted
                continue
            break
        a, b = source.operands[:2] if len(source.operands) == 2 else (TRUE, TRUE)
        plain = {Opcode.NE, Opcode.SLT, Opcode.ULT, Opcode.SLE, Opcode.ULE}
        if not inverted and source.opcode in plain:
            return source.opcode, a, b
        if inverted and source.opcode is Opcode.EQ:
            return Opcode.NE, a, b
        opposite = {Opcode.SLT: Opcode.SLE, Opcode.SLE: Opcode.SLT, Opcode.ULT: Opcode.ULE, Opcode.ULE: Opcode.ULT}
        if inverted and source.opcode in opposite:
            return opposite[source.opcode], b, a
        raise NotEven("the number of iterations is not known when the loop begins")

    def _turns(self, opcode: Opcode, moving: Operand, limit: Operand, slope: int) -> Operand:
        """One more than how often the test holds."""
        step = abs(slope)
        if step & (step - 1):
            raise NotEven(f"the counter moves by {step}, which is no power of two")
        start, end = self._at(moving, 0), self._at(limit, 0)
        width = start.width + 2
        extend = Opcode.SEXT if opcode in (Opcode.SLT, Opcode.SLE) else Opcode.ZEXT
        low, high = (self._emit(extend, width, each) for each in (start, end))
        if slope < 0:
            low, high = high, low
        distance = self._emit(Opcode.SUB, width, high, low)
        if opcode is Opcode.NE:  # equal at the end, so that it divides evenly
            around = self._emit(Opcode.EXTRACT, start.width, distance)
            steps = self._emit(Opcode.LSHR, start.width, around, Const(start.width, step.bit_length() - 1))
            return self._plus_one(self._cut_count(steps), TRUE)
        rounding = step - 1 + (1 if opcode in (Opcode.SLE, Opcode.ULE) else 0)
        up = self._emit(Opcode.ADD, width, distance, Const(width, rounding))
        holds = self._emit(Opcode.SLT, 1, Const(width, 0), up)
        times = self._emit(Opcode.LSHR, width, up, Const(width, step.bit_length() - 1))
        return self._plus_one(self._cut_count(times), holds)

    def _cut_count(self, value: Operand) -> Operand:
        if value.width == COUNT_BITS:
            return value
        opcode = Opcode.EXTRACT if value.width > COUNT_BITS else Opcode.ZEXT
        return self._emit(opcode, COUNT_BITS, value)

    def _plus_one(self, times: Operand, holds: Operand) -> Operand:
        more = self._emit(Opcode.ADD, COUNT_BITS, times, Const(COUNT_BITS, 1))
        return more if holds == TRUE else self._emit(Opcode.SELECT, COUNT_BITS, holds, more, Const(COUNT_BITS, 1))

    # ---- operands in front of the loop ----

    def _at(self, operand: Operand, iteration: int) -> Operand:
        """The value in the first (0) or second (1) iteration."""
        if isinstance(operand, Const):
            return operand
        copies = self._copies[iteration]
        if operand in copies:
            return copies[operand]
        carried, source = self._carried.get(operand), self._sources.get(operand)
        if carried is not None:
            result = carried.initial if iteration == 0 else self._at(carried.following, 0)
        elif source is not None:
            assert not source.target
            operands = tuple(self._at(each, iteration) for each in source.operands)
            result = self._emit(source.opcode, operand.width, *operands, low=source.low)
        else:
            result = operand
        copies[operand] = result
        return result

    def _emit(self, opcode: Opcode, width: int, *operands: Operand, low: int = 0) -> Value:
        value = Value(self.names.fresh("run"), width)
        self.operations.append(Operation(opcode, value, operands, self.loop.location, low=low))
        return value

    # ---- slopes ----

    def _slope(self, operand: Operand) -> Slope:
        """How much a value grows in each iteration, modulo its width; 0 for what stays. Raises NotEven."""
        if isinstance(operand, Const):
            return 0
        if operand not in self._slopes:
            if operand in self._open:
                raise NotEven("the address does not move in even steps")
            self._open.add(operand)
            slope = self._new_slope(operand)
            if isinstance(slope, int):
                slope = _signed(slope, operand.width)
            self._slopes[operand] = slope
        return self._slopes[operand]

    def _new_slope(self, operand: Value) -> Slope:
        source = self._sources.get(operand)
        if operand in self._carried:
            return self._carried_slope(operand)
        if source is None:
            return 0
        if source.target:
            raise NotEven("the address depends on what an iteration reads")
        slopes = [self._slope(each) for each in source.operands]
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
                if b != value and self._slope(b) == 0:
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
        """Whether a value never wraps around from iteration to iteration, as an unsigned or a signed number."""
        if self._slope(operand) == 0 or self.wrapping.fits(operand, operand.width - 1):
            return True  # from one half of the range, no step leads around it
        if is_signed and operand.width in C_WIDTHS:
            return True
        proved = self.wrapping.signed if is_signed else self.wrapping.unsigned
        if isinstance(operand, Value) and operand in self._carried:
            return self._carried[operand].following in proved
        assert isinstance(operand, Value)
        source = self._sources[operand]
        if source.opcode is Opcode.ZEXT or (source.opcode is Opcode.SEXT and is_signed):
            return True  # its own operand was looked at, for its slope
        if source.opcode is Opcode.EXTRACT:
            return not is_signed and self.wrapping.fits(source.operands[0], operand.width)
        if source.opcode is Opcode.CONCAT:
            top = source.operands[0]
            return self._is_straight(top, is_signed) if self._slope(top) != 0 else True
        if source.opcode in (Opcode.ADD, Opcode.SUB, Opcode.MUL, Opcode.SHL):
            if operand in proved and all(self._is_straight(each, is_signed) for each in source.operands):
                return True
            sums = (Opcode.ADD, Opcode.SUB) if is_signed else (Opcode.ADD,)
            return source.opcode in sums and all(self._has_room(each, is_signed) for each in source.operands)
        return False

    def _has_room(self, operand: Operand, is_signed: bool) -> bool:
        """Whether the sum of two such numbers fits in their width."""
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


def _signed(number: int, width: int) -> int:
    """`number` modulo 2**width, nearest to 0."""
    number %= 1 << width
    return number - (1 << width) if number >> (width - 1) else number
