# SPDX-License-Identifier: Apache-2.0
"""Stores of the last iterations are handed to the loads of an array directly.

A load that may meet a store of the iteration before waits until the memory has it, so `bins[word] += 1` would take two
cycles an iteration or more. Here the loop carries the stores of its last `reach` iterations, and a load takes the
youngest of them that has its index. The memory only needs to be right about older stores, which the loop promises.
"""

from __future__ import annotations

from dataclasses import replace
from itertools import count

from openhls.builder import Builder
from openhls.ir import FALSE, TRUE, Block, Carried, Const, Dependence, Loop, Opcode, Operand, Operation, Value

Stored = tuple[Operand, Operand, Operand]  # condition, index, element


def forward(loop: Loop, array: str, nearest: int, reach: int) -> Loop:
    """The innermost `loop` with the stores to `array` of its last `reach` iterations carried.

    A load meets a store of `nearest` iterations before it at the earliest.
    """
    (block,) = loop.body
    assert isinstance(block, Block)
    return Forwarding(loop, block, array).run(nearest, reach)


class Forwarding(Builder):
    """Writes the block again, with a choice behind each load."""

    def __init__(self, loop: Loop, block: Block, array: str) -> None:
        numbers = count(1)
        super().__init__(lambda _: f"{loop.label}.{array}.{next(numbers)}")
        self.loop, self.block, self.array = loop, block, array
        self.carried: list[Carried] = []

    def run(self, nearest: int, reach: int) -> Loop:
        kept = self.keep(reach)
        older = [stored for age in reversed(range(nearest, reach + 1)) for stored in kept[age - 1]]
        stored: list[Stored] = []  # in this iteration, so far
        for operation in self.block.operations:
            self.location = operation.location
            if operation.target == self.array and operation.opcode is Opcode.LOAD:
                self.load(operation, [*older, *stored])
                continue
            self.operations.append(operation)
            if operation.target == self.array and operation.opcode is Opcode.STORE:
                stored.append(stored_by(operation))
        promise = Dependence(self.array, True, True, "RAW", reach + 1, self.loop.location)
        return replace(
            self.loop,
            carried=(*self.loop.carried, *self.carried),
            body=(replace(self.block, operations=self.take()),),
            dependences=(*self.loop.dependences, promise),
        )

    def keep(self, reach: int) -> list[list[Stored]]:
        """The stores of earlier iterations in program order, those of the last iteration first."""
        stores = [op for op in self.block.operations if op.target == self.array and op.opcode is Opcode.STORE]
        following = [stored_by(store) for store in stores]
        kept: list[list[Stored]] = []
        for age in range(1, reach + 1):
            values: list[Stored] = []
            for number, parts in enumerate(following):
                names = (f"{self.loop.label}.{self.array}.{part}{number}.{age}" for part in ("was", "at", "element"))
                now = [Value(name, part.width) for name, part in zip(names, parts, strict=True)]
                self.carried += [Carried(v, Const(v.width, 0), p) for v, p in zip(now, parts, strict=True)]
                values.append((now[0], now[1], now[2]))
            kept.append(values)
            following = values
        return kept

    def load(self, load: Operation, stored: list[Stored]) -> None:
        """The load, and the choice between what the memory has and `stored`, oldest first."""
        assert load.result is not None
        hits = [(self.both(made, self.same(load.operands[0], index)), element) for made, index, element in stored]
        hits = [(hit, element) for hit, element in hits if hit != FALSE]
        if not hits:
            self.operations.append(load)
            return
        value = Value(f"{load.result.name}.in_memory", load.result.width)
        self.operations.append(replace(load, result=value))
        for hit, element in hits[:-1]:
            value = self.emit(Opcode.SELECT, value.width, hit, element, value)
        hit, element = hits[-1]
        self.operations.append(Operation(Opcode.SELECT, load.result, (hit, element, value), load.location))

    def same(self, a: Operand, b: Operand) -> Operand:
        """True if two indices, which are unsigned, are equal."""
        width = max(a.width, b.width)
        a, b = self.resized(a, width), self.resized(b, width)
        return TRUE if a == b else self.fold(Opcode.EQ, 1, a, b)


def stored_by(store: Operation) -> Stored:
    index, element = store.operands
    return store.predicate, index, element
