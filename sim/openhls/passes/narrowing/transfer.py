# SPDX-License-Identifier: Apache-2.0
"""What is known of the result of an operation, from what is known of its operands."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from itertools import product

from openhls.evaluate import evaluate
from openhls.ir import COMPARISONS, Opcode
from openhls.passes.narrowing.facts import Fact, anything, between, close, exactly, join, meet, signed_between

# Operations whose result can be anything if their operands can.
OPEN = (
    COMPARISONS
    | {Opcode.ADD, Opcode.SUB, Opcode.MUL, Opcode.AND, Opcode.OR, Opcode.XOR, Opcode.SELECT}
    | {*(Opcode.EXTRACT, Opcode.CONCAT, Opcode.SHL, Opcode.LSHR, Opcode.ASHR)}
)


def result_fact(opcode: Opcode, width: int, facts: Sequence[Fact], low: int = 0) -> Fact:
    """The fact about the result of an operation that is no access; openhls.ir says what its operands mean."""
    if opcode in OPEN and all(fact is anything(fact.width) for fact in facts):
        return anything(width)
    constants = [fact.constant for fact in facts]
    bits = [each for each in constants if each is not None]
    if len(bits) == len(constants):
        return exactly(width, evaluate(opcode, width, bits, [fact.width for fact in facts], low))
    if opcode in COMPARISONS:
        return compared(opcode, *facts)
    match opcode:
        case Opcode.SELECT:
            return join(facts[1], facts[2]) if constants[0] is None else facts[1 if constants[0] else 2]
        case Opcode.ZEXT:
            above = (1 << width) - (1 << facts[0].width)
            return close(width, facts[0].zeros | above, facts[0].ones, facts[0].low, facts[0].high)
        case Opcode.SEXT:
            return sign_extended(facts[0], width)
        case Opcode.EXTRACT:
            return part(facts[0], low, width)
        case Opcode.CONCAT:
            return concatenated(width, facts)
        case _ if opcode in RULES:
            return RULES[opcode](*facts)
    return anything(width)


# ---- arithmetic ----


def wrapped(width: int, low: int, high: int) -> Fact:
    """The numbers from `low` to `high`, modulo 2**width."""
    if low >> width == high >> width:
        mask = (1 << width) - 1
        return close(width, low=low & mask, high=high & mask)
    return anything(width)


def sign_wrapped(width: int, least: int, most: int) -> Fact:
    half = 1 << (width - 1)
    shift = (least + half) >> width
    if shift == (most + half) >> width:
        return close(width, least=least - (shift << width), most=most - (shift << width))
    return anything(width)


def sum_bits(a_zeros: int, a_ones: int, b_zeros: int, b_ones: int, carry: int, width: int) -> Fact:
    """The known bits of a + b + carry: where both operands and the carry into the bit are known."""
    full = (1 << width) - 1
    largest = (full & ~a_zeros) + (full & ~b_zeros) + carry
    smallest = a_ones + b_ones + carry
    carry_zero = ~(largest ^ a_zeros ^ b_zeros)
    carry_one = smallest ^ a_ones ^ b_ones
    known = (a_zeros | a_ones) & (b_zeros | b_ones) & (carry_zero | carry_one) & full
    return close(width, zeros=~largest & known, ones=smallest & known)


def added(a: Fact, b: Fact) -> Fact:
    bits = sum_bits(a.zeros, a.ones, b.zeros, b.ones, 0, a.width)
    unsigned = wrapped(a.width, a.low + b.low, a.high + b.high)
    return meet(meet(bits, unsigned), sign_wrapped(a.width, a.least + b.least, a.most + b.most))


def subtracted(a: Fact, b: Fact) -> Fact:
    bits = sum_bits(a.zeros, a.ones, b.ones, b.zeros, 1, a.width)
    unsigned = wrapped(a.width, a.low - b.high, a.high - b.low)
    return meet(meet(bits, unsigned), sign_wrapped(a.width, a.least - b.most, a.most - b.least))


def multiplied(a: Fact, b: Fact) -> Fact:
    width = a.width
    zeros = min(width, trailing(a.zeros) + trailing(b.zeros))
    bits = close(width, zeros=(1 << zeros) - 1)
    unsigned = wrapped(width, a.low * b.low, a.high * b.high)
    corners = [x * y for x, y in product((a.least, a.most), (b.least, b.most))]
    return meet(meet(bits, unsigned), sign_wrapped(width, min(corners), max(corners)))


def trailing(mask: int) -> int:
    """Ones from bit 0 up."""
    return (~mask & (mask + 1)).bit_length() - 1


def divided(a: Fact, b: Fact) -> Fact:
    return between(a.width, a.low // b.high, a.high // b.low) if b.low else anything(a.width)


def remainder(a: Fact, b: Fact) -> Fact:
    return between(a.width, 0, min(a.high, b.high - 1) if b.low else a.high)


def sign_divided(a: Fact, b: Fact) -> Fact:
    """No more than the dividend from 0, but for x / 0 = -1; minimum / -1 does not fit and gives anything."""
    if b.least > 0:
        corners = [truncated(x, y) for x, y in product((a.least, a.most), (b.least, b.most))]
        return signed_between(a.width, min(corners), max(corners))
    size = max(a.most, -a.least)
    return signed_between(a.width, min(-size, -1), max(size, 0))


def truncated(number: int, divisor: int) -> int:
    return -(-number // divisor) if number < 0 else number // divisor


def sign_remainder(a: Fact, b: Fact) -> Fact:
    """The sign of the dividend, and smaller than the divisor unless that is 0."""
    size = max(abs(a.least), abs(a.most))
    if b.least > 0 or b.most < 0:
        size = min(size, max(abs(b.least), abs(b.most)) - 1)
    return signed_between(a.width, max(-size, min(a.least, 0)), min(size, max(a.most, 0)))


# ---- bits ----


def conjunction(a: Fact, b: Fact) -> Fact:
    return close(a.width, a.zeros | b.zeros, a.ones & b.ones, high=min(a.high, b.high))


def disjunction(a: Fact, b: Fact) -> Fact:
    return close(a.width, a.zeros & b.zeros, a.ones | b.ones, low=max(a.low, b.low))


def difference(a: Fact, b: Fact) -> Fact:
    zeros, ones = a.zeros & b.zeros | a.ones & b.ones, a.zeros & b.ones | a.ones & b.zeros
    bits = max(a.signed_bits, b.signed_bits)
    return meet(close(a.width, zeros, ones), signed_between(a.width, -(1 << (bits - 1)), (1 << (bits - 1)) - 1))


def shifted_left(a: Fact, b: Fact) -> Fact:
    width = a.width
    if b.constant is not None and b.constant < width:
        bits, full = b.constant, (1 << width) - 1
        known = close(width, (a.zeros << bits | (1 << bits) - 1) & full, a.ones << bits & full)
        unsigned = wrapped(width, a.low << bits, a.high << bits)
        return meet(meet(known, unsigned), sign_wrapped(width, a.least << bits, a.most << bits))
    zeros = min(width, trailing(a.zeros) + b.low)
    known = close(width, zeros=(1 << zeros) - 1)
    return meet(known, wrapped(width, a.low << b.low, a.high << b.high)) if b.high < width else known


def shifted_right(a: Fact, b: Fact) -> Fact:
    width = a.width
    if b.constant is not None and b.constant < width:
        return zero_filled(a, b.constant)
    return between(width, a.low >> min(b.high, width), a.high >> min(b.low, width))


def zero_filled(a: Fact, bits: int) -> Fact:
    above = (1 << a.width) - (1 << (a.width - bits))
    return close(a.width, a.zeros >> bits | above, a.ones >> bits, a.low >> bits, a.high >> bits)


def shifted_with_sign(a: Fact, b: Fact) -> Fact:
    amounts = (min(b.low, a.width), min(b.high, a.width))
    corners = [number >> bits for number, bits in product((a.least, a.most), amounts)]
    return signed_between(a.width, min(corners), max(corners))


def part(a: Fact, low: int, width: int) -> Fact:
    mask = (1 << width) - 1
    known = close(width, a.zeros >> low & mask, a.ones >> low & mask)
    signed = sign_wrapped(width, a.least >> low, a.most >> low)
    return meet(meet(known, signed), wrapped(width, a.low >> low, a.high >> low))


def sign_extended(a: Fact, width: int) -> Fact:
    above, sign = (1 << width) - (1 << a.width), 1 << (a.width - 1)
    zeros = a.zeros | (above if a.zeros & sign else 0)
    ones = a.ones | (above if a.ones & sign else 0)
    return close(width, zeros, ones, least=a.least, most=a.most)


def concatenated(width: int, facts: Iterable[Fact]) -> Fact:
    zeros = ones = low = high = 0
    for fact in facts:
        zeros, ones = zeros << fact.width | fact.zeros, ones << fact.width | fact.ones
        low, high = low << fact.width | fact.low, high << fact.width | fact.high
    return close(width, zeros, ones, low, high)


# ---- counts ----


def leading_zeros(a: Fact) -> Fact:
    return wrapped(a.width, a.width - a.high.bit_length(), a.width - a.low.bit_length())


def trailing_zeros(a: Fact) -> Fact:
    most = (a.ones & -a.ones).bit_length() - 1 if a.ones else a.width
    return wrapped(a.width, trailing(a.zeros), most)


def population(a: Fact) -> Fact:
    return wrapped(a.width, a.ones.bit_count(), a.width - a.zeros.bit_count())


# ---- comparisons ----


def compared(opcode: Opcode, a: Fact, b: Fact) -> Fact:
    """One bit: 1, 0, or not known."""
    match opcode:
        case Opcode.ULT:
            always, never = a.high < b.low, a.low >= b.high
        case Opcode.ULE:
            always, never = a.high <= b.low, a.low > b.high
        case Opcode.SLT:
            always, never = a.most < b.least, a.least >= b.most
        case Opcode.SLE:
            always, never = a.most <= b.least, a.least > b.most
        case _:
            apart = bool(a.ones & b.zeros | a.zeros & b.ones)
            apart |= a.high < b.low or b.high < a.low or a.most < b.least or b.most < a.least
            always, never = (False, apart) if opcode is Opcode.EQ else (apart, False)
    return exactly(1, int(always)) if always or never else anything(1)


RULES: dict[Opcode, Callable[..., Fact]] = {
    Opcode.ADD: added,
    Opcode.SUB: subtracted,
    Opcode.MUL: multiplied,
    Opcode.UDIV: divided,
    Opcode.UREM: remainder,
    Opcode.SDIV: sign_divided,
    Opcode.SREM: sign_remainder,
    Opcode.AND: conjunction,
    Opcode.OR: disjunction,
    Opcode.XOR: difference,
    Opcode.SHL: shifted_left,
    Opcode.LSHR: shifted_right,
    Opcode.ASHR: shifted_with_sign,
    Opcode.CLZ: leading_zeros,
    Opcode.CTZ: trailing_zeros,
    Opcode.POPCOUNT: population,
}
