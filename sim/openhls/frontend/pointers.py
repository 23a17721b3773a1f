# SPDX-License-Identifier: Apache-2.0
"""Accesses through the pointers of the top (INTERFACE m_axi), element by element; `bursts.py` joins them."""

from __future__ import annotations

from dataclasses import dataclass

from openhls.errors import Unsupported
from openhls.frontend.addresses import Address
from openhls.frontend.boolean import Node
from openhls.frontend.draft import Draft
from openhls.frontend.flow import Flow
from openhls.ir import ADDRESS_BITS, Const, Opcode, Operand


@dataclass
class Pointers:
    """Those of one process."""

    draft: Draft
    flow: Flow

    def place(self, address: Address, size: int) -> Operand:
        """The byte address of an access to memory, of elements of `size` bytes."""
        # A stride of 1 is p[byte / size] where clang knows that nothing is cut off: whole elements, too.
        steps = [address.offset, *(stride for _, stride in address.terms if stride != 1)]
        if any(step % size for step in steps):
            raise Unsupported(
                self.draft.builder.location,
                f"elements of {size} bytes that do not lie one after the other in memory",
                "pad the struct to 1, 2, 4 ... 128 bytes, and access it as a whole",
            )
        place: Operand = self.draft.values[address.base]
        for term, stride in address.terms:
            index = self.draft.operand(term)
            wide = index if index.width == ADDRESS_BITS else self.draft.builder.make(Opcode.SEXT, ADDRESS_BITS, index)
            scaled = self.draft.builder.make(Opcode.MUL, ADDRESS_BITS, wide, Const(ADDRESS_BITS, stride))
            place = self.draft.builder.make(Opcode.ADD, ADDRESS_BITS, place, scaled)
        offset = Const(ADDRESS_BITS, address.offset % (1 << ADDRESS_BITS))
        return self.draft.builder.make(Opcode.ADD, ADDRESS_BITS, place, offset)

    def load(self, address: Address, size: int, reach: Node, hint: str = "") -> Operand:
        place = self.place(address, size)
        return self.draft.builder.access(
            Opcode.LOAD, self.draft.reserved[address.base], (place,), 8 * size, self.flow.build(reach), hint
        )

    def store(self, address: Address, value: Operand, size: int, reach: Node) -> None:
        word = value if value.width == 8 * size else self.draft.builder.make(Opcode.ZEXT, 8 * size, value)
        place, predicate = self.place(address, size), self.flow.build(reach)
        self.draft.builder.access(Opcode.STORE, self.draft.reserved[address.base], (place, word), 0, predicate)
