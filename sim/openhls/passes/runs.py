# SPDX-License-Identifier: Apache-2.0
"""Where a loop touches memory in even steps, and how often it turns: computed before its first iteration.

The operations that an address depends on are written out twice in front of the loop, for the first and for the second
iteration; their difference is the stride. That is right for what is linear in the counters of the loop, modulo the 64
bits of an address, so only such operations are accepted. A narrower number must not wrap around before it is extended:
its type or clang says so. Signed numbers of 32 bits or more are taken not to, as C++ says of int. A loop that ends has
fewer than 2**32 iterations.
"""

from __future__ import annotations

from openhls.builder import Builder
from openhls.ir import (
    FALSE,
    REQUEST_WIDTH,
    TRUE,
    Block,
    Const,
    Loop,
    Opcode,
    Operand,
    Value,
)
from openhls.names import Names
from openhls.passes.slopes import VARIES, NotEven, Slopes
from openhls.wrapping import Wrapping

COUNT_BITS = 32


class Runs(Builder):
    """Writes operations that belong in front of `loop`, whose body is the block `body`."""

    def __init__(self, names: Names, loop: Loop, body: Block, wrapping: Wrapping) -> None:
        super().__init__(lambda _: names.fresh("run"))
        self.loop, self.location = loop, loop.location
        self._sources = {each.result: each for each in body.operations if each.result is not None}
        self._carried = {each.value: each for each in loop.carried}
        self._copies: list[dict[Value, Operand]] = [{}, {}]
        self._slopes = Slopes(loop, body, wrapping)

    # ---- what the caller asks for ----

    def request(self, address: Operand, size: int, count: Operand) -> Operand:
        """The word that asks for `count` elements of `size` bytes, from the address in the first iteration on."""
        self._slopes.of(address)
        first, second = self._at(address, 0), self._at(address, 1)
        difference = self.emit(Opcode.SUB, 64, second, first)
        shift = size.bit_length() - 1
        stride = self.emit(Opcode.EXTRACT, 32, difference, low=shift)
        return self.emit(Opcode.CONCAT, REQUEST_WIDTH, count, stride, first)

    def invariant(self, operand: Operand) -> Operand:
        """An operand that is the same in every iteration, in front of the loop."""
        try:
            varies = self._slopes.of(operand) != 0
        except NotEven:
            varies = True
        if varies:
            raise NotEven("it depends on a condition that changes from iteration to iteration")
        return self._at(operand, 0)

    def moves(self, address: Operand) -> bool:
        """True if it surely is another one in every iteration."""
        return self._slopes.of(address) not in (0, VARIES)

    def count(self) -> Operand:
        """The iterations of an entry."""
        trips = self.loop.trip_count
        if trips is not None and trips.exact and trips.least == trips.most:
            return Const(COUNT_BITS, trips.most)
        if self.loop.again == FALSE:
            return Const(COUNT_BITS, 1)
        opcode, a, b = self._exit_test()
        slopes = self._slopes.of(a), self._slopes.of(b)
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
        low, high = (self.emit(extend, width, each) for each in (start, end))
        if slope < 0:
            low, high = high, low
        distance = self.emit(Opcode.SUB, width, high, low)
        if opcode is Opcode.NE:  # equal at the end, so that it divides evenly
            around = self.emit(Opcode.EXTRACT, start.width, distance)
            steps = self.emit(Opcode.LSHR, start.width, around, Const(start.width, step.bit_length() - 1))
            return self._plus_one(self.resized(steps, COUNT_BITS), TRUE)
        rounding = step - 1 + (1 if opcode in (Opcode.SLE, Opcode.ULE) else 0)
        up = self.emit(Opcode.ADD, width, distance, Const(width, rounding))
        holds = self.emit(Opcode.SLT, 1, Const(width, 0), up)
        times = self.emit(Opcode.LSHR, width, up, Const(width, step.bit_length() - 1))
        return self._plus_one(self.resized(times, COUNT_BITS), holds)

    def _plus_one(self, times: Operand, holds: Operand) -> Operand:
        more = self.emit(Opcode.ADD, COUNT_BITS, times, Const(COUNT_BITS, 1))
        return self.choice(holds, more, Const(COUNT_BITS, 1))

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
            result = self.emit(source.opcode, operand.width, *operands, low=source.low)
        else:
            result = operand
        copies[operand] = result
        return result
