# SPDX-License-Identifier: Apache-2.0
"""Accesses through the pointers of the top (INTERFACE m_axi), element by element; `bursts.py` joins them."""

from __future__ import annotations

from openhls.errors import Unsupported
from openhls.frontend.addresses import Address
from openhls.frontend.boolean import Node
from openhls.frontend.builder import Builder
from openhls.frontend.flow import Flow
from openhls.frontend.operands import Operands
from openhls.ir import ADDRESS_BITS, Const, Opcode, Operand


class Pointers:
    """`names` are those of the pointers in the process, by parameter."""

    def __init__(self, names: dict[str, str], builder: Builder, operands: Operands, flow: Flow) -> None:
        self._names = names
        self._builder = builder
        self._operands = operands
        self._flow = flow

    def place(self, address: Address, size: int) -> Operand:
        """The byte address of an access to memory, of elements of `size` bytes."""
        # A stride of 1 is p[byte / size] where clang knows that nothing is cut off: whole elements, too.
        steps = [address.offset, *(stride for _, stride in address.terms if stride != 1)]
        if any(step % size for step in steps):
            raise Unsupported(
                self._builder.location,
                f"elements of {size} bytes that do not lie one after the other in memory",
                "pad the struct to 1, 2, 4 ... 128 bytes, and access it as a whole",
            )
        place: Operand = self._operands.values[address.base]
        for term, stride in address.terms:
            index = self._operands.of(term)
            wide = index if index.width == ADDRESS_BITS else self._builder.make(Opcode.SEXT, ADDRESS_BITS, index)
            scaled = self._builder.make(Opcode.MUL, ADDRESS_BITS, wide, Const(ADDRESS_BITS, stride))
            place = self._builder.make(Opcode.ADD, ADDRESS_BITS, place, scaled)
        offset = Const(ADDRESS_BITS, address.offset % (1 << ADDRESS_BITS))
        return self._builder.make(Opcode.ADD, ADDRESS_BITS, place, offset)

    def load(self, address: Address, size: int, reach: Node, hint: str = "") -> Operand:
        place = self.place(address, size)
        return self._builder.access(
            Opcode.LOAD, self._names[address.base], (place,), 8 * size, self._flow.build(reach), hint
        )

    def store(self, address: Address, value: Operand, size: int, reach: Node) -> None:
        word = value if value.width == 8 * size else self._builder.make(Opcode.ZEXT, 8 * size, value)
        place, predicate = self.place(address, size), self._flow.build(reach)
        self._builder.access(Opcode.STORE, self._names[address.base], (place, word), 0, predicate)
