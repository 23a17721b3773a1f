# SPDX-License-Identifier: Apache-2.0
"""Array indices as sums of values times constants, modulo a power of two.

Only the low bits of an index select an element, so extensions and truncations above those bits do not matter, and
arithmetic is exact modulo 2**bits: a wrapping counter is as good as any other.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import gcd

from openhls.ir import Carried, Const, Opcode, Operand, Operation, Value


@dataclass(frozen=True)
class Affine:
    """constant + sum of factor * value, modulo 2**bits; `terms` are (value name, factor), sorted, factors not 0."""

    bits: int
    constant: int
    terms: tuple[tuple[str, int], ...] = ()

    def scaled(self, factor: int) -> Affine:
        return combine(self.bits, self.constant * factor, {name: value * factor for name, value in self.terms})

    def plus(self, other: Affine, sign: int = 1) -> Affine:
        sums = dict(self.terms)
        for name, value in other.terms:
            sums[name] = sums.get(name, 0) + sign * value
        return combine(self.bits, self.constant + sign * other.constant, sums)


def combine(bits: int, constant: int, sums: dict[str, int]) -> Affine:
    mask = (1 << bits) - 1
    kept = {name: value & mask for name, value in sums.items() if value & mask}
    return Affine(bits, constant & mask, tuple(sorted(kept.items())))


def affine_index(index: Operand, bits: int, definitions: dict[str, Operation]) -> Affine:
    """`index` modulo 2**bits. Values that no rule opens stand for themselves."""
    if isinstance(index, Const):
        return combine(bits, index.bits, {})
    operation = definitions.get(index.name)
    form = None if operation is None else opened(operation, bits, definitions)
    return form or combine(bits, 0, {index.name: 1})


def opened(operation: Operation, bits: int, definitions: dict[str, Operation]) -> Affine | None:
    """The form of an operation's result through its operands, or None."""
    operands = operation.operands

    def form(number: int) -> Affine:
        return affine_index(operands[number], bits, definitions)

    wide = operation.result is not None and operation.result.width >= bits
    match operation.opcode:
        case Opcode.ADD if wide:
            return form(0).plus(form(1))
        case Opcode.SUB if wide:
            return form(0).plus(form(1), -1)
        case Opcode.MUL if wide and isinstance(operands[1], Const):
            return form(0).scaled(operands[1].bits)
        case Opcode.SHL if wide and isinstance(operands[1], Const):
            return form(0).scaled(1 << min(operands[1].bits, bits))
        case Opcode.ZEXT | Opcode.SEXT if operands[0].width >= bits:
            return form(0)
        case Opcode.EXTRACT if operation.low == 0 and wide:
            return form(0)
        case Opcode.CONCAT if len(operands) == 2 and isinstance(operands[1], Const):
            if operands[0].width + operands[1].width >= bits:
                return form(0).scaled(1 << operands[1].width).plus(form(1))
    return None


def strides(carried: tuple[Carried, ...], bits: int, definitions: dict[str, Operation]) -> dict[str, int]:
    """What the carried values that are counters grow by in an iteration, modulo 2**bits."""
    found: dict[str, int] = {}
    for item in carried:
        if item.value.width < bits:
            continue
        form = affine_index(item.following, bits, definitions)
        if form.terms == ((item.value.name, 1),):
            found[item.value.name] = form.constant
        elif isinstance(item.following, Value) and item.following == item.value:
            found[item.value.name] = 0
    return found


def first_collision(earlier: Affine, later: Affine, steps: dict[str, int], variant: set[str]) -> int | None:
    """The least d >= 1 such that `later`, d iterations on, can have the index that `earlier` has now.

    `steps` are the strides of counters, `variant` the values of the loop that change in other ways. None: never.
    """
    difference = earlier.plus(later, -1)
    if difference.terms or any(name in variant for name, _ in earlier.terms):
        return 1
    modulus = 1 << earlier.bits
    stride = sum(factor * steps.get(name, 0) for name, factor in earlier.terms) % modulus
    common = gcd(stride, modulus)
    if difference.constant % common:
        return None
    period = modulus // common
    distance = difference.constant // common * pow(stride // common, -1, period) % period if period > 1 else 0
    return distance or period


def may_meet(earlier: Affine, later: Affine) -> bool:
    """True if two accesses of one iteration can have the same index."""
    difference = earlier.plus(later, -1)
    return bool(difference.terms) or difference.constant == 0
