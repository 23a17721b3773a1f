# SPDX-License-Identifier: Apache-2.0
"""Accesses through the pointers of the top (INTERFACE m_axi), element by element; `bursts.py` joins them."""

from __future__ import annotations

from dataclasses import dataclass, field

from openhls.errors import Unsupported
from openhls.frontend.addresses import Address
from openhls.frontend.boolean import Node
from openhls.frontend.draft import Draft
from openhls.frontend.flow import Flow
from openhls.frontend.llvm.module import Instruction
from openhls.frontend.whole_stores import Together
from openhls.ir import ADDRESS_BITS, Const, Opcode, Operand

_MANY = 64  # pieces of one access


@dataclass
class Pointers:
    """Those of one process."""

    draft: Draft
    flow: Flow
    taken: dict[tuple[Address, Node], Operand] = field(default_factory=dict)  # structs that the current block has read
    given: dict[int, Operand] = field(default_factory=dict)  # structs that it has stored parts of, by their Together

    def place(self, address: Address) -> Operand:
        """The byte address of an access to memory."""
        place: Operand = self.draft.values[address.base]
        for term, stride in address.terms:
            index = self.draft.operand(term)
            wide = index if index.width == ADDRESS_BITS else self.draft.builder.make(Opcode.SEXT, ADDRESS_BITS, index)
            scaled = self.draft.builder.make(Opcode.MUL, ADDRESS_BITS, wide, Const(ADDRESS_BITS, stride))
            place = self.draft.builder.make(Opcode.ADD, ADDRESS_BITS, place, scaled)
        offset = Const(ADDRESS_BITS, address.offset % (1 << ADDRESS_BITS))
        return self.draft.builder.make(Opcode.ADD, ADDRESS_BITS, place, offset)

    def load(self, address: Address, size: int, reach: Node, hint: str = "") -> Operand:
        """`size` bytes, piece by piece where other accesses need smaller elements."""
        whole = self.draft.context.granules[address.base].whole
        if whole:
            first = address.moved(-(address.offset % whole))
            if (first, reach) not in self.taken:
                self.taken[(first, reach)] = self._load(first, whole, reach, hint)
            low = 8 * (address.offset % whole)
            return self.draft.builder.make(Opcode.EXTRACT, 8 * size, self.taken[(first, reach)], low=low)
        piece = self._piece(address, size)
        parts = [self._load(address.moved(at), piece, reach, hint) for at in range(0, size, piece)]
        return self.draft.builder.make(Opcode.CONCAT, 8 * size, *reversed(parts), hint=hint)

    def _load(self, address: Address, size: int, reach: Node, hint: str) -> Operand:
        place = self.place(address)
        return self.draft.builder.access(
            Opcode.LOAD, self.draft.reserved[address.base], (place,), 8 * size, self.flow.build(reach), hint
        )

    def _piece(self, address: Address, size: int) -> int:
        piece = min(size, self.draft.context.granules[address.base].size)
        if size > _MANY * piece:
            raise Unsupported(
                self.draft.builder.location, "memory is copied as a whole", "write the loop, and pipeline it"
            )
        if piece < size:
            self.draft.notes.warn(
                self.draft.builder.location,
                f"{address.base} is accessed in pieces of {piece} bytes, one after the other",
            )
        return piece

    def store(self, it: Instruction, address: Address, value: Operand, size: int, reach: Node) -> None:
        """Stores `size` bytes: with the others of a struct, or piece by piece."""
        word = value if value.width == 8 * size else self.draft.builder.make(Opcode.ZEXT, 8 * size, value)
        if self.draft.context.granules[address.base].whole:
            self._store_with_others(self.draft.context.together[id(it)], it, address, word, reach)
            return
        piece = self._piece(address, size)
        for at in range(0, size, piece):
            part = self.draft.builder.make(Opcode.EXTRACT, 8 * piece, word, low=8 * at)
            self._store(address.moved(at), part, reach)

    def _store_with_others(
        self, group: Together, it: Instruction, address: Address, part: Operand, reach: Node
    ) -> None:
        """Keeps a part of a struct until all of it is there. Padding becomes 0."""
        old = self.given.pop(id(group), Const(8 * group.size, 0))
        word = self.draft.merged(old, part, 8 * (address.offset - group.first.offset))
        if it is not group.stores[-1]:
            self.given[id(group)] = word
            return
        self._store(group.first, word, reach)
        self.taken = {key: value for key, value in self.taken.items() if key[0].base != address.base}

    def _store(self, address: Address, word: Operand, reach: Node) -> None:
        place, predicate = self.place(address), self.flow.build(reach)
        self.draft.builder.access(Opcode.STORE, self.draft.reserved[address.base], (place, word), 0, predicate)
