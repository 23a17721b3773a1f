# SPDX-License-Identifier: Apache-2.0
"""Turns arrays into values: scalars that clang left in memory, and arrays that are partitioned into registers.

A load with an index that varies becomes a multiplexer, a store a select per element, so that such an array takes part
in the schedule like any other value.
"""

from __future__ import annotations

from dataclasses import replace

from openhls.frontend.names import Names
from openhls.ir import (
    TRUE,
    Array,
    Block,
    Call,
    Carried,
    Const,
    Dataflow,
    Loop,
    Opcode,
    Operand,
    Operation,
    Region,
    Result,
    Value,
    blocks_of,
)

State = dict[str, Operand]
MOST_ELEMENTS = 64  # of an array that becomes values


def slots(array: Array) -> list[str]:
    """The names of its elements in a state."""
    return [f"{array.name}_{index}" for index in range(array.length)]


class Promotion:
    """Rewrites regions; `state` starts as what the arrays hold before them and ends as what they hold after them."""

    def __init__(self, names: Names, arrays: list[Array], state: State) -> None:
        self._names = names
        self._slots = {array.name: slots(array) for array in arrays}
        self._replaced: dict[Value, Operand] = {}
        self.state = state

    def value(self, operand: Operand) -> Operand:
        """An operand after the rewriting."""
        while isinstance(operand, Value) and operand in self._replaced:
            operand = self._replaced[operand]
        return operand

    def regions(self, regions: tuple[Region, ...]) -> tuple[Region, ...]:
        """The regions without accesses to the arrays."""
        result: list[Region] = []
        for region in regions:
            if isinstance(region, Block):
                result.append(replace(region, operations=self._operations(region)))
            elif isinstance(region, Loop):
                loop, after = self._loop(region)
                result += [loop, *after]
            else:
                result.append(self._dataflow(region))
        return tuple(result)

    def _operations(self, block: Block) -> tuple[Operation, ...]:
        kept: list[Operation] = []
        for operation in block.operations:
            operands = tuple(self.value(operand) for operand in operation.operands)
            predicate = self.value(operation.predicate)
            if operation.target in self._slots:
                operands = (self._short(operands[0], operation, kept), *operands[1:])
            if operation.target not in self._slots:
                kept.append(replace(operation, operands=operands, predicate=predicate))
            elif operation.opcode is Opcode.LOAD:
                assert operation.result is not None
                elements = [self.state[slot] for slot in self._slots[operation.target]]
                self._replaced[operation.result] = self._load(operands[0], elements, operation, kept)
            else:
                self._store(predicate, operands, operation, kept)
        return tuple(kept)

    def _short(self, index: Operand, origin: Operation, kept: list[Operation]) -> Operand:
        """The index in just the bits that number the elements."""
        width = max(1, (len(self._slots[origin.target]) - 1).bit_length())
        if index.width <= width:
            return index
        if isinstance(index, Const):
            return Const(width, index.bits & ((1 << width) - 1))
        return self._emit(Opcode.EXTRACT, width, (index,), origin, kept)

    def _load(self, index: Operand, elements: list[Operand], origin: Operation, kept: list[Operation]) -> Operand:
        """The element at `index`: a tree of selects, one level for each of its bits."""
        if isinstance(index, Const):
            return elements[index.bits % len(elements)]
        level = 0
        while len(elements) > 1:
            bit = self._emit(Opcode.EXTRACT, 1, (index,), origin, kept, level) if index.width > 1 else index
            pairs = [elements[position : position + 2] for position in range(0, len(elements), 2)]
            elements = [
                self._select(bit, pair[1], pair[0], origin, kept) if len(pair) == 2 else pair[0] for pair in pairs
            ]
            level += 1
        return elements[0]

    def _store(
        self, predicate: Operand, operands: tuple[Operand, ...], origin: Operation, kept: list[Operation]
    ) -> None:
        index, value = operands
        for position, slot in enumerate(self._slots[origin.target]):
            if isinstance(index, Const):
                if index.bits != position:
                    continue
                here = predicate
            elif len(self._slots[origin.target]) == 1:
                here = predicate
            else:
                here = self._emit(Opcode.EQ, 1, (index, Const(index.width, position)), origin, kept)
                if predicate != TRUE:
                    here = self._emit(Opcode.AND, 1, (predicate, here), origin, kept)
            self.state[slot] = self._select(here, value, self.state[slot], origin, kept)

    def _emit(
        self,
        opcode: Opcode,
        width: int,
        operands: tuple[Operand, ...],
        origin: Operation,
        kept: list[Operation],
        low: int = 0,
    ) -> Value:
        result = Value(self._names.fresh(origin.target), width)
        kept.append(Operation(opcode, result, operands, origin.location, low=low))
        return result

    def _select(self, condition: Operand, a: Operand, b: Operand, origin: Operation, kept: list[Operation]) -> Operand:
        if isinstance(condition, Const):
            return a if condition.bits else b
        return a if a == b else self._emit(Opcode.SELECT, a.width, (condition, a, b), origin, kept)

    def _loop(self, loop: Loop) -> tuple[Loop, list[Region]]:
        stored = sorted(
            {
                name
                for block in blocks_of(loop.body)
                for operation in block.operations
                for name in (self._slots.get(operation.target, []) if operation.opcode is Opcode.STORE else [])
            }
        )
        enter = self.value(loop.enter)
        carried = [replace(each, initial=self.value(each.initial)) for each in loop.carried]
        before = {name: self.state[name] for name in stored}
        inside = {name: Value(self._names.fresh(name), before[name].width) for name in stored}
        self.state |= inside
        body = self.regions(loop.body)
        carried = [replace(each, following=self.value(each.following)) for each in carried]
        carried += [Carried(inside[name], before[name], self.state[name]) for name in stored]
        results = [replace(result, source=self.value(result.source)) for result in loop.results]
        merged: list[Operation] = []
        for name in stored:
            value = Value(self._names.fresh(name), before[name].width)
            results.append(Result(value, self.state[name]))
            origin = Operation(Opcode.STORE, None, (), loop.location, target=name)
            self.state[name] = self._select(enter, value, before[name], origin, merged)
        rewritten = replace(
            loop,
            enter=enter,
            carried=tuple(carried),
            body=body,
            again=self.value(loop.again),
            results=tuple(results),
            dependences=tuple(each for each in loop.dependences if each.array not in self._slots),
        )
        after: list[Region] = [Block(self._names.fresh("block"), tuple(merged), loop.location)] if merged else []
        return rewritten, after

    def _dataflow(self, region: Dataflow) -> Dataflow:
        calls: list[Call] = []
        for call in region.calls:
            calls.append(replace(call, scalars=tuple((name, self.value(operand)) for name, operand in call.scalars)))
        return replace(region, enter=self.value(region.enter), calls=tuple(calls))
