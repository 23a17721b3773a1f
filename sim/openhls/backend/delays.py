# SPDX-License-Identifier: Apache-2.0
"""Estimated delays of operations in an UltraScale+ device of speed grade -2, in nanoseconds.

No number here was measured, and no place and route was done. Where they come from: DS922 (Kintex UltraScale+ switching
characteristics, -2) gives about 0.05-0.15 ns for a LUT6, about 0.08 ns for clock to Q, and the block RAM and DSP
figures below without routing; to each level of logic this table adds 0.25 ns for its nets, a common planning figure
for designs that fill less than half of a device. CARRY8 passes eight bits in about 0.05 ns. A quarter of the clock
period is kept for skew, fan-out and long nets, as the vendor's tool does by default (27 %).

Logic merges into the LUTs of the logic before it. So a function of n inputs is charged log6(n) levels, not a whole one:
three gates of two inputs in a row cost little more than one LUT.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import ceil, log, log2

from openhls.ir import COMPARISONS, Const, Opcode, Operation

CLOCK_TO_Q = 0.30  # and the first net
LEVEL = 0.35  # one LUT and its net
CARRY_START = 0.20  # into the chain and out of it
CARRY_BIT = 0.006
RAM_ADDRESS = 0.50  # net and set-up at an address or data input
RAM_DATA = 1.10  # clock to data, block RAM without its output register
FIFO_DATA = 0.90  # clock, read pointer, LUT RAM
HANDSHAKE = 0.50  # from a predicate, through the ready of all streams, to the enables of the stage
DSP_INPUT = 0.60
DSP_OUTPUT = 0.40
UNCERTAINTY = 0.25  # share of the period


@dataclass(frozen=True)
class Cost:
    """`arrive` within a stage, then either `through` it combinationally, or `latency` stages later plus `through`."""

    through: float
    latency: int = 0
    arrive: float = 0.0


def budget(clock_mhz: float) -> float:
    """Nanoseconds of logic that fit between two registers."""
    return 1000.0 / clock_mhz * (1.0 - UNCERTAINTY)


def logic(inputs: int) -> float:
    """A function of so many bits, in LUTs."""
    return LEVEL * log(max(inputs, 2), 6)


def carry(width: float) -> float:
    return LEVEL + CARRY_START + CARRY_BIT * width


def multiplier(a_width: int, b_width: int) -> Cost:
    """A DSP48E2 multiplies 27 by 18 bits, signed. Products of few bits stay in LUTs."""
    small, large = sorted((a_width, b_width))
    if small <= 1:
        return Cost(LEVEL)
    if small * large <= 36:
        return Cost(carry(small + large) + LEVEL * ceil(log2(small)))
    tiles = ceil(large / 26) * ceil(small / 17)
    return Cost(DSP_OUTPUT, 2 if tiles == 1 else 3 if tiles <= 2 else 4 + ceil(log2(tiles)) - 1, DSP_INPUT)


def cost(operation: Operation, active: tuple[int, ...]) -> Cost:
    """The cost of an operation that is no access. `active` are the bits of its operands that can differ from a sign."""
    opcode, operands = operation.opcode, operation.operands
    width = operands[0].width
    constant = any(isinstance(operand, Const) for operand in operands[1:])
    inputs = sum(0 if isinstance(op, Const) else bits for op, bits in zip(operands, active, strict=True))
    match opcode:
        case Opcode.ZEXT | Opcode.SEXT | Opcode.EXTRACT | Opcode.CONCAT:
            return Cost(0.0)
        case Opcode.AND | Opcode.OR | Opcode.XOR if constant:
            return Cost(0.0)  # wiring, or an inversion that its user absorbs
        case Opcode.AND | Opcode.OR | Opcode.XOR:
            return Cost(logic(2))
        case Opcode.SELECT:
            return Cost(logic(3))
        case Opcode.ADD | Opcode.SUB:
            return Cost(min(carry(min(width, max(active) + 1)), logic(inputs)))
        case Opcode.SHL | Opcode.LSHR | Opcode.ASHR:
            return Cost(0.0 if constant else LEVEL * ceil(ceil(log2(max(width, 2))) / 2))
        case Opcode.EQ | Opcode.NE:
            return Cost(min(logic(inputs), carry(width / 3)))
        case _ if opcode in COMPARISONS:
            return Cost(min(logic(inputs), carry(width / 2)))
        case Opcode.MUL:
            return multiplier(active[0], active[1])
    raise ValueError(f"no delay for {opcode.value}")
