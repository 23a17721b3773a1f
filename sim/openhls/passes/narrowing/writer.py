# SPDX-License-Identifier: Apache-2.0
"""A process written again with every value as narrow as what is known of it and what is looked at allow."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field, replace

from openhls.ir import (
    FALSE,
    PREDICATED,
    Array,
    Block,
    Call,
    Carried,
    Const,
    Dataflow,
    Location,
    Loop,
    Opcode,
    Operand,
    Operation,
    Process,
    Region,
    Result,
    Value,
    fifos_of,
)
from openhls.passes.narrowing.demand import Demand, index_bits
from openhls.passes.narrowing.emitter import Emitter
from openhls.passes.narrowing.facts import Fact, exactly
from openhls.passes.narrowing.indices import counters, least_widths
from openhls.passes.narrowing.narrower import Narrower
from openhls.passes.narrowing.ranges import Ranges
from openhls.passes.narrowing.shape import Shape, low_part, whole


@dataclass
class Shapes:
    """How values travel between processes: scalars and outputs of each, words of streams and FIFOs, elements of
    arrays. Names are pairs of a process and a name in it; what is not there travels as it is."""

    scalars: dict[tuple[str, str], Shape] = field(default_factory=dict)
    outputs: dict[tuple[str, str], Shape] = field(default_factory=dict)
    words: dict[tuple[str, str], Shape] = field(default_factory=dict)
    elements: dict[tuple[str, str], Shape] = field(default_factory=dict)
    unused: set[tuple[str, str]] = field(default_factory=set)  # arrays without loads


class Writer:
    """Writes `process` with values of the widths that `ranges` and `demand` leave."""

    def __init__(self, process: Process, ranges: Ranges, demand: Demand, shapes: Shapes) -> None:
        self.process, self.facts, self.masks, self.shapes = process, ranges.facts, demand.masks, shapes
        self.floors, self.counters = least_widths(process), counters(process)
        names = [stream.name for stream in process.streams] + [array.name for array in process.arrays]
        self.emitter = Emitter([*names, *(fifo.name for fifo in fifos_of(process.body))])
        self.operands: dict[str, Operand] = {}
        self.lengths = {array.name: array.length for array in process.arrays}

    def run(self) -> Process:
        process, emitter = self.process, self.emitter
        scalars = [
            self.received(value, self.shapes.scalars.get((process.name, value.name), whole(value.width)))
            for value in process.scalars
        ]
        body, outputs = self.regions(process.body), []
        for name, operand in process.outputs:
            shape = self.shapes.outputs.get((process.name, name), whole(operand.width))
            if shape.kept:
                outputs.append((name, shape.pack(emitter, self.mapped(operand))))
        self.flush(body, "end", process.location)
        streams = [replace(stream, width=self.word(stream.name, stream.width).kept) for stream in process.streams]
        return replace(
            process,
            scalars=tuple(scalar for scalar in scalars if scalar is not None),
            streams=tuple(streams),
            arrays=tuple(self.array(array) for array in process.arrays if self.is_used(array.name)),
            body=tuple(body),
            outputs=tuple(outputs),
        )

    # ---- what travels ----

    def mapped(self, operand: Operand) -> Operand:
        return operand if isinstance(operand, Const) else self.operands[operand.name]

    def word(self, name: str, width: int) -> Shape:
        return self.shapes.words.get((self.process.name, name)) or whole(width)

    def element(self, name: str, width: int) -> Shape:
        return self.shapes.elements.get((self.process.name, name)) or whole(width)

    def is_used(self, array: str) -> bool:
        return (self.process.name, array) not in self.shapes.unused

    def array(self, array: Array) -> Array:
        shape = self.element(array.name, array.width)
        initial = None if array.initial is None else tuple(shape.packed(bits) for bits in array.initial)
        return replace(array, width=shape.kept, initial=initial)

    def low_part(self, name: str) -> Shape:
        return low_part(self.facts[name], self.masks[name], self.floor(name))

    def floor(self, name: str) -> int:
        """Bits to keep. A counter is worth extensions between its sums, which hide them, if it loses a quarter."""
        least, fact = self.floors.get(name, 0), self.facts[name]
        if name in self.counters:
            kept = low_part(fact, self.masks[name], least).kept
            return fact.width if kept * 4 > fact.width * 3 else least
        return least

    def received(self, value: Value, shape: Shape) -> Value | None:
        """The value that arrives under the name of `value`, which stands for what it was; None if nothing travels."""
        self.emitter.name = value.name
        packed = Value(self.emitter.fresh(value.name), shape.kept) if shape.kept else None
        self.operands[value.name] = shape.unpack(self.emitter, packed or FALSE)
        return packed

    # ---- regions ----

    def regions(self, regions: tuple[Region, ...]) -> list[Region]:
        """Written again; operations that are still to be put into a block are left in the emitter."""
        found: list[Region] = []
        for region in regions:
            match region:
                case Block():
                    for operation in region.operations:
                        self.operation(operation)
                    if operations := self.emitter.take():
                        found.append(replace(region, operations=operations))
                case Loop():
                    found.append(self.loop(region, found))
                case Dataflow():
                    found.append(self.dataflow(region, found))
        return found

    def flush(self, regions: list[Region], label: str, location: Location) -> None:
        """Put the operations into the block at the end of `regions`, or into a new one."""
        operations = self.emitter.take()
        if operations and regions and isinstance(regions[-1], Block):
            regions[-1] = replace(regions[-1], operations=(*regions[-1].operations, *operations))
        elif operations:
            regions.append(Block(label, operations, location))

    def loop(self, loop: Loop, before: list[Region]) -> Loop:
        emitter = self.emitter
        enter = self.mapped(loop.enter)
        shapes = [self.low_part(item.value.name) for item in loop.carried]
        initial = [
            shape.pack(emitter, self.mapped(item.initial)) if shape.kept else None
            for item, shape in zip(loop.carried, shapes, strict=True)
        ]
        self.flush(before, f"{loop.label}_before", loop.location)
        with emitter.scope():
            values = [self.received(item.value, shape) for item, shape in zip(loop.carried, shapes, strict=True)]
            body = self.regions(loop.body)
            following = [
                shape.pack(emitter, self.mapped(item.following)) if shape.kept else None
                for item, shape in zip(loop.carried, shapes, strict=True)
            ]
            ends = [self.low_part(result.value.name) for result in loop.results]
            sources = [
                shape.pack(emitter, self.mapped(result.source)) if shape.kept else None
                for result, shape in zip(loop.results, ends, strict=True)
            ]
            again = self.mapped(loop.again)
            self.flush(body, f"{loop.label}_end", loop.location)
        carried = [
            Carried(value, first, then)
            for value, first, then in zip(values, initial, following, strict=True)
            if value is not None and first is not None and then is not None
        ]
        results = [self.received(result.value, shape) for result, shape in zip(loop.results, ends, strict=True)]
        return replace(
            loop,
            carried=tuple(carried),
            body=tuple(body) or (Block(f"{loop.label}_body", (), loop.location),),
            again=again,
            results=tuple(
                Result(value, source)
                for value, source in zip(results, sources, strict=True)
                if value is not None and source is not None
            ),
            enter=enter,
        )

    def dataflow(self, region: Dataflow, before: list[Region]) -> Dataflow:
        enter = self.mapped(region.enter)
        scalars = [tuple(self.arguments(call)) for call in region.calls]
        self.flush(before, f"{region.label}_before", region.location)
        calls = []
        for call, given in zip(region.calls, scalars, strict=True):
            arrays = tuple(pair for pair in call.arrays if self.is_used(pair[1]))
            results = []
            for name, value in call.results:
                shape = self.shapes.outputs.get((call.process, name), whole(value.width))
                packed = self.received(value, shape)
                if packed is not None:
                    results.append((name, packed))
            calls.append(replace(call, scalars=given, arrays=arrays, results=tuple(results)))
        fifos = tuple(replace(fifo, width=self.word(fifo.name, fifo.width).kept) for fifo in region.fifos)
        return replace(region, fifos=fifos, calls=tuple(calls), enter=enter)

    def arguments(self, call: Call) -> Iterator[tuple[str, Operand]]:
        for name, operand in call.scalars:
            shape = self.shapes.scalars.get((call.process, name), whole(operand.width))
            if shape.kept:
                yield name, shape.pack(self.emitter, self.mapped(operand))

    # ---- operations ----

    def operation(self, operation: Operation) -> None:
        self.emitter.at(operation)
        if operation.opcode in PREDICATED:
            self.access(operation)
            return
        result = operation.result
        assert result is not None
        if not self.masks[result.name]:
            self.operands[result.name] = Const(result.width, 0)
            return
        self.operands[result.name] = Narrower(
            self.emitter,
            operation,
            [self.mapped(operand) for operand in operation.operands],
            [self.fact(operand) for operand in operation.operands],
            self.facts[result.name],
            self.masks[result.name],
            self.floor(result.name),
        ).run()

    def fact(self, operand: Operand) -> Fact:
        return exactly(operand.width, operand.bits) if isinstance(operand, Const) else self.facts[operand.name]

    def access(self, operation: Operation) -> None:
        """A read, a write, a load or a store, if it is ever to happen and a load or store matters."""
        predicate, result, target = self.mapped(operation.predicate), operation.result, operation.target
        operands = [self.mapped(operand) for operand in operation.operands]
        shape = whole(1)
        match operation.opcode:
            case Opcode.LOAD | Opcode.STORE:
                bits = max(index_bits(self.lengths[target]), self.fact(operation.operands[0]).bits)
                operands[0] = self.emitter.low_bits(operands[0], min(operands[0].width, bits))
                shape = self.element(target, (result or operands[1]).width)
            case Opcode.READ | Opcode.WRITE:
                shape = self.word(target, (result or operands[0]).width)
        useless = (
            not self.low_part(result.name).kept
            if operation.opcode is Opcode.LOAD and result is not None
            else operation.opcode is Opcode.STORE and not self.is_used(target)
        )
        if predicate == FALSE or useless:
            if result is not None:
                self.operands[result.name] = Const(result.width, self.facts[result.name].ones)
            return
        if result is None:
            operands[-1] = shape.pack(self.emitter, operands[-1])
        value = None if result is None else Value(self.emitter.fresh(result.name), shape.kept)
        self.emitter.append(replace(operation, result=value, operands=tuple(operands), predicate=predicate))
        if result is not None and value is not None:
            self.operands[result.name] = shape.unpack(self.emitter, value)
