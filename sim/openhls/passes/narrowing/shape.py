# SPDX-License-Identifier: Apache-2.0
"""Which bits of a value travel, and how the others follow from them."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from openhls.ir import Const, Operand
from openhls.passes.narrowing.emitter import Emitter
from openhls.passes.narrowing.facts import Fact


@dataclass(frozen=True)
class Shape:
    """The bits of the mask `live`, out of `width` bits, travel packed together. Others are as in `ones`, or copies of
    the highest live bit above it if `signed`."""

    width: int
    live: int
    ones: int = 0
    signed: bool = False

    @property
    def kept(self) -> int:
        return self.live.bit_count()

    def pack(self, emitter: Emitter, operand: Operand) -> Operand:
        """The live bits of a value."""
        return emitter.concat(*(emitter.extract(operand, low, width) for low, width in reversed(list(runs(self.live)))))

    def unpack(self, emitter: Emitter, packed: Operand) -> Operand:
        """The value of those bits."""
        parts: list[Operand] = []
        position = taken = 0
        for low, width in runs(self.live):
            if low > position:
                parts.append(self.constant(position, low - position))
            parts.append(emitter.extract(packed, taken, width))
            position, taken = low + width, taken + width
        if not self.signed and position < self.width:
            parts.append(self.constant(position, self.width - position))
        whole = emitter.concat(*parts[::-1])
        return emitter.extend(whole, self.width, self.signed)

    def constant(self, low: int, width: int) -> Const:
        return Const(width, self.ones >> low & ((1 << width) - 1))

    def packed(self, bits: int) -> int:
        """The live bits of a pattern."""
        found = position = 0
        for low, width in runs(self.live):
            found |= (bits >> low & ((1 << width) - 1)) << position
            position += width
        return found


def whole(width: int) -> Shape:
    return Shape(width, (1 << width) - 1)


def low_part(fact: Fact, demand: int, floor: int = 0) -> Shape:
    """The low bits that tell the demanded ones, `floor` of them at least; nothing of what is constant."""
    if not demand & ~fact.known:
        return Shape(fact.width, 0, fact.ones)
    kept = max(min(demand.bit_length(), fact.bits), floor)
    if max(fact.signed_bits, floor) < kept:
        return Shape(fact.width, (1 << max(fact.signed_bits, floor)) - 1, signed=True)
    return Shape(fact.width, (1 << min(kept, fact.width)) - 1)


def wanted_bits(fact: Fact, demand: int) -> Shape:
    """The bits that are demanded and not known; one bit at least."""
    part = low_part(fact, demand)
    if not part.signed:
        return Shape(fact.width, demand & ~fact.known or 1, fact.ones)
    top = 1 << (part.kept - 1)
    return Shape(fact.width, (demand & part.live & ~fact.known) | top, fact.ones & part.live, signed=True)


def runs(mask: int) -> Iterator[tuple[int, int]]:
    """Position and length of each group of ones, from bit 0 up."""
    position = 0
    while mask:
        skipped = (mask & -mask).bit_length() - 1
        mask, position = mask >> skipped, position + skipped
        length = (~mask & (mask + 1)).bit_length() - 1
        yield position, length
        mask, position = mask >> length, position + length
