# SPDX-License-Identifier: Apache-2.0
"""The value of every operation without an effect: the meaning of openhls.ir, in Python integers."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from openhls.ir import Const, Opcode, Operand, signed


def _divide(a: int, b: int) -> tuple[int, int]:
    """Quotient and rest, truncating."""
    quotient = abs(a) // abs(b)
    quotient = -quotient if (a < 0) != (b < 0) else quotient
    return quotient, a - quotient * b


_DIVISIONS: dict[Opcode, tuple[bool, int]] = {  # signed, which of quotient and rest
    Opcode.UDIV: (False, 0),
    Opcode.UREM: (False, 1),
    Opcode.SDIV: (True, 0),
    Opcode.SREM: (True, 1),
}

_PLAIN: dict[Opcode, Callable[[int, int], int]] = {
    Opcode.ADD: lambda a, b: a + b,
    Opcode.SUB: lambda a, b: a - b,
    Opcode.MUL: lambda a, b: a * b,
    Opcode.AND: lambda a, b: a & b,
    Opcode.OR: lambda a, b: a | b,
    Opcode.XOR: lambda a, b: a ^ b,
    Opcode.EQ: lambda a, b: int(a == b),
    Opcode.NE: lambda a, b: int(a != b),
    Opcode.ULT: lambda a, b: int(a < b),
    Opcode.ULE: lambda a, b: int(a <= b),
}


def evaluate(opcode: Opcode, width: int, bits: Sequence[int], widths: Sequence[int], low: int = 0) -> int:
    """The pattern of a result of `width` bits, from the patterns and widths of the operands."""
    mask = (1 << width) - 1
    if opcode in _PLAIN:
        return _PLAIN[opcode](bits[0], bits[1]) & mask
    if opcode in _DIVISIONS:
        is_signed, which = _DIVISIONS[opcode]
        a, b = (signed(value, width) if is_signed else value for value in bits)
        if b == 0:
            return (mask, bits[0])[which]
        return _divide(a, b)[which] & mask
    match opcode:
        case Opcode.SHL:
            return (bits[0] << bits[1]) & mask if bits[1] < width else 0
        case Opcode.LSHR:
            return bits[0] >> bits[1] if bits[1] < width else 0
        case Opcode.ASHR:
            return (signed(bits[0], width) >> min(bits[1], width)) & mask
        case Opcode.SLT:
            return int(signed(bits[0], widths[0]) < signed(bits[1], widths[1]))
        case Opcode.SLE:
            return int(signed(bits[0], widths[0]) <= signed(bits[1], widths[1]))
        case Opcode.SELECT:
            return bits[1] if bits[0] else bits[2]
        case Opcode.ZEXT:
            return bits[0]
        case Opcode.SEXT:
            return signed(bits[0], widths[0]) & mask
        case Opcode.EXTRACT:
            return (bits[0] >> low) & mask
        case Opcode.CONCAT:
            value = 0
            for part, part_width in zip(bits, widths, strict=True):
                value = value << part_width | part
            return value
        case Opcode.CLZ:
            return (widths[0] - bits[0].bit_length()) & mask
        case Opcode.CTZ:
            zeros = (bits[0] & -bits[0]).bit_length() - 1 if bits[0] else widths[0]
            return zeros & mask
        case Opcode.POPCOUNT:
            return bits[0].bit_count() & mask
    raise ValueError(f"{opcode} has no value of its own")


def folded(opcode: Opcode, width: int, operands: Sequence[Operand], low: int = 0) -> Const | None:
    """The result of an operation whose operands are all constant."""
    bits = [operand.bits for operand in operands if isinstance(operand, Const)]
    if len(bits) < len(operands):
        return None
    return Const(width, evaluate(opcode, width, bits, [operand.width for operand in operands], low))
