# SPDX-License-Identifier: Apache-2.0
"""Turns arrays into values: scalars that clang left in memory, and arrays that are partitioned into registers.

A load with an index that varies becomes a multiplexer, a store a select per element, so that such an array takes part
in the schedule like any other value. Numbers behind references come in and go out as values.
"""

from __future__ import annotations

from dataclasses import replace

from openhls.builder import Builder
from openhls.ir import (
    TRUE,
    Array,
    Block,
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
    operations_of,
)
from openhls.lowered import Lowered
from openhls.names import Names

State = dict[str, Operand]


def promote(lowered: Lowered) -> Lowered:
    """The process without the arrays `values`: what it is given comes in as arguments, what it leaves are outputs."""
    process, names = lowered.process, lowered.names
    builder = Builder(names.fresh)
    builder.location = process.location
    state: State = {slot: Const(array.width, 0) for array in lowered.values for slot in slots(array)}
    widths = {array.name: array.width for array in lowered.values}
    for given in lowered.given:
        state[f"{given.array}_0"] = builder.extended(given.value, widths[given.array], given.is_signed)
    entry = _block(lowered, builder, "entry")
    promotion = Promotion(names, list(lowered.values), state)
    body = (*entry, *promotion.regions(process.body))
    outputs = [
        (given.output, builder.extract(promotion.state[f"{given.array}_0"], 0, given.value.width))
        for given in lowered.given
        if given.output
    ]
    body = (*body, *_block(lowered, builder, "exit"))
    if lowered.result is not None:
        outputs.append(("result", promotion.value(lowered.result)))
    scalars = (*process.scalars, *(given.value for given in lowered.given))
    gone = {array.name for array in lowered.values}
    variables = {name: name for array in lowered.values for name in (array.name, *slots(array))}
    process = replace(
        process,
        scalars=scalars,
        arrays=tuple(array for array in process.arrays if array.name not in gone),
        body=body,
        outputs=tuple(outputs),
        variables={**(process.variables or {}), **variables, **{value.name: value.name for value in scalars}},
    )
    return replace(lowered, process=process, values=(), given=(), result=None)


def _block(lowered: Lowered, builder: Builder, label: str) -> list[Region]:
    """What the builder holds, if it is anything."""
    operations = builder.take()
    return [Block(lowered.names.fresh(label), operations, builder.location)] if operations else []


def slots(array: Array) -> list[str]:
    """The names of its elements in a state."""
    return [f"{array.name}_{index}" for index in range(array.length)]


class Promotion:
    """Rewrites regions; `state` starts as what the arrays hold before them and ends as what they hold after them."""

    def __init__(self, names: Names, arrays: list[Array], state: State) -> None:
        self._names = names
        self._target = ""  # of the access that is being rewritten, for names
        self._builder = Builder(lambda _: names.fresh(self._target))
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
        builder = self._builder
        for operation in block.operations:
            operands = tuple(self.value(operand) for operand in operation.operands)
            predicate = self.value(operation.predicate)
            if operation.target not in self._slots:
                builder.operations.append(replace(operation, operands=operands, predicate=predicate))
                continue
            builder.location, self._target = operation.location, operation.target
            slots = self._slots[operation.target]
            index = builder.extract(operands[0], 0, min(operands[0].width, max(1, (len(slots) - 1).bit_length())))
            if operation.opcode is Opcode.LOAD:
                assert operation.result is not None
                self._replaced[operation.result] = self._load(index, [self.state[slot] for slot in slots])
            else:
                self._store(predicate, index, operands[1], slots)
        return builder.take()

    def _load(self, index: Operand, elements: list[Operand]) -> Operand:
        """The element at `index`: a tree of selects, one level for each of its bits."""
        if isinstance(index, Const):
            return elements[index.bits % len(elements)]
        level = 0
        while len(elements) > 1:
            bit = self._builder.extract(index, level, 1)
            pairs = [elements[position : position + 2] for position in range(0, len(elements), 2)]
            elements = [self._builder.choice(bit, pair[1], pair[0]) if len(pair) == 2 else pair[0] for pair in pairs]
            level += 1
        return elements[0]

    def _store(self, predicate: Operand, index: Operand, value: Operand, slots: list[str]) -> None:
        for position, slot in enumerate(slots):
            here = predicate
            if isinstance(index, Const):
                if index.bits != position:
                    continue
            elif len(slots) > 1:
                equal = self._builder.emit(Opcode.EQ, 1, index, Const(index.width, position))
                here = equal if predicate == TRUE else self._builder.emit(Opcode.AND, 1, predicate, equal)
            self.state[slot] = self._builder.choice(here, value, self.state[slot])

    def _loop(self, loop: Loop) -> tuple[Loop, list[Region]]:
        changed = {operation.target for operation in operations_of(loop.body) if operation.opcode is Opcode.STORE}
        stored = sorted(slot for name in changed for slot in self._slots.get(name, []))
        enter = self.value(loop.enter)
        carried = [replace(each, initial=self.value(each.initial)) for each in loop.carried]
        before = {name: self.state[name] for name in stored}
        inside = {name: Value(self._names.fresh(name), before[name].width) for name in stored}
        self.state |= inside
        body = self.regions(loop.body)
        carried = [replace(each, following=self.value(each.following)) for each in carried]
        carried += [Carried(inside[name], before[name], self.state[name]) for name in stored]
        results = [replace(result, source=self.value(result.source)) for result in loop.results]
        self._builder.location = loop.location
        for name in stored:
            value = Value(self._names.fresh(name), before[name].width)
            results.append(Result(value, self.state[name]))
            self._target = name
            self.state[name] = self._builder.choice(enter, value, before[name])
        rewritten = replace(
            loop,
            enter=enter,
            carried=tuple(carried),
            body=body,
            again=self.value(loop.again),
            results=tuple(results),
            dependences=tuple(each for each in loop.dependences if each.array not in self._slots),
        )
        merged = self._builder.take()
        after: list[Region] = [Block(self._names.fresh("block"), merged, loop.location)] if merged else []
        return rewritten, after

    def _dataflow(self, region: Dataflow) -> Dataflow:
        calls = [
            replace(call, scalars=tuple((name, self.value(operand)) for name, operand in call.scalars))
            for call in region.calls
        ]
        return replace(region, enter=self.value(region.enter), calls=tuple(calls))
