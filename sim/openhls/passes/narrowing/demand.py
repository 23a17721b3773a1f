# SPDX-License-Identifier: Apache-2.0
"""Demanded bits: which bits of every value of a process have an effect."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass, field

from openhls.ir import (
    PREDICATED,
    Block,
    Const,
    Dataflow,
    Loop,
    Opcode,
    Operand,
    Operation,
    Process,
    Region,
    Value,
)

LOW_BITS = frozenset({Opcode.ADD, Opcode.SUB, Opcode.MUL})
BITWISE = frozenset({Opcode.AND, Opcode.OR, Opcode.XOR})


@dataclass
class Wanted:
    """Masks of what is looked at outside, by name: outputs, words that are written, elements of arrays, and scalars of
    called processes. What is not in there is not looked at."""

    outputs: dict[str, int] = field(default_factory=dict)
    words: dict[str, int] = field(default_factory=dict)
    elements: dict[str, int] = field(default_factory=dict)
    scalars: dict[tuple[str, str], int] = field(default_factory=dict)


class Demand:
    """`masks` of values; `words` that are read, `elements` that are loaded and `results` (by process and output) of
    calls, in the same way.

    A store to an array without loads, and an operation whose result is not used, demand nothing.
    """

    def __init__(self, process: Process, wanted: Wanted) -> None:
        self.wanted = wanted
        self.masks: defaultdict[str, int] = defaultdict(int)
        self.words: defaultdict[str, int] = defaultdict(int)
        self.elements: defaultdict[str, int] = defaultdict(int, wanted.elements)
        self.results: defaultdict[tuple[str, str], int] = defaultdict(int)
        for name, operand in process.outputs:
            self.want(operand, wanted.outputs.get(name, 0))
        before = None
        while before != (before := dict(self.elements)):  # a store may come before the load that asks for it
            self.regions(process.body)

    def want(self, operand: Operand, mask: int) -> None:
        if isinstance(operand, Value):
            self.masks[operand.name] |= mask

    def all_of(self, operand: Operand) -> None:
        self.want(operand, (1 << operand.width) - 1)

    def regions(self, regions: tuple[Region, ...]) -> None:
        for region in reversed(regions):
            match region:
                case Block():
                    for operation in reversed(region.operations):
                        self.operation(operation)
                case Loop():
                    self.loop(region)
                case Dataflow():
                    self.dataflow(region)

    def dataflow(self, region: Dataflow) -> None:
        self.all_of(region.enter)
        for call in region.calls:
            for name, value in call.results:
                self.results[call.process, name] |= self.masks[value.name]
            for name, operand in call.scalars:
                self.want(operand, self.wanted.scalars.get((call.process, name), 0))

    def loop(self, loop: Loop) -> None:
        self.all_of(loop.enter)
        self.all_of(loop.again)
        for result in loop.results:
            self.want(result.source, self.masks[result.value.name])
        before = None
        while before != (before := [self.masks[item.value.name] for item in loop.carried]):
            for item in loop.carried:
                self.want(item.following, self.masks[item.value.name])
            self.regions(loop.body)
        for item in loop.carried:
            self.want(item.initial, self.masks[item.value.name])

    # ---- operations ----

    def operation(self, operation: Operation) -> None:
        if operation.opcode in PREDICATED:
            self.access(operation)
            return
        assert operation.result is not None
        mask = self.masks[operation.result.name]
        if mask:
            self.operands(operation, mask)

    def access(self, operation: Operation) -> None:
        result, target, operands = operation.result, operation.target, operation.operands
        mask = self.masks[result.name] if result is not None else 0
        match operation.opcode:
            case Opcode.READ:
                self.words[target] |= mask
            case Opcode.WRITE:
                self.want(operands[0], self.wanted.words.get(target, 0))
            case Opcode.LOAD:
                if not mask:
                    return
                self.elements[target] |= mask
                self.all_of(operands[0])  # a simulation looks at bits that no index inside the array has
            case Opcode.STORE:
                if not self.elements[target]:
                    return
                self.want(operands[1], self.elements[target])
                self.all_of(operands[0])
        self.all_of(operation.predicate)

    def operands(self, operation: Operation, mask: int) -> None:
        operands, opcode = operation.operands, operation.opcode
        if opcode in LOW_BITS:
            for operand in operands:
                self.want(operand, (1 << mask.bit_length()) - 1)
        elif opcode in BITWISE:
            for operand, other in (operands, operands[::-1]):
                self.want(operand, mask & relevant(opcode, other))
        elif opcode is Opcode.SELECT:
            self.all_of(operands[0])
            self.want(operands[1], mask)
            self.want(operands[2], mask)
        elif opcode is Opcode.ZEXT:
            self.want(operands[0], mask & (1 << operands[0].width) - 1)
        elif opcode is Opcode.SEXT:
            width = operands[0].width
            self.want(operands[0], mask & (1 << width) - 1 | (1 << (width - 1) if mask >> width else 0))
        elif opcode is Opcode.EXTRACT:
            self.want(operands[0], mask << operation.low)
        elif opcode is Opcode.CONCAT:
            for operand in reversed(operands):
                self.want(operand, mask & (1 << operand.width) - 1)
                mask >>= operand.width
        elif opcode in (Opcode.SHL, Opcode.LSHR, Opcode.ASHR):
            self.shifted(operation, mask)
        else:
            for operand in operands:
                self.all_of(operand)

    def shifted(self, operation: Operation, mask: int) -> None:
        a, b = operation.operands
        self.all_of(b)
        if operation.opcode is Opcode.SHL:
            self.want(a, (1 << mask.bit_length()) - 1)
        else:
            lowest = (mask & -mask).bit_length() - 1
            self.want(a, (1 << a.width) - (1 << lowest))


def relevant(opcode: Opcode, other: Operand) -> int:
    """The bits of an operand that a constant on the other side lets through."""
    full = (1 << other.width) - 1
    if not isinstance(other, Const) or opcode is Opcode.XOR:
        return full
    return other.bits if opcode is Opcode.AND else full & ~other.bits


def index_bits(length: int) -> int:
    """Bits of an index."""
    return max(1, (length - 1).bit_length())
