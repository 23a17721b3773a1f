# SPDX-License-Identifier: Apache-2.0
"""Loads, stores and copies: to a stream, to memory behind a pointer or to an array, wherever the address may lead."""

from __future__ import annotations

from dataclasses import dataclass

from openhls.frontend import boolean
from openhls.frontend.addresses import BURST_AT, Address
from openhls.frontend.boolean import Node
from openhls.frontend.draft import Draft
from openhls.frontend.flow import Flow
from openhls.frontend.llvm.module import Instruction, Number
from openhls.frontend.llvm.module import Operand as LlvmOperand
from openhls.frontend.memory import Memory
from openhls.frontend.pointers import Pointers
from openhls.frontend.stages import Stages
from openhls.frontend.streams import Streams
from openhls.frontend.types import Int
from openhls.ir import Opcode, Operand


@dataclass
class Accesses:
    """Those of one process. Pointers that are chosen at run time become an access under each of the conditions."""

    draft: Draft
    flow: Flow
    memory: Memory
    streams: Streams
    pointers: Pointers
    stages: Stages

    def __post_init__(self) -> None:
        self._chosen: dict[tuple[str, int], Node] = {}  # conditions under which pointers are chosen

    def choose(self, it: Instruction, nodes: list[Node]) -> None:
        """The pointer `it` is the operand whose condition holds."""
        for which, node in enumerate(nodes):
            self._chosen[(it.name, which)] = node

    def load(self, it: Instruction, reach: Node) -> Operand:
        cases = [
            (node, self._load(it, address, node)) for node, address in self._ways(it.operands[0], it.type.size, reach)
        ]
        return self.flow.choose(cases, reach, it.name)

    def store(self, it: Instruction, reach: Node) -> None:
        for node, address in self._ways(it.operands[1], it.types[0].size, reach):
            self._store(it, address, node)

    def copy(self, it: Instruction, reach: Node) -> None:
        """memcpy, memmove or memset of a constant number of bytes."""
        location = self.draft.builder.location
        predicate = self.flow.build(reach)
        assert isinstance(it.operands[2], Number)
        size = it.operands[2].bits
        target = self.draft.context.address(it.operands[0], location)
        if "memset" in str(it.flag):
            byte = self.draft.operand(it.operands[1])
            value = self.draft.builder.make(Opcode.CONCAT, 8 * size, *([byte] * size))
        else:
            source = self.draft.context.address(it.operands[1], location)
            if source.base in self.draft.context.memories:
                value = self.pointers.load(source, size, reach)
            else:
                value = self.memory.load(source, Int(8 * size), predicate, "", location)
                self.stages.check(source)
        if target.base in self.draft.context.memories:
            self.pointers.store(it, target, value, size, reach)
        else:
            self.memory.store(target, value, size, predicate, location)

    def _ways(self, operand: LlvmOperand, size: int, reach: Node) -> list[tuple[Node, Address]]:
        """Where a pointer leads, and when."""
        found = []
        for way in self.draft.context.accessed_ways(operand, size, self.draft.builder.location):
            node = reach
            for choice in way.choices:
                node = self.flow.conditions.both(node, self._chosen[choice])
            if node != boolean.FALSE or reach == boolean.FALSE:
                found.append((node, way.address))
        return found

    def _load(self, it: Instruction, address: Address, reach: Node) -> Operand:
        if it.flag == "volatile":
            return self.streams.read(it, address, reach)
        if address.base in self.draft.context.memories:
            assert isinstance(it.type, Int)
            if address.offset >= BURST_AT:
                return self.pointers.take(address, it.type.width, reach, it.name)
            value = self.pointers.load(address, it.type.size, reach, it.name)
            return self.draft.builder.make(Opcode.EXTRACT, it.type.width, value)
        self.stages.check(address)
        return self.memory.load(address, it.type, self.flow.build(reach), it.name, self.draft.builder.location)

    def _store(self, it: Instruction, address: Address, reach: Node) -> None:
        value, size = self.draft.operand(it.operands[0]), it.types[0].size
        if it.flag == "volatile":
            self.streams.write(address, value, reach)
        elif address.base in self.draft.context.memories and address.offset >= BURST_AT:
            self.pointers.give(address, value, reach)
        elif address.base in self.draft.context.memories:
            self.pointers.store(it, address, value, size, reach)
        else:
            self.memory.store(address, value, size, self.flow.build(reach), self.draft.builder.location)
