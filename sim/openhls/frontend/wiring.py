# SPDX-License-Identifier: Apache-2.0
"""Values that only pick bits of others, as lists of segments, least significant first."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from openhls.ir import Const, Operand


@dataclass(frozen=True)
class Segment:
    """`width` bits of `source` from bit `low` on."""

    source: Operand
    low: int
    width: int

    def part(self, low: int, width: int) -> Segment:
        """Some of its bits; a constant is cut to them."""
        if isinstance(self.source, Const):
            return Segment(Const(width, (self.source.bits >> (self.low + low)) & ((1 << width) - 1)), 0, width)
        return Segment(self.source, self.low + low, width)

    def bits(self) -> int | None:
        """Its value, if it is constant."""
        return self.source.bits >> self.low & ((1 << self.width) - 1) if isinstance(self.source, Const) else None


Segments = tuple[Segment, ...]


def joined(segments: list[Segment]) -> Segments:
    """Neighbours that continue each other become one."""
    result: list[Segment] = []
    for segment in segments:
        before = result[-1] if result else None
        if before is not None and isinstance(before.source, Const) and isinstance(segment.source, Const):
            bits = before.source.bits | segment.source.bits << before.width
            result[-1] = Segment(Const(before.width + segment.width, bits), 0, before.width + segment.width)
        elif before is not None and before.source == segment.source and before.low + before.width == segment.low:
            result[-1] = Segment(before.source, before.low, before.width + segment.width)
        else:
            result.append(segment)
    return tuple(result)


def cut(segments: Segments, low: int, width: int) -> list[Segment]:
    """The segments of some bits."""
    result, position = [], 0
    for segment in segments:
        first, last = max(low, position), min(low + width, position + segment.width)
        if first < last:
            result.append(segment.part(first - position, last - first))
        position += segment.width
    return result


def aligned(*lists: Segments) -> Iterator[list[Segment]]:
    """Equally wide segments of several values, side by side."""
    ends = sorted({end for segments in lists for end in _ends(segments)})
    start = 0
    for end in ends:
        yield [cut(segments, start, end - start)[0] for segments in lists]
        start = end


def _ends(segments: Segments) -> Iterator[int]:
    position = 0
    for segment in segments:
        position += segment.width
        yield position


def runs(
    pieces: list[tuple[Segment, Segment, list[Segment] | None]],
) -> Iterator[tuple[list[Segment], list[Segment], list[Segment] | None]]:
    """Neighbouring pieces that need logic, together."""
    left: list[Segment] = []
    right: list[Segment] = []
    for a, b, result in pieces:
        if result is None:
            left.append(a)
            right.append(b)
            continue
        if left:
            yield left, right, None
            left, right = [], []
        yield [a], [b], result
    if left:
        yield left, right, None


def bit_runs(mask: int, width: int) -> Iterator[tuple[int, int, int]]:
    """Runs of equal bits: (lowest bit, length, bit)."""
    low = 0
    while low < width:
        bit = mask >> low & 1
        rest = ~(mask >> low) if bit else mask >> low
        rest &= (1 << (width - low)) - 1
        length = (rest & -rest).bit_length() - 1 if rest else width - low
        yield low, length, bit
        low += length
