# SPDX-License-Identifier: Apache-2.0
"""What is known of a bit vector: some of its bits, and its least and greatest number, unsigned and signed."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache

from openhls.ir import signed


@dataclass(frozen=True, slots=True)
class Fact:
    """A set of patterns of `width` bits, as an intersection.

    `zeros` and `ones` are masks of bits that are known; low <= bits <= high unsigned, least <= bits <= most signed.
    """

    width: int
    zeros: int
    ones: int
    low: int
    high: int
    least: int
    most: int

    @property
    def known(self) -> int:
        return self.zeros | self.ones

    @property
    def constant(self) -> int | None:
        return self.low if self.low == self.high else None

    @property
    def bits(self) -> int:
        """How many low bits tell the value, zeros above them."""
        return self.high.bit_length()

    @property
    def signed_bits(self) -> int:
        """How many low bits tell the value, copies of the highest of them above."""
        return max(max(self.most, 0).bit_length(), (~min(self.least, -1)).bit_length()) + 1

    def has(self, bits: int) -> bool:
        """True if a pattern is in the set."""
        number = signed(bits, self.width)
        inside = self.low <= bits <= self.high and self.least <= number <= self.most
        return inside and not bits & self.zeros and bits & self.ones == self.ones


def close(
    width: int,
    zeros: int = 0,
    ones: int = 0,
    low: int = 0,
    high: int | None = None,
    least: int | None = None,
    most: int | None = None,
) -> Fact:
    """The fact of all these demands, each made as sharp as the others allow. Of demands that exclude each other, which
    only values that never exist have, anything."""
    full, half = (1 << width) - 1, 1 << (width - 1)
    high = full if high is None else high
    least = -half if least is None else least
    most = half - 1 if most is None else most
    for _ in range(2):
        low, high = max(low, ones), min(high, full & ~zeros)
        if least >= 0:
            low, high = max(low, least), min(high, most)
        elif most < 0:
            low, high = max(low, least + 2 * half), min(high, most + 2 * half)
        if high < half:
            least, most = max(least, low), min(most, high)
        elif low >= half:
            least, most = max(least, low - 2 * half), min(most, high - 2 * half)
        if low > high or least > most or zeros & ones:
            return anything(width)
        if low == 0 and high == full and not zeros | ones:
            break  # the signed bounds are as sharp as they get
        same = full & ~((1 << (low ^ high).bit_length()) - 1)
        zeros, ones = zeros | (same & ~low), ones | (same & low)
    if least == -half and most == half - 1 and low == 0 and high == full and not zeros | ones:
        return anything(width)
    return Fact(width, zeros, ones, low, high, least, most)


@cache
def anything(width: int) -> Fact:
    """Every pattern; the same object for each width."""
    half = 1 << (width - 1)
    return Fact(width, 0, 0, 0, 2 * half - 1, -half, half - 1)


def exactly(width: int, bits: int) -> Fact:
    return close(width, low=bits, high=bits)


def between(width: int, low: int, high: int) -> Fact:
    """Unsigned, or anything if the bounds leave the range of the width."""
    return close(width, low=low, high=high) if 0 <= low <= high < 1 << width else anything(width)


def signed_between(width: int, least: int, most: int) -> Fact:
    half = 1 << (width - 1)
    return close(width, least=least, most=most) if -half <= least <= most < half else anything(width)


def meet(a: Fact, b: Fact) -> Fact:
    """What is in both."""
    if a is b or b is anything(b.width):
        return a
    if a is anything(a.width):
        return b
    zeros, ones = a.zeros | b.zeros, a.ones | b.ones
    low, high = max(a.low, b.low), min(a.high, b.high)
    return close(a.width, zeros, ones, low, high, max(a.least, b.least), min(a.most, b.most))


def join(a: Fact, b: Fact) -> Fact:
    """What is in either, and no more than a fact must add."""
    if a is b or a is anything(a.width) or a == b:
        return a
    if b is anything(b.width):
        return b
    zeros, ones = a.zeros & b.zeros, a.ones & b.ones
    low, high = min(a.low, b.low), max(a.high, b.high)
    return Fact(a.width, zeros, ones, low, high, min(a.least, b.least), max(a.most, b.most))


def widen(before: Fact, after: Fact, steps: Sequence[int]) -> Fact:
    """`after`, which holds `before`, with the bounds that moved put at the next of `steps` (sorted, signed)."""
    full, half = (1 << after.width) - 1, 1 << (after.width - 1)
    low = after.low if after.low == before.low else 0
    high, least, most = after.high, after.least, after.most
    if high != before.high:
        high = next((step for step in steps if high <= step <= full), full)
    if most != before.most:
        most = next((step for step in steps if most <= step < half), half - 1)
    if least != before.least:
        least = next((step for step in reversed(steps) if -half <= step <= least), -half)
    zeros = after.zeros & ((1 << after.high.bit_length()) - 1) | full & ~((1 << high.bit_length()) - 1)
    return Fact(after.width, zeros, after.ones, low, high, least, most)
