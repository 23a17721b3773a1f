# SPDX-License-Identifier: Apache-2.0
"""Accesses through the pointers of the top (INTERFACE m_axi), element by element; `bursts.py` joins them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from openhls.errors import Unsupported
from openhls.frontend.addresses import BURST_STREAMS, Address
from openhls.frontend.boolean import Node
from openhls.frontend.draft import Draft
from openhls.frontend.flow import Flow
from openhls.frontend.llvm.module import Instruction
from openhls.frontend.whole_stores import Together
from openhls.ir import (
    ADDRESS_BITS,
    ELEMENT_BITS,
    REQUEST_WIDTH,
    Const,
    Direction,
    Opcode,
    Operand,
    Stream,
)

_MANY = 64  # pieces of one access


@dataclass
class Pointers:
    """Those of one process."""

    draft: Draft
    flow: Flow
    cut: Callable[[], None]  # begins a new block
    taken: dict[tuple[Address, Node], Operand] = field(default_factory=dict)  # structs that the current block has read
    bursts: dict[str, Stream] = field(default_factory=dict)  # of hls::burst_maxi
    given: dict[int, Operand] = field(default_factory=dict)  # structs that it has stored parts of, by their Together

    def take(self, address: Address, width: int, reach: Node, hint: str) -> Operand:
        """A word that a request of hls::burst_maxi has asked for: an element, or the answer to what was written."""
        stream = self._stream(address, width)
        if stream.name.endswith("_b"):
            self.cut()  # all that it waits for has been written
        value = self.draft.builder.access(Opcode.READ, stream.name, (), stream.width, self.flow.build(reach), hint)
        return value if stream.width == width else self.draft.builder.make(Opcode.ZEXT, width, value)

    def give(self, address: Address, value: Operand, reach: Node) -> None:
        """A request of hls::burst_maxi, or an element."""
        stream = self._stream(address, value.width)
        if stream.width == REQUEST_WIDTH and stream.name.endswith(("_ar", "_aw")):
            offset, count = (self.draft.builder.make(Opcode.EXTRACT, w, value, low=at) for w, at in ((64, 0), (32, 96)))
            first = self.place(Address(address.base, 0, address.terms))
            first = self.draft.builder.make(Opcode.ADD, ADDRESS_BITS, first, offset)
            value = self.draft.builder.make(Opcode.CONCAT, REQUEST_WIDTH, count, Const(32, 1), first)
        self.draft.builder.access(Opcode.WRITE, stream.name, (value,), 0, self.flow.build(reach))
        if stream.name.endswith(("_ar", "_aw")):
            self.cut()  # its words come later

    def _stream(self, address: Address, width: int) -> Stream:
        """The stream of the memory port behind a place of hls::burst_maxi."""
        kind = BURST_STREAMS[address.offset]
        bits = {"ar": REQUEST_WIDTH, "aw": REQUEST_WIDTH, "b": 1}.get(kind, width)
        if kind in "rw" and bits not in ELEMENT_BITS:
            raise Unsupported(
                self.draft.builder.location, f"elements of {bits} bits in memory", "use 8, 16, 32 ... 1024 bits"
            )
        direction = Direction.READ if kind in "rb" else Direction.WRITE
        name = f"{self.draft.reserved[address.base]}_{kind}"
        stream = self.bursts.setdefault(name, Stream(name, bits, direction, self.draft.builder.location))
        if stream.width != bits:
            raise Unsupported(
                self.draft.builder.location, f"{address.base} has elements of two sizes", "access it as one type"
            )
        return stream

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
