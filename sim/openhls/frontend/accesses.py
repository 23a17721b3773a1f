# SPDX-License-Identifier: Apache-2.0
"""Loads, stores and copies: to a stream, to memory behind a pointer or to an array, wherever the address may lead."""

from __future__ import annotations

from openhls.frontend import boolean
from openhls.frontend.addresses import Address
from openhls.frontend.boolean import Node
from openhls.frontend.builder import Builder
from openhls.frontend.context import Context
from openhls.frontend.flow import Flow
from openhls.frontend.llvm.module import Instruction, Number
from openhls.frontend.llvm.module import Operand as LlvmOperand
from openhls.frontend.memory import Memory
from openhls.frontend.operands import Operands
from openhls.frontend.pointers import Pointers
from openhls.frontend.stages import Stages
from openhls.frontend.streams import Streams
from openhls.frontend.types import Int
from openhls.ir import Opcode, Operand


class Accesses:
    """Those of one process. Pointers that are chosen at run time become an access under each of the conditions."""

    def __init__(
        self,
        context: Context,
        builder: Builder,
        operands: Operands,
        flow: Flow,
        memory: Memory,
        streams: Streams,
        pointers: Pointers,
        stages: Stages,
    ) -> None:
        self._context = context
        self._builder = builder
        self._operands = operands
        self._flow = flow
        self._memory = memory
        self._streams = streams
        self._pointers = pointers
        self._stages = stages
        self._chosen: dict[tuple[str, int], Node] = {}  # conditions under which pointers are chosen

    def choose(self, it: Instruction, nodes: list[Node]) -> None:
        """The pointer `it` is the operand whose condition holds."""
        for which, node in enumerate(nodes):
            self._chosen[(it.name, which)] = node

    def load(self, it: Instruction, reach: Node) -> Operand:
        cases = [(node, self._load(it, address, node)) for node, address in self._ways(it.operands[0], reach)]
        return self._flow.choose(cases, reach, it.name)

    def store(self, it: Instruction, reach: Node) -> None:
        for node, address in self._ways(it.operands[1], reach):
            self._store(it, address, node)

    def copy(self, it: Instruction, reach: Node) -> None:
        """memcpy, memmove or memset of a constant number of bytes."""
        location = self._builder.location
        predicate = self._flow.build(reach)
        assert isinstance(it.operands[2], Number)
        size = it.operands[2].bits
        target = self._context.address(it.operands[0], location)
        if "memset" in str(it.flag):
            byte = self._operands.of(it.operands[1])
            value = self._builder.make(Opcode.CONCAT, 8 * size, *([byte] * size))
        else:
            source = self._context.address(it.operands[1], location)
            if source.base in self._context.memories:
                value = self._pointers.load(source, size, reach)
            else:
                value = self._memory.load(source, Int(8 * size), predicate, "", location)
                self._stages.check(source)
        if target.base in self._context.memories:
            self._pointers.store(target, value, size, reach)
        else:
            self._memory.store(target, value, size, predicate, location)

    def _ways(self, operand: LlvmOperand, reach: Node) -> list[tuple[Node, Address]]:
        """Where a pointer leads, and when."""
        found = []
        for way in self._context.ways_of(operand, self._builder.location):
            node = reach
            for choice in way.choices:
                node = self._flow.conditions.both(node, self._chosen[choice])
            if node != boolean.FALSE or reach == boolean.FALSE:
                found.append((node, way.address))
        return found

    def _load(self, it: Instruction, address: Address, reach: Node) -> Operand:
        if it.flag == "volatile":
            return self._streams.read(it, address, reach)
        if address.base in self._context.memories:
            assert isinstance(it.type, Int)
            value = self._pointers.load(address, it.type.size, reach, it.name)
            return self._builder.make(Opcode.EXTRACT, it.type.width, value)
        self._stages.check(address)
        return self._memory.load(address, it.type, self._flow.build(reach), it.name, self._builder.location)

    def _store(self, it: Instruction, address: Address, reach: Node) -> None:
        value, size = self._operands.of(it.operands[0]), it.types[0].size
        if it.flag == "volatile":
            self._streams.write(address, value, reach)
        elif address.base in self._context.memories:
            self._pointers.store(address, value, size, reach)
        else:
            self._memory.store(address, value, size, self._flow.build(reach), self._builder.location)
